"""Text to text: sources and targets that are put together from columns, and several tasks in one corpus.

A prefix before each source names its task, as in T5 (Raffel et al. 2020, section 2.4): "summarize: …". A model that is
trained on several tasks learns from the prefix what to do, and an evaluation measures each task apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar

from regard.data.example import Corpus, Pair, Tokens
from regard.data.files import hash_text
from regard.data.sources import OwnFiles, Pairs, read_pairs
from regard.data.tables import read_table
from regard.errors import UserError

COLUMN = re.compile(r"\{([^{}]+)\}")  # a column in a template: "first: {sentence1} second: {sentence2}"
PLACES = ("one", "two", "three", "four", "five", "six")  # of the tasks of a mixture


@dataclass(frozen=True)
class TaskFiles(OwnFiles):
    """The files of one task: its sources and targets, made of the columns of tables."""

    source: str = ""  # the column of the sources, or a template of columns: "first: {sentence1} second: {sentence2}"
    target: str = ""  # the column of the targets, or a template of columns
    prefix: str = ""  # the text before each source, such as "summarize:"; it may have columns, as in "{task}:"
    words: tuple[str, ...] = ()  # words for values of the target: negative=0,positive=1
    round: float = 0.0  # targets are numbers, rounded to multiples of this, such as 0.2; 0: they are not

    def load(self) -> Corpus:
        if not 0 <= self.round < math.inf:
            raise UserError(f"data.round={self.round}: give a number above 0, such as 0.2, or 0 for no rounding.")
        return super().load()

    @property
    def columns(self) -> dict[str, str]:
        columns = {"source": self.source, "target": self.target}
        if self._has_templates:  # the columns have names, so no line of a file is taken for a header by mistake
            columns = {key: name or key for key, name in columns.items()}
        return columns

    @property
    def _has_templates(self) -> bool:
        return any(map(COLUMN.search, (self.source, self.target, self.prefix)))

    def read(self, path: str) -> list[Any]:
        """The pairs of a file. A pair whose source or target is empty stays empty, and is left out by `load_files`."""
        words = verbalisers(self.words, "data.words") if self.words else {}
        if not self._has_templates:
            pairs = read_pairs(path, self.source, self.target)
            return [self._pair(one.source, one.target, self.prefix, words, path) for one in pairs]
        templates = [
            text if COLUMN.search(text) else f"{{{text or key}}}"
            for key, text in (("source", self.source), ("target", self.target))
        ]
        names = {f"{{{name}}}": name for text in (*templates, self.prefix) for name in COLUMN.findall(text)}
        found = []
        for line, row in read_table(path, names):
            source, target = (_filled(text, row) for text in templates)
            found.append(self._pair(source, target, _filled(self.prefix, row), words, f"{path}, line {line}"))
        return found

    def _pair(self, source: str, target: str, prefix: str, words: Mapping[str, str], place: str) -> Pair:
        source, target, prefix = source.strip(), target.strip(), prefix.strip()
        if words and target and target not in words:
            raise UserError(f"{place}: data.words has no words for the target {target!r:.40}; add WORDS={target:.40}.")
        target = words.get(target, target)
        if self.round and target:
            try:
                target = f"{round(float(target) / self.round) * self.round:.10g}"
            except (ValueError, OverflowError) as error:
                found = f"the target {target!r:.40} is no number, but data.round={self.round}"
                raise UserError(f"{place}: {found}; correct it, or leave data.round out.") from error
        return Pair(f"{prefix} {source}" if prefix and source else source, target, task=prefix.rstrip(": "))


@dataclass(frozen=True)
class TextToText(TaskFiles, Pairs):
    """Your own texts and the texts that answer them: tables, source<TAB>target, or "src.txt,tgt.txt".

    `data.source` and `data.target` may be templates, which put several columns together. `data.prefix` comes before
    each source. With a column in it, as in "{task}:", one file has several tasks.
    """

    joint: bool = True  # one vocabulary for both sides, learnt from both


@dataclass(frozen=True)
class Mixture:
    """Several tasks of your own, each with its files and its prefix: data.one.train=…, data.two.train=….

    The training examples of all tasks are mixed: a task has as many as its file has, at most `data.most`.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    one: TaskFiles = field(default_factory=TaskFiles)
    two: TaskFiles = field(default_factory=TaskFiles)
    three: TaskFiles = field(default_factory=TaskFiles)
    four: TaskFiles = field(default_factory=TaskFiles)
    five: TaskFiles = field(default_factory=TaskFiles)
    six: TaskFiles = field(default_factory=TaskFiles)
    most: int = 0  # the most training examples of a task, so that a large task does not displace the others; 0: all
    source_tokens: Tokens = "bpe"  # the kind of tokens of the sources
    target_tokens: Tokens = "bpe"  # the kind of tokens of the targets
    vocab: int = 8000  # the largest size of the vocabulary of either side
    joint: bool = True  # one vocabulary for both sides, learnt from both

    def load(self) -> Corpus:
        if self.most < 0:
            raise UserError(f"data.most={self.most}: give 1 or more, or 0 for no limit.")
        named: dict[str, TaskFiles] = {place: getattr(self, place) for place in PLACES}
        given = {place: files for place, files in named.items() if files != TaskFiles()}
        if not given:
            raise UserError('data.one.train is not set; give data.one.train=FILE data.one.prefix="TASK:" and so on.')
        seen: dict[str, str] = {}
        for place, files in given.items():
            prefix = files.prefix.strip()
            if not files.train:
                raise UserError(f"data.{place}.train is not set; name the training file of this task.")
            if len(given) > 1 and prefix in ("", *seen):
                why = f"the same as data.{seen[prefix]}.prefix" if prefix else "not set"
                raise UserError(f"data.{place}.prefix={prefix}: {why}; give each task a prefix of its own.")
            seen[prefix] = place
        corpora = [files.load() for files in given.values()]
        return Corpus(
            [one for corpus in corpora for one in self._limited(corpus.train)],
            _in_turn([corpus.valid for corpus in corpora]),
            _in_turn([corpus.test for corpus in corpora]),
            tuple(warning for corpus in corpora for warning in corpus.warnings),
        )

    def _limited(self, examples: Sequence[Pair]) -> list[Pair]:
        """At most `data.most` of the examples, chosen by hashes of their sources, in their order."""
        if not self.most or len(examples) <= self.most:
            return list(examples)
        order = sorted(range(len(examples)), key=lambda place: hash_text(examples[place].source))
        return [examples[place] for place in sorted(order[: self.most])]


def _in_turn(parts: Sequence[Sequence[Pair]]) -> list[Pair]:
    """The examples of several tasks in turn, so that the first few are of all tasks."""
    return [one for turn in zip_longest(*parts) for one in turn if one is not None]


def verbalisers(stated: Sequence[str], setting: str) -> dict[str, str]:
    """The words of each label, from ("good=1", "bad=0"); a part without = is the label and its words."""
    words: dict[str, str] = {}
    for part in stated:
        text, equals, label = part.rpartition("=")
        text, label = (text if equals else label).strip(), label.strip()
        if not label or not text:
            cure = "give WORDS=LABEL for each, such as negative=0,positive=1"
            raise UserError(f"{setting}: {part!r:.40} is a label without words; {cure}.")
        if label in words:
            raise UserError(f"{setting}: the label {label!r:.40} is there twice; give each label once.")
        words[label] = text
    return words


def _filled(template: str, row: Mapping[str, str]) -> str:
    """The template with the cells of a row; empty if a cell is empty."""
    cells = {f"{{{name}}}": row[f"{{{name}}}"].strip() for name in COLUMN.findall(template)}
    return COLUMN.sub(lambda found: cells[found[0]], template) if all(cells.values()) else ""
