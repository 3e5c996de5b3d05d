"""The words that pages define, and the address of the documentation."""

from collections.abc import Iterable
from importlib.resources import files

from regard.report.sections import Table

# The web address of the folder docs/. It has none yet: pages name the files of it, without links. A page never links to
# the disk of the machine that wrote it.
DOCS = ""
# Each meaning is how docs/glossary.md begins to define the word.
_LINES = files("regard.report").joinpath("glossary.txt").read_text(encoding="utf-8").splitlines()
WORDS: dict[str, str] = dict(line.split(": ", 1) for line in _LINES)
PART_WORDS = {"encoder": "encoder", "decoder": "decoder", "cross-attention": "cross"}  # word → part of a model


def glossary(words: Iterable[str]) -> Table:
    """The meanings of some words, as the last section of a page."""
    return Table("Words", ["word", "meaning"], [[word, WORDS[word]] for word in sorted(words, key=str.lower)])
