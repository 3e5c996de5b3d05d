"""Pairs from running text: the turns of a play, and the paragraphs of articles with their headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from regard.data.download import CURE
from regard.data.example import Corpus, Pair, Tokens
from regard.data.files import find_data, iterate_lines
from regard.data.synthetic import check_sizes
from regard.errors import UserError

OPENING, CLOSING = re.compile(r"=(?: ?=)*(?= )"), re.compile(r" (=(?: ?=)*)$")  # " = = History = = " has level two
JOINED = re.compile(r" @([-,.])@ ")  # WikiText writes "well @-@ known" and "3 @.@ 5"
HELD_OUT = 0.1  # the part at the end of a file that is for validation, if data.valid is not set


@dataclass(frozen=True)
class Play:
    """A turn of a play and the turn after it: Shakespeare's plays in $REGARD_DATA/tinyshakespeare, or your own file.

    A turn is a line with the name of the speaker and a colon, then the lines that are spoken. A blank line ends it.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    train: str = ""  # the file of the play; if empty, Shakespeare's plays
    valid: str = ""  # another play for validation; if empty, the last tenth of the turns
    test: str = ""  # another play for the test; may be empty
    names: bool = False  # whether a turn begins with the name of its speaker
    words: int = 40  # the most words of a turn: a longer one loses its beginning as a source, its end as a target
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 8000  # the largest size of the vocabulary of either side
    joint: bool = True  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else ("tinyshakespeare/input.txt",)

    def load(self) -> Corpus:
        check_sizes(self, {"words": 1})
        return _corpus(self.train or str(find_data(self.files[0], CURE)), self.valid, self.test, self._read)

    def _read(self, path: str) -> list[Pair]:
        turns = []
        for block in _blocks(path):
            name, colon, rest = block[0].strip().rpartition(":")
            if not colon or rest or len(block) < 2:
                continue  # not a turn: a title, or a speaker who says nothing
            spoken = " ".join(" ".join(block[1:]).split())
            turns.append(f"{name}: {spoken}" if self.names else spoken)
        if len(turns) < 2:
            cure = 'write each as "NAME:", then its lines, then a blank line'
            raise UserError(f"{path}: {len(turns)} turns of a play, but at least two are needed; {cure}.")
        words = [turn.split() for turn in turns]
        return [Pair(" ".join(a[-self.words :]), " ".join(b[: self.words])) for a, b in pairwise(words)]


@dataclass(frozen=True)
class Titles:
    """A paragraph and the heading above it: WikiText-2 in $REGARD_DATA/wikitext2, or your own file of the same form.

    A heading is a line such as " = Title = " or " = = Section = = "; a paragraph is one line.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    train: str = ""  # the file of the articles; if empty, WikiText-2
    valid: str = ""  # another file for validation; if empty, the last tenth of the paragraphs, or that of WikiText-2
    test: str = ""  # another file for the test; may be empty
    level: int = 0  # the level of the headings: 1 for titles of articles, 2 for sections; 0: the nearest of any level
    least: int = 20  # paragraphs with fewer words are left out
    words: int = 100  # the most words of a paragraph: a longer one loses its end
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 16_000  # the largest size of the vocabulary of either side
    joint: bool = True  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else tuple(f"wikitext2/wiki.{part}.raw" for part in ("train", "valid", "test"))

    def load(self) -> Corpus:
        check_sizes(self, {"words": 1, "level": 0, "least": 1})
        if self.train:
            return _corpus(self.train, self.valid, self.test, self._read)
        train, valid, test = (str(find_data(name)) for name in self.files)
        return _corpus(train, self.valid or valid, self.test or test, self._read)

    def _read(self, path: str) -> list[Pair]:
        heading, found = "", []
        for line in iterate_lines(path):
            if marked := _heading(line):
                depth, text = marked
                if self.level in (0, depth):
                    heading = text
                elif depth < self.level:
                    heading = ""  # a new article: the section of the article before has ended
            elif heading and len(words := _plain(line).split()) >= self.least:
                found.append(Pair(" ".join(words[: self.words]), heading))
        if not found:
            cure = 'give a file with lines such as " = Title = " above paragraphs, or another data.level or data.least'
            raise UserError(f"{path}: no paragraph of {self.least} words below a heading; {cure}.")
        return found


def _corpus(train: str, valid: str, test: str, read: Callable[[str], list[Pair]]) -> Corpus:
    """The corpus of files. Without a validation file, the end of the training file is held out.

    It is the end because neighbours share a turn or an article, which a random choice would put into both parts.
    """
    examples = read(train)
    if valid:
        return Corpus(examples, read(valid), read(test) if test else [])
    cut = min(int(len(examples) * (1 - HELD_OUT)), len(examples) - 1)
    if cut < 1:
        found = f"data.train={train}: {len(examples)} example, too few to hold some out"
        raise UserError(f"{found}; give a longer file, or data.valid=FILE.")
    return Corpus(examples[:cut], examples[cut:], read(test) if test else [])


def _blocks(path: str | Path) -> Iterable[list[str]]:
    """The lines between blank lines."""
    block: list[str] = []
    for line in (*iterate_lines(path), ""):
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _heading(line: str) -> tuple[int, str] | None:
    """The level and the text of a heading; None for any other line."""
    line = line.strip()
    end = len(line.rstrip("= "))  # of the text, without the signs after it
    opening, closing = OPENING.match(line), CLOSING.search(line, end)
    if not opening or not closing or opening.end() >= end or opening[0] != closing[1]:
        return None
    return opening[0].count("="), _plain(line[opening.end() : closing.start()])


def _plain(text: str) -> str:
    """The text without the signs with which WikiText separates hyphens and the parts of numbers."""
    return JOINED.sub(r"\1", f" {text} ").strip()
