"""Writes the texts of each topic of `regard explain` into the pages that include them: python docs/topics.py

A page includes the prose between <!-- topic: NAME --> and <!-- /topic -->, and the text about the results between
<!-- reading: NAME --> and <!-- /reading -->.
"""

import importlib
import re
import textwrap
from pathlib import Path

from regard.explain import TOPICS
from regard.report.sections import paragraphs

INCLUDED = re.compile(r"<!-- (topic|reading): ([\w-]+) -->\n.*?<!-- /\1 -->", re.DOTALL)


def include(page: str) -> str:
    """The text of a page with the current texts of its topics."""
    return INCLUDED.sub(lambda m: f"<!-- {m[1]}: {m[2]} -->\n\n{markdown(m[1], m[2])}\n\n<!-- /{m[1]} -->", page)


def markdown(kind: str, topic: str) -> str:
    """The prose of a topic or the text about its results, wrapped as the pages are."""
    module = TOPICS[topic].module
    texts = TOPICS[topic].prose
    if kind == "reading":
        texts = paragraphs(importlib.import_module(f"regard.explain.{module}").READING)
    return "\n\n".join(textwrap.fill(text, 124, break_on_hyphens=False) for text in texts)


if __name__ == "__main__":
    for path in Path(__file__).parent.glob("*.md"):
        path.write_text(include(path.read_text(encoding="utf-8")), encoding="utf-8")
