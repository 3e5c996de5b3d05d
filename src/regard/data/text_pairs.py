"""The user's own texts of several parts, in files: pairs with a class or a number, and contexts with choices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.data.example import Choice, LabelledPair, RatedPair, Tokens
from regard.data.joined import ChoiceText
from regard.data.labelled import Labelled, LabelledFiles, different_columns, read_number
from regard.data.sources import OwnFiles
from regard.data.tables import ending, first_cells, has_names, read_table
from regard.errors import UserError

CHOICES = "choices"  # the key of the columns of choices, followed by the number of a choice
NUMBERED = re.compile(r"(choice|ending|option|answer)[ _]?([0-9]+|[a-h])", re.IGNORECASE)  # the usual names of choices


@dataclass(frozen=True)
class DelimitedTexts(Labelled):
    """Your own texts with a class each, between a start and an end token (GPT): a table, or label<TAB>text."""

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    tokens: Tokens = "bpe"  # the kind of tokens

    @property
    def part_columns(self) -> dict[str, str]:
        """The column of the texts: its key, and its name."""
        return {"text": self.text}

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text: a text of one part."""
        return tuple(parts)

    def example(self, row: Mapping[str, str], where: str) -> LabelledPair:
        return LabelledPair(self.value([row["text"]]), row["label"])


@dataclass(frozen=True)
class TwoTexts(OwnFiles):
    """The files of a user's own pairs of texts."""

    first: str = ""  # the column of the first texts, for a file with a header; if empty, "first" or a usual name of it
    # the column of the second texts, for a file with a header; if empty, "second" or a usual name of it
    second: str = ""
    both_orders: bool = False  # each pair is read in both orders, and the vectors of both are added (GPT)

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the texts: the key of each, and its name."""
        return {"first": self.first, "second": self.second}

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text, given its parts; both orders of them as in Radford et al. 2018, §3.3."""
        return (tuple(parts), tuple(reversed(parts))) if self.both_orders else tuple(parts)


@dataclass(frozen=True)
class LabelledPairs(TwoTexts, LabelledFiles):
    """Your own pairs of texts with a class each: a table, or label<TAB>first<TAB>second."""

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    label: str = ""  # the column of the labels, for a file with a header; if empty, "label" or a usual name of it
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    @property
    def columns(self) -> dict[str, str]:
        return different_columns({"label": self.label, **self.part_columns})

    def example(self, row: Mapping[str, str], where: str) -> LabelledPair:
        return LabelledPair(self.value((row["first"], row["second"])), row["label"])


@dataclass(frozen=True)
class RatedPairs(TwoTexts):
    """Your own pairs of texts with a number each, such as their similarity: a table, or number<TAB>first<TAB>second."""

    tasks: ClassVar[tuple[str, ...]] = ("similarity",)

    number: str = ""  # the column of the numbers, for a file with a header; if empty, "number" or a usual name of it
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    @property
    def columns(self) -> dict[str, str]:
        return different_columns({"number": self.number, **self.part_columns})

    def example(self, row: Mapping[str, str], where: str) -> RatedPair:
        number: Any = read_number(row["number"], where)  # None: the example is left out
        return RatedPair(self.value((row["first"], row["second"])), number)


@dataclass(frozen=True)
class Choices(OwnFiles):
    """Your own contexts with choices, of which one is right: a table, or label<TAB>context<TAB>choice<TAB>choice ….

    The label is the number of the right choice, its letter (A, B, …), or its text. All contexts have as many choices.
    """

    tasks: ClassVar[tuple[str, ...]] = ("choice",)

    context: str = ""  # the column of the contexts, for a file with a header; if empty, "context" or a usual name of it
    # the columns of the choices, for a file with a header, such as ending0,ending1; of .jsonl also one column of lists;
    # if empty, those that have such numbered names, or "choices" in .jsonl
    choices: tuple[str, ...] = ()
    # the column of the right choices, for a file with a header; if empty, "label" or a usual name of it
    label: str = ""
    count_from: int = 0  # the number of the first choice, if labels are numbers: 0 or 1
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        if self.count_from not in (0, 1):
            raise UserError(f"data.count_from={self.count_from}: give 0 or 1, the number of the first choice.")

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the context and of the choices: the key of each, and its name."""
        names = self.choices or ("",)
        return {"context": self.context, **{f"{CHOICES} {number}": name for number, name in enumerate(names, 1)}}

    def columns_of(self, path: str) -> dict[str, str]:
        """The columns of a file; in one without a header there are as many choices as its first line has."""
        first = first_cells(path)
        columns = with_choices(different_columns({"label": self.label, **self.part_columns}), first)
        if self.choices or ending(path) == ".jsonl" or f"{CHOICES} 2" in columns:
            return columns
        if has_names(path, columns):
            raise UserError(f"{path}: name the columns of the choices, such as data.choices=choice1,choice2")
        return {**columns, **{f"{CHOICES} {number}": "" for number in range(1, max(len(first) - 1, 3))}}

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text: the context with each of its choices."""
        return ChoiceText.value(parts)

    @property
    def columns(self) -> dict[str, str]:
        return self.columns_of(self.train) if self.train else {}

    def read(self, path: str) -> list[Any]:
        found: list[Any] = []
        for line, row in read_table(path, self.columns_of(path), lists=(CHOICES,)):
            choices = tuple(cell.strip() for key, cell in row.items() if key.startswith(CHOICES))
            if len(choices) < 2 or (found and len(choices) != len(found[0].text)):
                expected = f"and others {len(found[0].text)}" if found else "and 2 are needed"
                raise UserError(f"{path}, line {line}: {len(choices)} choices, {expected}; give all lines as many.")
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


def with_choices(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The columns of a file with these names: if no setting names the choices, its numbered columns are the choices.

    They are in the order of their numbers or letters. Of columns with several words, such as option1 and answer1, none
    is chosen.
    """
    found = [match for name in names if (match := NUMBERED.fullmatch(name))]
    words = {match[1].lower() for match in found}
    if columns.get(f"{CHOICES} 1", "other parts") or len(found) < 2 or len(words) > 1:
        return dict(columns)
    ordered = sorted(found, key=lambda match: (len(match[2]), match[2].lower()))
    return {**columns, **{f"{CHOICES} {number}": match[0] for number, match in enumerate(ordered, 1)}}
