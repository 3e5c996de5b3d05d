"""Pairs of texts that belong together, for models of text vectors: the user's files, and the fields of a pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np

from regard.data.example import Corpus, RelatedTexts, Tokens
from regard.data.fields import Checks, InputText, StoredField
from regard.data.flat import Values
from regard.data.joined import PADDING
from regard.data.sources import OwnFiles, hold_out
from regard.data.tables import first_cells, read_table
from regard.errors import UserError


@dataclass(frozen=True, eq=False)
class SeparateTexts(InputText):
    """Several texts that a model reads one by one, (T, C): the ids of each of C texts, then PADDING.

    A value is a tuple of texts. One tokenizer serves all of them. A text that is empty has no ids at all.
    """

    longest: int | None = None  # the most tokens of a text, special tokens included; longer texts are cut
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    @classmethod
    def fit(cls, values: Iterable[Sequence[str]], name: str, data: Any) -> Self:
        return super().fit((text for value in values for text in value), name, data)

    def within(self, longest: int | None) -> Self:
        """The same field, whose texts have at most so many tokens."""
        limits = [limit for limit in (longest, self.longest) if limit is not None]
        return replace(self, longest=min(limits, default=None))

    def shortened(self, values: Sequence[Sequence[str]], longest: int) -> list[Values]:
        return self.within(longest).encode(values)

    def encode(self, values: Sequence[Sequence[str]]) -> list[Values]:  # type: ignore[override]
        texts = [text.strip() for value in values for text in value]
        room = None if self.longest is None else max(self.room(self.longest), 0)
        ids = [self.wrap(one[:room]) if text else [] for text, one in zip(texts, self.tokenizer.encode_batch(texts))]
        found, start = [], 0
        for value in values:
            group = ids[start : start + len(value)]
            start += len(value)
            array = np.full((max(map(len, group)), len(group)), PADDING, self.dtype)
            for place, one in enumerate(group):
                array[: len(one), place] = one
            found.append(array)
        return found


def _is_number_or_none(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))


@dataclass(frozen=True)
class SimilarityField(StoredField):
    """How similar the texts of a pair are, (2,): a number or NaN, and 1 if the texts belong together, else 0."""

    least: float | None = None  # the number from which texts belong together; None: there are no numbers
    stored: ClassVar[Checks] = {"least": _is_number_or_none}
    content = "the similarities of a run"
    size: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def fit(cls, values: Iterable[float | None], name: str, data: Any) -> Self:
        return cls(data.least)

    def encode(self, values: Sequence[float | None]) -> list[Values]:
        least = -math.inf if self.least is None else self.least
        return [
            np.array([math.nan, 1.0] if value is None else [value, float(value >= least)], np.float32)
            for value in values
        ]


@dataclass(frozen=True)
class RelatedPairs(OwnFiles):
    """Your own pairs of texts that belong together: a table with two columns of texts, or first<TAB>second.

    With a column of numbers, the training pairs are those with a number of `least` or more.
    """

    tasks: ClassVar[tuple[str, ...]] = ("embed",)

    first: str = ""  # the column of the first texts, for a file with a header; if empty, "first" or a usual name of it
    # the column of the second texts, for a file with a header; if empty, "second" or a usual name of it
    second: str = ""
    number: str = ""  # the column that states how similar the texts are; it may be in the validation file alone
    least: float | None = None  # the number from which the texts of a pair belong together, such as 4 of 5
    negative: str = ""  # a column of texts that do not belong to the first text (hard negatives); cells may be empty
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 8000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        if self.least is not None and not math.isfinite(self.least):
            raise UserError(f"data.least={self.least}: give a number, such as 4.")

    def load(self) -> Corpus:
        if bool(self.number) != (self.least is not None):
            given = f"data.number={self.number}" if self.number else f"data.least={self.least:g}"
            raise UserError(
                f"{given}: give data.number=COLUMN and data.least=N together: pairs with a number of N or more belong "
                "together."
            )
        corpus = super().load()
        train, valid = list(corpus.train), list(corpus.valid)
        while not self.valid and not self._has_targets(valid) and self._has_targets(train):  # one pair has no negatives
            kept, more = hold_out(train)
            if not kept:
                break
            train, valid = kept, [*valid, *more]
        train = [one for one in train if self._belongs(one)]
        for name, part in (("train", train), ("valid", valid), *([("test", corpus.test)] if self.test else [])):
            given = f"data.{name}={getattr(self, name) or self.train}"
            if not any(map(self._belongs, part)):
                raise UserError(f"{given}: no pair has a number of data.least={self.least:g} or more; lower it.")
            if not self._has_targets(part):
                found = "one pair" if len(part) == 1 else f"{len(part):,} pairs that all share a text"
                cure = "give pairs with different texts" + ("" if self.valid else ", and data.valid=FILE")
                raise UserError(f"{given}: {found}, but other pairs are the negatives of a pair; {cure}.")
        return replace(corpus, train=train, valid=valid)

    def _belongs(self, pair: RelatedTexts) -> bool:
        """Whether the texts of a pair belong together."""
        return self.least is None or pair.number is None or pair.number >= self.least

    def _has_targets(self, pairs: Sequence[RelatedTexts]) -> bool:
        """Whether a pair that belongs together has a negative. Pairs that all share texts have one text in common, or
        are three pairs of three texts."""
        if not any(map(self._belongs, pairs)):
            return False
        different = list({frozenset((one.first, one.second)) for one in pairs})
        disjoint = any(one.isdisjoint(other) for one, other in combinations(different[:4], 2))
        common = len(different) < 4 or frozenset.intersection(*different)
        return disjoint or not common or any(one.negative for one in pairs)

    @property
    def columns(self) -> dict[str, str]:
        return {"first": self.first, "second": self.second}

    def read(self, path: str) -> list[Any]:
        """The pairs of a file. Only the validation file must have numbers, and only the training file negatives."""
        columns = self.columns
        where = {"number": self.valid or self.train, "negative": self.train}
        for key, name in (("number", self.number), ("negative", self.negative)):
            if name and (path == where[key] or name in first_cells(path)):
                columns[key] = name
        found = []
        for line, row in read_table(path, columns):
            cell, number = row.get("number", "").strip(), None
            try:
                number = float(cell) if "number" in columns else None
            except ValueError:
                number = math.nan
            if number is not None and not math.isfinite(number):
                raise UserError(f"{path}, line {line}: {cell[:40]!r} is not a finite number; write one such as 3.5.")
            texts = (row["first"].strip(), row["second"].strip())
            found.append(RelatedTexts(*texts, number, row["negative"].strip() if "negative" in columns else None))
        return found
