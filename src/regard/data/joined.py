"""Texts of several parts that a model reads as one: two sentences, or a context with each of several choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from regard.data.fields import InputText
from regard.data.flat import Values
from regard.errors import UserError

PADDING = -1  # the segment of a place that is padding


@dataclass(frozen=True, eq=False)
class JoinedText(InputText):
    """Several texts as one input, (T, 2): the id and the segment of each token.

    A value is a tuple of texts. They are joined with the special tokens of the tokenizer (`SpecialTokens.join_input`).
    If they are too long together, the longest is cut first.
    """

    longest: int | None = None  # the most tokens of an input, special tokens included; None: any number
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def texts(cls, value: Any) -> Sequence[str]:
        """The texts of a value, from which the tokenizer learns."""
        texts: Sequence[str] = value
        return texts

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
        return [self.join(parts) for parts in self.parts(values)]


class ChoiceText(JoinedText):
    """Several inputs of which one is right, (T, C, 2): the id and the segment of each token of each of C choices.

    A value is a tuple with the parts of each choice. Choices that are shorter than the longest end with padding, whose
    id is 0 and whose segment is PADDING.
    """

    @classmethod
    def texts(cls, value: Any) -> Sequence[str]:
        return list(dict.fromkeys(text for parts in value for text in parts))  # a context is the same in all

    def encode(self, values: Sequence[Any]) -> list[Values]:  # type: ignore[override]
        counts = sorted({len(value) for value in values})
        if len(counts) > 1:
            raise UserError(f"some examples have {counts[0]} choices and some {counts[-1]}; give all of them as many.")
        inputs = iter(super().encode([parts for value in values for parts in value]))
        return [_side_by_side([next(inputs) for _ in value]) for value in values]


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
