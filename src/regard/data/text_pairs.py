"""The user's own texts of several parts, in files: pairs with a class or a number, and contexts with choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from regard.data.example import Choice, Corpus, LabelledPair, RatedPair, Tokens
from regard.data.joined import ChoiceText
from regard.data.labelled import check_labels, read_number
from regard.data.sources import load_files
from regard.data.tables import ending, has_names, read_table, tab_rows
from regard.errors import UserError

CHOICES = "choices"  # the key of the columns of choices, followed by the number of a choice


@dataclass(frozen=True)
class DelimitedTexts:
    """Your own texts with a class each, between a start and an end token (GPT): a table, or label<TAB>text."""

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    train: str = ""  # the file of the training texts
    valid: str = ""  # the file of the validation texts; if empty, 2 % of the training texts are held out
    test: str = ""  # the file of the test texts; may be empty
    text: str = ""  # the column of the texts, for a file with a header; if empty, "text" in .csv and .jsonl
    label: str = ""  # the column of the labels, for a file with a header; if empty, "label" in .csv and .jsonl
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the most tokens

    @property
    def part_columns(self) -> dict[str, str]:
        """The column of the texts: its key, and its name."""
        return {"text": self.text}

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the file: the key of each, and its name."""
        return _columns({"label": self.label, **self.part_columns})

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text: a text of one part."""
        return tuple(parts)

    def load(self) -> Corpus:
        return _load_labelled(self)


@dataclass(frozen=True)
class LabelledPairs:
    """Your own pairs of texts with a class each: a table, or label<TAB>first<TAB>second."""

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    train: str = ""  # the file of the training pairs
    valid: str = ""  # the file of the validation pairs; if empty, 2 % of the training pairs are held out
    test: str = ""  # the file of the test pairs; may be empty
    first: str = ""  # the column of the first texts, for a file with a header; if empty, "first" in .csv and .jsonl
    second: str = ""  # the column of the second texts, for a file with a header; if empty, "second" in .csv and .jsonl
    label: str = ""  # the column of the labels, for a file with a header; if empty, "label" in .csv and .jsonl
    both_orders: bool = False  # each pair is read in both orders, and the vectors of both are added (GPT)
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the most tokens

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the texts: the key of each, and its name."""
        return {"first": self.first, "second": self.second}

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the file: the key of each, and its name."""
        return _columns({"label": self.label, **self.part_columns})

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text, given its parts."""
        return _orders(parts) if self.both_orders else tuple(parts)

    def load(self) -> Corpus:
        return _load_labelled(self)


@dataclass(frozen=True)
class RatedPairs:
    """Your own pairs of texts with a number each, such as their similarity: a table, or number<TAB>first<TAB>second."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity",)

    train: str = ""  # the file of the training pairs
    valid: str = ""  # the file of the validation pairs; if empty, 2 % of the training pairs are held out
    test: str = ""  # the file of the test pairs; may be empty
    first: str = ""  # the column of the first texts, for a file with a header; if empty, "first" in .csv and .jsonl
    second: str = ""  # the column of the second texts, for a file with a header; if empty, "second" in .csv and .jsonl
    number: str = ""  # the column of the numbers, for a file with a header; if empty, "number" in .csv and .jsonl
    both_orders: bool = False  # each pair is read in both orders, and the vectors of both are added (GPT)
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the most tokens

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the texts: the key of each, and its name."""
        return {"first": self.first, "second": self.second}

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the file: the key of each, and its name."""
        return _columns({"number": self.number, **self.part_columns})

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text, given its parts."""
        return _orders(parts) if self.both_orders else tuple(parts)

    def load(self) -> Corpus:
        columns = self.columns

        def read(path: str) -> list[Any]:
            found = []
            for line, row in read_table(path, columns):
                number: Any = read_number(path, line, row["number"])  # None: left out below
                found.append(RatedPair(self.value((row["first"].strip(), row["second"].strip())), number))
            return found

        return load_files(self.train, self.valid, self.test, read, columns)


@dataclass(frozen=True)
class Choices:
    """Your own contexts with choices, of which one is right: a table, or label<TAB>context<TAB>choice<TAB>choice ….

    The label is the number of the right choice, its letter (A, B, …), or its text. All contexts have as many choices.
    """

    tasks: ClassVar[tuple[str, ...]] = ("choice",)

    train: str = ""  # the file of the training examples
    valid: str = ""  # the file of the validation examples; if empty, 2 % of the training examples are held out
    test: str = ""  # the file of the test examples; may be empty
    context: str = ""  # the column of the contexts, for a file with a header; if empty, "context" in .csv and .jsonl
    # the columns of the choices, for a file with a header, such as ending0,ending1; of .jsonl also one column of lists
    choices: tuple[str, ...] = ()
    label: str = ""  # the column of the right choices, for a file with a header; if empty, "label" in .csv and .jsonl
    count_from: int = 0  # the number of the first choice, if labels are numbers: 0 or 1
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the most tokens

    def __post_init__(self) -> None:
        if self.count_from not in (0, 1):
            raise UserError(f"data.count_from={self.count_from}: give 0 or 1, the number of the first choice.")

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the context and of the choices: the key of each, and its name."""
        names = self.choices or ("",)
        return {"context": self.context, **{f"{CHOICES} {number}": name for number, name in enumerate(names, 1)}}

    def columns_of(self, path: str) -> dict[str, str]:
        """The columns of a file; without names there are as many choices as its first line has."""
        columns = _columns({"label": self.label, **self.part_columns})
        if self.choices:
            return columns
        if ending(path) == ".jsonl":
            return {**columns, f"{CHOICES} 1": CHOICES}  # a list
        if has_names(path, columns):
            raise UserError(f"{path}: name the columns of the choices, such as data.choices=choice1,choice2")
        (_, cells), *_ = [*islice(tab_rows(path), 1), (1, [])]
        return {**columns, **{f"{CHOICES} {number}": "" for number in range(1, max(len(cells) - 1, 3))}}

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text: the context with each of its choices."""
        return ChoiceText.value(parts)

    def load(self) -> Corpus:
        return load_files(
            self.train, self.valid, self.test, self._read, self.columns_of(self.train) if self.train else {}
        )

    def _read(self, path: str) -> list[Any]:
        found: list[Any] = []
        for line, row in read_table(path, self.columns_of(path), lists=(CHOICES,)):
            choices = tuple(cell.strip() for key, cell in row.items() if key.startswith(CHOICES))
            if len(choices) < 2 or (found and len(choices) != len(found[0].text)):
                expected = f"and others {len(found[0].text)}" if found else "and 2 are needed"
                raise UserError(f"{path}, line {line}: {len(choices)} choices, {expected}; give all as many.")
            label = row["label"].strip()
            found.append(
                Choice(
                    self.value((row["context"].strip(), *choices)),
                    self._number(label, choices, f"{path}, line {line}") if label else None,  # type: ignore[arg-type]
                )
            )
        return found

    def _number(self, label: str, choices: Sequence[str], where: str) -> int:
        """The place of the right choice, from 0."""
        last = self.count_from + len(choices) - 1
        if label.isdecimal() and self.count_from <= int(label) <= last:
            return int(label) - self.count_from
        letters = [chr(ord("A") + place) for place in range(min(len(choices), 26))]
        for names in (list(choices), letters):
            if names.count(label) == 1:
                return names.index(label)
        other = ", or set data.count_from=1" if label == str(last + 1) and not self.count_from else ""
        cure = f"give a number from {self.count_from} to {last}, a letter or the text of the choice{other}"
        raise UserError(f"{where}: the label {label!r:.40} is none of the {len(choices)} choices; {cure}.")


def _load_labelled(data: DelimitedTexts | LabelledPairs) -> Corpus:
    """The corpus of the files of texts with classes; a class that is not in the training file is refused."""
    columns = data.columns

    def read(path: str) -> list[Any]:
        rows = read_table(path, columns)
        return [
            LabelledPair(data.value([row[key].strip() for key in data.part_columns]), row["label"].strip())
            for _, row in rows
        ]

    corpus = load_files(data.train, data.valid, data.test, read, columns)
    for path in (data.valid, data.test):
        check_labels(path, columns, {example.label for example in corpus.train})
    return corpus


def _orders(parts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Both orders of a pair (Radford et al. 2018, §3.3)."""
    return tuple(parts), tuple(reversed(parts))


def _columns(columns: dict[str, str]) -> dict[str, str]:
    """The columns, if no two of them have the same name."""
    names = [name for name in columns.values() if name]
    for key, name in columns.items():
        if names.count(name) > 1:
            raise UserError(f"data.{key.partition(' ')[0]}={name}: two columns have this name; give each its own.")
    return columns
