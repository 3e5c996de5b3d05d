"""Sentences with a tag for each word, in columns: one word on a line, a blank line between sentences (CoNLL)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from regard.data.example import Corpus, TaggedText, Tokens
from regard.data.files import iterate_lines
from regard.data.sources import OwnFiles, load_files
from regard.entities import (
    LETTERS,
    OUTSIDE,
    Scheme,
    detect_scheme,
    entities,
    may_follow,
    names_entities,
    split_tag,
    tags_of,
)
from regard.errors import UserError

DOCUMENT = "-DOCSTART-"  # the word of a line between two documents


class Sentence(NamedTuple):
    """The words and tags of a sentence, and the number of the line of each word."""

    words: list[str]
    tags: list[str]
    lines: list[int]


@dataclass(frozen=True)
class Conll(OwnFiles):
    """Your own sentences with a tag for each word, in columns as in CoNLL-2003.

    A line has a word, and in other columns its tags; spaces or tabs separate the columns. Other white space inside a
    word, such as a no-break space, becomes _. A blank line is between two sentences. The tags of entities may be in
    IOB1, IOB2 or BIOES; the model learns those of data.scheme. Other tags, such as parts of speech, stay as they are;
    files that mix both are refused. A type of entities that is only in the validation or test file cannot be predicted:
    its entities count as not found.
    """

    tasks: ClassVar[tuple[str, ...]] = ("tag",)

    column: int | Literal["last"] = "last"  # the column of the tags, from 1, or the last one; words are in the first
    scheme: Scheme = "bioes"  # the scheme of the tags that the model learns: bioes or iob2
    tokens: Tokens = "word-lower"  # the kind of tokens: word-lower or word; bpe and byte-bpe not for model=bilstm
    vocab: int = 50_000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        if self.column != "last" and self.column < 2:
            raise UserError(f"data.column={self.column}: the first column has the words; give 2 or more, or last.")
        if self.tokens == "char":
            raise UserError("data.tokens=char: each word has a tag; set data.tokens=word, word-lower, bpe or byte-bpe.")

    def load(self) -> Corpus:
        paths = dict.fromkeys(path for path in (self.train, self.valid, self.test) if path)
        files = {path: list(read_conll(path, self.column)) for path in paths}
        named = _names_entities(files)
        warnings = [one for path, sentences in files.items() for one in _illegal(path, sentences)] if named else []

        def read(path: str) -> list[TaggedText]:
            return [
                TaggedText(
                    " ".join(one.words),
                    tuple(tags_of(entities(one.tags), len(one.tags), self.scheme) if named else one.tags),
                )
                for one in files[path]
            ]

        corpus = load_files(self.train, self.valid, self.test, read, {})
        known = {tag for one in corpus.train for tag in one.tags}
        kinds = {split_tag(tag)[1] for tag in known}
        for name, part in (("valid", corpus.valid), ("test", corpus.test)):
            tags = Counter(tag for one in part for tag in one.tags)
            unseen = {
                tag: count
                for tag, count in tags.items()
                if (split_tag(tag)[1] not in kinds if named else tag not in known)
            }
            if unseen:
                listed = ", ".join(sorted(unseen)[:8])
                found = f"{sum(unseen.values())} words have tags that no training sentence has ({listed})"
                warnings.append(f"data.{name}: {found}; the model cannot predict them, and they count as mistakes.")
        return replace(corpus, warnings=(*corpus.warnings, *warnings))


def read_conll(path: str | Path, column: int | Literal["last"] = "last") -> Iterator[Sentence]:
    """Yield the sentences of a file of columns (.gz and .xz too). Lines of -DOCSTART- are skipped.

    All lines must have as many columns as the first one.
    """
    sentence, columns = Sentence([], [], []), 0
    for number, line in enumerate(iterate_lines(path), 1):
        cells = columns_of(line)
        if not cells or cells[0] == DOCUMENT:
            if sentence.words:
                yield sentence
            sentence = Sentence([], [], [])
            continue
        columns = columns or len(cells)
        if len(cells) != columns or columns < 2:
            expected = f"{columns} columns as on the first line" if columns > 1 else "a word and its tag"
            texts = "\t" in line and any(" " in cell.strip() for cell in line.split("\t"))
            found = "a column has several words" if texts else f"{len(cells)} columns"
            form = "each word is on a line of its own, with its tag, and a blank line is between sentences"
            raise UserError(f"{path}, line {number}: {found}, {line[:40]!r}; expected {expected}: {form}.")
        if column != "last" and column > columns:
            raise UserError(f"data.column={column}: {path} has {columns} columns; give a number up to {columns}.")
        tag = cells[-1 if column == "last" else column - 1]
        if tag.endswith("-") and tag[:-1] in LETTERS:
            raise UserError(
                f'{path}, line {number}: "{tag}" has no type after the hyphen; write a tag such as {tag}PER.'
            )
        sentence.words.append(cells[0])
        sentence.tags.append(tag)
        sentence.lines.append(number)
    if sentence.words:
        yield sentence


def columns_of(line: str) -> list[str]:
    """The columns of a line, between spaces or tabs. Other white space in them, such as a no-break space, becomes _."""
    return ["_".join(cell.split()) or "_" for cell in re.split("[ \t]+", line) if cell] if line.strip() else []


def _names_entities(files: Mapping[str, Sequence[Sentence]]) -> bool:
    """Whether the tags of all files together are those of a scheme; if most of them are, refuse any other tag."""
    counts = Counter(tag for sentences in files.values() for one in sentences for tag in one.tags)
    del counts[OUTSIDE]
    strange = {tag: count for tag, count in counts.items() if not names_entities([tag])}
    words = sum(strange.values())
    if 2 * len(strange) >= len(counts) and 2 * words >= counts.total():
        return False
    for path, sentences in files.items():
        for one in sentences:
            for tag, line in zip(one.tags, one.lines):
                if tag in strange:
                    legal = min(counts.keys() - strange.keys())
                    found = f'"{tag}" is no tag of a scheme, as "{legal}" is; {words:,} words have no such tag'
                    cure = f"write {OUTSIDE}, or a tag such as B-PER, or name another column with data.column=N"
                    raise UserError(f"{path}, line {line}: {found}; {cure}.")
    return bool(counts)


def _illegal(path: str, sentences: Sequence[Sentence]) -> list[str]:
    """A warning if a tag of a file is not legal beside its neighbours, such as I-PER after O in IOB2.

    The warning names the first of these tags.

    A tag that should continue an entity and cannot begins one. A tag that the next one should continue ends its entity.
    """
    scheme, found = detect_scheme(one.tags for one in sentences), list[tuple[int, str, str]]()
    for _, tags, lines in sentences:
        for place, (before, tag) in enumerate(pairwise([None, *tags, None])):
            if may_follow(before, tag, scheme):
                continue
            if scheme == "bioes" and (tag is None or split_tag(tag)[0] not in ("I", "E")):
                found.append((lines[place - 1], f'"{before}" is not continued', "the last word of its entity"))
            else:
                found.append((lines[place], f'"{tag}" cannot be there', "the first word of an entity"))
    if not found:
        return []
    line, what, role = found[0]
    others = f", and {len(found) - 1} other tags are not legal either" if found[1:] else ""
    return [f"{path}, line {line}: {what} in {scheme.upper()}{others}; it is read as {role}."]
