"""Writes the prose of each topic of `regard explain` into the pages that include it: python docs/topics.py

A page includes it between <!-- topic: NAME --> and <!-- /topic -->.
"""

import re
import textwrap
from pathlib import Path

from regard.explain import TOPICS

INCLUDED = re.compile(r"<!-- topic: (\w+) -->\n.*?<!-- /topic -->", re.DOTALL)


def include(page: str) -> str:
    """The text of a page with the current prose of its topics."""
    return INCLUDED.sub(lambda match: f"<!-- topic: {match[1]} -->\n\n{markdown(match[1])}\n\n<!-- /topic -->", page)


def markdown(topic: str) -> str:
    """The prose of a topic, wrapped as the pages are."""
    return "\n\n".join(textwrap.fill(text, 124, break_on_hyphens=False) for text in TOPICS[topic].prose)


if __name__ == "__main__":
    for path in Path(__file__).parent.glob("*.md"):
        path.write_text(include(path.read_text(encoding="utf-8")), encoding="utf-8")
