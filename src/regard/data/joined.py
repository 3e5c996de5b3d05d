"""Texts of several parts that a model reads as one: two sentences, or a context with each of several choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from regard.data.fields import Checks, Field, InputText, StoredField
from regard.data.flat import Columns, Values
from regard.errors import UserError

PADDING = -1  # the segment of a place that is padding


@dataclass(frozen=True, eq=False)
class JoinedText(InputText):
    """Several texts as one input, (T, 2): the id and the segment of each token.

    A value is a tuple of texts. They are joined with the special tokens of the tokenizer (`SpecialTokens.join_input`).
    If they are too long together, the longest is cut first. A value may also have several tuples, such as both orders
    of a pair: C inputs side by side, (T, C, 2). The shorter of them end with padding: id 0, segment PADDING.
    """

    longest: int | None = None  # the most tokens of an input, special tokens included; None: any number
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def value(cls, parts: Sequence[str]) -> Any:
        """The value of the texts that a user gives: two texts, or a context and its choices."""
        return tuple(parts)

    @classmethod
    def texts(cls, value: Any) -> Sequence[str]:
        """The different texts of a value, from which the tokenizer learns."""
        return list(dict.fromkeys(text for parts in inputs_of(value) for text in parts))

    @classmethod
    def fit(cls, values: Iterable[Any], name: str, data: Any) -> Self:
        return super().fit((text for value in values for text in cls.texts(value)), name, data)

    def parts(self, values: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each part of each value, without special tokens."""
        ids = iter(self.tokenizer.encode_batch([text for value in values for text in value]))
        return [[next(ids) for _ in value] for value in values]

    def room_for(self, parts: int) -> int | None:
        """How many ids of so many parts fit into an input, together; None: any number."""
        if self.longest is None:
            return None
        special, _ = self.tokenizer.special_tokens.join_input([[]] * parts)
        return max(self.longest - len(special), 0)

    def join(self, parts: Sequence[list[int]]) -> Values:
        """One input (T, 2) of the ids of its parts, cut if they are too long together."""
        ids = cut_longest(parts, self.room_for(len(parts)))
        return np.array(self.tokenizer.special_tokens.join_input(ids), self.dtype).T.reshape(-1, 2)

    def encode(self, values: Sequence[Any]) -> list[Values]:  # type: ignore[override]
        inputs = iter([self.join(parts) for parts in self.parts([one for value in values for one in inputs_of(value)])])
        return [
            next(inputs) if isinstance(value[0], str) else _side_by_side([next(inputs) for _ in value])
            for value in values
        ]

    def shortened(self, values: Sequence[Any], longest: int) -> list[Values]:
        return replace(self, longest=longest).encode(values)


class ChoiceText(JoinedText):
    """Several inputs of which one is right, (T, C, 2): a value is a tuple with the parts of each of C choices."""

    @classmethod
    def value(cls, parts: Sequence[str]) -> Any:
        context, *choices = parts
        return tuple((context, choice) for choice in choices)

    def encode(self, values: Sequence[Any]) -> list[Values]:  # type: ignore[override]
        counts = sorted({len(value) for value in values})
        if len(counts) > 1:
            raise UserError(f"some examples have {counts[0]} choices and some {counts[-1]}; give all the same number.")
        return super().encode(values)


@runtime_checkable
class JoinsParts(Protocol):
    """The settings of a corpus whose examples have texts of several parts."""

    @property
    def part_columns(self) -> dict[str, str]:
        """The columns of the parts in a file: the key of each, and its name, which may be empty."""

    def value(self, parts: Sequence[str]) -> Any:
        """The value of the field of the text, given its parts: two texts, or a context and its choices."""


@dataclass(frozen=True)
class ChoiceField(StoredField):
    """Which of several choices is right: its number, from 0."""

    choice: str = "number"  # what a value is
    stored: ClassVar[Checks] = {"choice": lambda choice: choice == "number"}
    content = "the choice of a run"
    size: ClassVar[int] = 0  # a model gives each choice a logit, whatever their number
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def fit(cls, values: Iterable[int], name: str, data: Any) -> Self:
        return cls()

    def encode(self, values: Sequence[int]) -> list[list[int]]:
        return [[value] for value in values]


def inputs_of(value: Any) -> Sequence[Sequence[str]]:
    """The inputs of a value of JoinedText: one of several parts, or several of them."""
    return [value] if isinstance(value[0], str) else value


def texts_of_a_row(fields: Mapping[str, Field], columns: Columns) -> int:
    """The number of texts that each example has, such as choices."""
    shapes = [columns[name].values.shape for name, each in fields.items() if isinstance(each, JoinedText)]
    return max((shape[1] for shape in shapes if len(shape) == 3), default=1)


def _side_by_side(inputs: Sequence[Values]) -> Values:
    """Inputs (T, 2) of several lengths in one array (longest T, number of inputs, 2)."""
    found = np.full((max(map(len, inputs)), len(inputs), 2), (0, PADDING), inputs[0].dtype)
    for place, one in enumerate(inputs):
        found[: len(one), place] = one
    return found


def cut_longest(parts: Sequence[list[int]], room: int | None) -> list[list[int]]:
    """The parts without their ends, so that they have at most `room` ids together: the longest is cut first.

    These are the ids that `transformers` keeps with truncation="longest_first".
    """
    if room is None or sum(map(len, parts)) <= room:
        return list(parts)
    kept = dict[int, int]()
    for number in sorted(range(len(parts)), key=lambda number: len(parts[number])):
        share = (room - sum(kept.values())) // (len(parts) - len(kept))
        kept[number] = min(len(parts[number]), share)
    return [part[: kept[number]] for number, part in enumerate(parts)]
