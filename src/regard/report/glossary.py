"""The words that pages define, and links from pages to the documentation."""

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from regard.report.sections import Table

DOCS = Path(__file__).parents[3] / "docs"  # in a copy of the source; an installed package has no documentation
# Each meaning is how docs/glossary.md begins to define the word.
_LINES = files("regard.report").joinpath("glossary.txt").read_text(encoding="utf-8").splitlines()
WORDS: dict[str, str] = dict(line.split(": ", 1) for line in _LINES)
PART_WORDS = {"encoder": "encoder", "decoder": "decoder", "cross-attention": "cross"}  # word → part of a model


def glossary(words: Iterable[str]) -> Table:
    """The meanings of some words, as the last section of a page."""
    return Table("Words", ["word", "meaning"], [[word, WORDS[word]] for word in sorted(words, key=str.lower)])


def docs_folder(page: Path) -> str:
    """The relative path from a page to the documentation; empty if there is none on this machine."""
    return os.path.relpath(DOCS, page.parent) if (DOCS / "glossary.md").is_file() else ""
