"""Arrays of unequal length, stored end to end in one array.

A corpus of a million sentences as Python lists takes some sixty bytes a token; as one array of 16-bit numbers and one
of offsets it takes little more than two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[Any]
Lengths = NDArray[np.int64]


def id_type(size: int) -> np.dtype[Any]:
    """The smallest type that holds every id below `size`."""
    return np.dtype(np.uint16 if size <= 2**16 else np.uint32)


@dataclass(frozen=True, eq=False)
class Flat:
    """Many arrays in one: item i is ``values[ends[i]:ends[i + 1]]``."""

    values: Values  # (N,), or (N, D) for vectors
    ends: Lengths  # (count + 1,), from 0

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: int) -> Values:
        """Item `index`, as a view."""
        return self.values[self.ends[index] : self.ends[index + 1]]

    @property
    def lengths(self) -> Lengths:
        return np.diff(self.ends)


class FlatBuilder:
    """Collects arrays, some at a time, into a `Flat`.

    One array grows in place: many small ones, joined at the end, would leave gaps in the memory of the process.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._values: Values = np.empty(0, dtype)
        self._lengths: list[Lengths] = [np.zeros(1, np.int64)]
        self._used = 0

    def add(self, items: Sequence[ArrayLike]) -> None:
        arrays = [np.asarray(item, self._values.dtype) for item in items]
        self._lengths.append(np.fromiter(map(len, arrays), np.int64, len(arrays)))
        if arrays:
            added = np.concatenate(arrays)
            if not self._used:
                self._values = np.empty((0, *added.shape[1:]), added.dtype)
            end = self._used + len(added)
            if end > len(self._values):
                self._resize(max(end, len(self._values) * 5 // 4))
            self._values[self._used : end] = added
            self._used = end

    def build(self) -> Flat:
        self._resize(self._used)
        ends = np.concatenate(self._lengths)
        return Flat(self._values, np.cumsum(ends, out=ends))

    def _resize(self, length: int) -> None:
        self._values.resize((length, *self._values.shape[1:]), refcheck=False)


def pad_ids(lists: Sequence[Sequence[int]]) -> tuple[Values, NDArray[np.bool_]]:
    """Lists of ids as rows of one array, as narrow as possible, and which places are not padding."""
    real = real_places(np.fromiter(map(len, lists), np.int64, len(lists)), max(map(len, lists)))
    rows = np.zeros(real.shape, np.int64)
    rows[real] = np.fromiter(chain(*lists), np.int64)
    return rows, real


def real_places(lengths: Lengths, width: int) -> NDArray[np.bool_]:
    """Which places of padded rows are not padding, (B, width)."""
    return np.arange(width) < lengths[:, None]


def digest(*arrays: Values) -> str:
    """The SHA-256 of arrays and their lengths."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{len(array)} ".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
