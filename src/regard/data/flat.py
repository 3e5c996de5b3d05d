"""Arrays of unequal length, stored end to end in one array.

A corpus of a million sentences as Python lists takes some sixty bytes a token; as one array of 16-bit numbers and one
of offsets it takes little more than two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.data.example import LazySequence

Values = NDArray[Any]
Lengths = NDArray[np.int64]


def id_type(size: int) -> np.dtype[Any]:
    """The smallest type that holds every id below `size`."""
    return np.dtype(np.uint16 if size <= 2**16 else np.uint32)


@dataclass(frozen=True, eq=False)
class Flat:
    """Many arrays in one: array k is ``values[ends[k]:ends[k + 1]]``.

    Item i is array i. With `arrays`, item i is array ``arrays[i]``, so that several items can share one array, such as
    the captions of an image.
    """

    values: Values  # (N,), or (N, D) for vectors
    ends: Lengths  # (number of arrays + 1,), from 0
    arrays: Lengths | None = None  # (number of items,)

    def __len__(self) -> int:
        return len(self.ends) - 1 if self.arrays is None else len(self.arrays)

    def __getitem__(self, index: int) -> Values:
        """Item `index`, as a view."""
        array = index if self.arrays is None else self.arrays[index]
        return self.values[self.ends[array] : self.ends[array + 1]]

    @property
    def lengths(self) -> Lengths:
        """The length of each item."""
        return np.diff(self.ends) if self.arrays is None else np.diff(self.ends)[self.arrays]

    def spans(self, items: Lengths) -> tuple[Lengths, Lengths]:
        """Where each of these items starts in `values`, and how long it is."""
        numbers = items if self.arrays is None else self.arrays[items]
        return self.ends[numbers], self.ends[numbers + 1] - self.ends[numbers]


Row = Mapping[str, Values]  # one row of a batch before it is padded: an array for each field
Columns = Mapping[str, Flat]  # an encoded corpus: every example's values, by field


class FlatBuilder:
    """Collects arrays, some at a time, into a `Flat`.

    One array grows in place: many small ones, joined at the end, would leave gaps in the memory of the process. An item
    that is the same object as the item before it is stored once.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._values: Values = np.empty(0, dtype)
        self._lengths: list[Lengths] = [np.zeros(1, np.int64)]
        self._copies: list[Lengths] = [np.zeros(0, np.int64)]  # how many items each array has
        self._used = 0

    def add(self, items: Sequence[ArrayLike]) -> None:
        different = [place for place, item in enumerate(items) if not place or item is not items[place - 1]]
        self._copies.append(np.diff([*different, len(items)]).astype(np.int64))
        arrays = [np.asarray(items[place], self._values.dtype) for place in different]
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

    @property
    def bytes(self) -> int:
        """The size of the arrays so far."""
        return int(self._used * self._values[:1].nbytes)

    def build(self) -> Flat:
        self._resize(self._used)
        ends, copies = np.concatenate(self._lengths), np.concatenate(self._copies)
        arrays = np.repeat(np.arange(len(copies)), copies) if (copies > 1).any() else None
        return Flat(self._values, np.cumsum(ends, out=ends), arrays)

    def _resize(self, length: int) -> None:
        self._values.resize((length, *self._values.shape[1:]), refcheck=False)


class Rows(LazySequence[Row]):
    """The rows of a batch before they are padded.

    Each field of all rows is in one flat array, so that it is padded in one step. `rows[i]` is one row, by field.
    """

    def __init__(self, fields: Mapping[str, tuple[Values, Lengths, Lengths]]) -> None:
        self._fields = fields  # by name: the flat array, and where the part of each row starts and how long it is

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """Rows that are given one by one."""
        if isinstance(rows, Rows):
            return rows
        return cls({name: _joined([row[name] for row in rows]) for name in rows[0]})

    def __len__(self) -> int:
        return len(next(iter(self._fields.values()))[1])

    def item(self, number: int) -> Row:
        return {
            name: values[starts[number] : starts[number] + lengths[number]]
            for name, (values, starts, lengths) in self._fields.items()
        }

    def has(self, name: str) -> bool:
        """Whether the rows have a field of this name."""
        return name in self._fields

    def lengths(self, name: str) -> Lengths:
        """The length of a field in each row, (B,)."""
        return self._fields[name][2]

    def whole(self, name: str) -> bool:
        """Whether the values of a field are whole numbers."""
        return self._fields[name][0].dtype.kind in "iu"

    def flat(self, name: str) -> Values:
        """A field of all rows, end to end without padding."""
        values, starts, lengths = self._fields[name]
        ends = np.cumsum(lengths)
        return values[np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths)]

    def replaced(self, **flat: Values) -> Rows:
        """The same rows with fields that have the lengths of the first field, each given end to end."""
        lengths = next(iter(self._fields.values()))[2]
        starts = np.cumsum(lengths) - lengths
        return Rows({**self._fields, **{name: (values, starts, lengths) for name, values in flat.items()}})

    def with_field(self, name: str, arrays: Sequence[Values]) -> Rows:
        """The same rows with one more field, given as an array for each row."""
        return Rows({**self._fields, name: _joined(arrays)})

    def padded(self, name: str, width: int, fill: float = 0, first: int = 0, last: int = 0) -> Tensor:
        """A field as a tensor (B, width, …), without its `first` and `last` places; `fill` after each row's end.

        Whole numbers become int64 and other numbers float32. Those of an image keep their small type, uint8 (pixels) or
        float16 (features): a batch of them is large, and is converted on the device.
        """
        values, starts, lengths = self._fields[name]
        real = real_places(lengths - first - last, width)
        small = values.dtype in (np.uint8, np.float16)
        kind = values.dtype if small else np.dtype(np.int64 if self.whole(name) else np.float32)
        rows = np.full((len(starts), width, *values.shape[1:]), fill, kind)
        rows[real] = values[(starts[:, None] + np.arange(first, first + width))[real]]
        return torch.from_numpy(rows)

    def real(self, name: str, width: int, last: int = 0) -> Tensor:
        """Which places of the padded field are not padding, (B, width)."""
        return torch.from_numpy(real_places(self._fields[name][2] - last, width))


def _joined(arrays: Sequence[Values]) -> tuple[Values, Lengths, Lengths]:
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return np.concatenate(arrays), np.cumsum(lengths) - lengths, lengths


def pad_ids(lists: Sequence[ArrayLike], least: int = 0) -> tuple[Values, NDArray[np.bool_]]:
    """Lists of ids (T,), or of rows of ids (T, C), in one array, and which places (B, T) are not padding.

    The array is as narrow as possible, but has at least `least` places.
    """
    arrays = [np.asarray(one, np.int64) for one in lists]
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    real = real_places(lengths, max(least, *lengths))
    rows = np.zeros((*real.shape, *arrays[0].shape[1:]), np.int64)
    rows[real] = np.concatenate(arrays)
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
