"""The user's own texts with a class, several labels or a number each, in files."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from regard.config import Table
from regard.data.example import Asked, Corpus, LabelledText, MultiLabelledText, RatedText, Text, Tokens
from regard.data.sources import OwnFiles
from regard.data.tables import read_table
from regard.errors import UserError

LARGEST = 3.4028234663852886e38  # of float32, in which a model computes
SEPARATOR = "|"  # between the labels of a text


@dataclass(frozen=True)
class LabelledFiles(OwnFiles):
    """The files of a user's own examples with classes. A class that no training example has is refused."""

    def known(self, corpus: Corpus) -> set[str]:
        """The classes of the training examples."""
        return {example.label for example in corpus.train}

    def load(self) -> Corpus:
        corpus = super().load()
        for path in (self.valid, self.test):
            check_labels(path, self.columns, self.known(corpus))
        return corpus


@dataclass(frozen=True)
class Labelled(LabelledFiles):
    """Your own texts with a class each: a table of texts and labels, or label<TAB>text."""

    tasks: ClassVar[tuple[str, ...]] = ("classify",)

    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" or a usual name of it
    label: str = ""  # the column of the labels, for a file with a header; if empty, "label" or a usual name of it
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    @property
    def columns(self) -> dict[str, str]:
        return different_columns({"label": self.label, "text": self.text})

    def example(self, row: Mapping[str, str], where: str) -> Any:
        return LabelledText(row["text"], row["label"])

    def load(self) -> Corpus:
        corpus = super().load()
        if joined := next((example.label for example in corpus.train if SEPARATOR in example.label), ""):
            found = f"the label {joined!r:.40} has a {SEPARATOR} and is one class"
            cure = "for texts with several labels, use: regard train multilabel data.labels=COLUMN"
            return replace(corpus, warnings=(*corpus.warnings, f"data.train={self.train}: {found}; {cure}"))
        return corpus


@dataclass(frozen=True)
class MultiLabelled(LabelledFiles):
    """Your own texts with any number of labels each: a table of texts and labels, or labels<TAB>text.

    A cell of labels separates them by |, as in "sport|politics". An empty cell has none.
    """

    tasks: ClassVar[tuple[str, ...]] = ("labels",)

    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" or a usual name of it
    # the column of the labels, as in sport|politics, for a file with a header; if empty, "labels" or a usual name of it
    labels: str = ""
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    @property
    def columns(self) -> dict[str, str]:
        return different_columns({"labels": self.labels, "text": self.text})

    def example(self, row: Mapping[str, str], where: str) -> MultiLabelledText:
        return MultiLabelledText(row["text"], split_labels(row["labels"]))

    def known(self, corpus: Corpus) -> set[str]:
        return {label for one in corpus.train for label in one.labels}


@dataclass(frozen=True)
class Rated(OwnFiles):
    """Your own texts with a number each, such as a rating: a table of texts and numbers, or number<TAB>text."""

    tasks: ClassVar[tuple[str, ...]] = ("rate",)

    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" or a usual name of it
    number: str = ""  # the column of the numbers, for a file with a header; if empty, "number" or a usual name of it
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    @property
    def columns(self) -> dict[str, str]:
        return different_columns({"number": self.number, "text": self.text})

    def example(self, row: Mapping[str, str], where: str) -> RatedText:
        return RatedText(row["text"], read_number(row["number"], where))  # type: ignore[arg-type]  # None: left out


@dataclass(frozen=True)
class TextsOf:
    """The texts of other data without their classes, for a language model: `data.of.train=FILE`."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "two-way language", "masked")

    of: Annotated[Any, Table("data")] = field(default_factory=Labelled)  # the data that has the texts
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    def load(self) -> Corpus:
        corpus = self.of.load()
        if not all(hasattr(one, "text") for one in corpus.train[:1]):
            found = f"the examples of {type(self.of).__name__} have no text that is read alone"
            raise UserError(f"data.of: {found}; give data of texts, such as data.of=labelled.")
        parts = (corpus.train, corpus.valid, corpus.test)
        train, valid, test = ([Text(text) for one in part for text in _texts(one.text)] for part in parts)
        return Corpus(train, valid, test)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value of a column: a text that is not empty, or the different parts of one."""
    if isinstance(value, str):
        yield from [value] if value else []
    else:
        parts = value[:2] if isinstance(value, Asked) else value  # a question and its passage
        yield from dict.fromkeys(text for part in parts for text in _texts(part))


def different_columns(columns: dict[str, str]) -> dict[str, str]:
    """Return the columns, if no two of them have the same name."""
    names = [name for name in columns.values() if name]
    for key, name in columns.items():
        if names.count(name) > 1:
            raise UserError(f"data.{key.partition(' ')[0]}={name}: two columns have this name; give each its own.")
    return columns


def read_number(cell: str, where: str) -> float | None:
    """Return the number in a cell; None if the cell is empty."""
    try:
        number = float(cell) if cell else None
    except ValueError:
        number = math.nan
    if number is not None and not math.isfinite(number):
        cure = "write a number such as 3.5 or -1e3, or name its column with data.number=COLUMN"
        raise UserError(f"{where}: {cell[:40]!r} is not a finite number; {cure}.")
    if number is not None and abs(number) > LARGEST:
        raise UserError(f"{where}: {cell[:40]!r} is beyond {LARGEST:.1e}, the largest number of 32 bits; scale them.")
    return number


def split_labels(cell: str) -> tuple[str, ...]:
    """Return the labels of a cell such as "sport|politics", without repetitions."""
    return tuple(dict.fromkeys(label.strip() for label in cell.split(SEPARATOR) if label.strip()))


def check_labels(path: str, columns: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse the first label of a file that is not known, with its line. The first of its columns has the labels."""
    target = next(iter(columns))
    for line, row in read_table(path, columns) if path else ():
        cell = row[target].strip()
        for label in split_labels(cell) if target == "labels" else (cell,):
            if label and all(text.strip() for text in row.values()) and label not in known:
                listed = ", ".join(f"{name:.20}" for name in sorted(known)[:8]) + (", …" if len(known) > 8 else "")
                found = f"the label {label!r:.60} is not a class of the training examples ({listed})"
                raise UserError(f"{path}, line {line}: {found}; correct it, or add training examples that have it.")
