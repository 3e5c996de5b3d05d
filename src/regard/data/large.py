"""Corpora too large for lists: pairs that stay on the disk until they are asked for, and their ids in flat arrays."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import Pair, encode_examples
from regard.data.example import Example
from regard.data.files import not_utf8, opened, read_parallel
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError

Compact = NDArray[np.unsignedinteger[Any]]

AT_ONCE = 20_000  # examples that are text, or lists of Python numbers, at one time
NEWLINE = 0x0A


def compact(ids: Sequence[int] | NDArray[Any], vocab: int) -> Compact:
    """Ids below `vocab` in as few bytes as will hold them: half or a quarter of what a batch takes."""
    return np.asarray(ids, dtype=np.uint16 if vocab <= 2**16 else np.uint32)


class LinesOnDisk:
    """The lines of a plain text file by their number: what is held in memory is where each begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise UserError(f"{path}: the file is empty; give one with a line of text per example.")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        ends = [found + at for at, part in self._parts() for found in [np.flatnonzero(part == NEWLINE)]]
        last = [np.array([size])] if self._bytes[-1] != NEWLINE else []
        self._ends = np.concatenate([*ends, *last])
        self._starts = np.concatenate([[0], self._ends[:-1] + 1])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        data = self._bytes[self._starts[number] : self._ends[number]]
        try:
            return data.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, number + 1, data[error.start]) from error

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The bytes of each line."""
        return self._ends - self._starts

    def _parts(self, size: int = 2**24) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for at in range(0, len(self._bytes), size):
            yield at, np.frombuffer(self._bytes[at : at + size], np.uint8)


class ParallelOnDisk(Sequence[Example]):
    """The pairs of two plain files that correspond line for line; those with an empty side are left out."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = LinesOnDisk(source), LinesOnDisk(target)
        if len(self._source) != len(self._target):
            counts = f"{source} has {len(self._source)} lines, {target} has {len(self._target)}"
            raise UserError(f"{counts}; parallel files must correspond line for line.")
        self._kept = np.flatnonzero((self._source.lengths > 0) & (self._target.lengths > 0))

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._pair(number) for number in self._kept[index].tolist()]
        return self._pair(int(self._kept[index]))

    def _pair(self, number: int) -> Example:
        return Example(self._source[number], self._target[number])


def open_parallel(source: Path, target: Path) -> Sequence[Example]:
    """The pairs of two files: left on the disk where both are plain, read where one is packed."""
    if {source.suffix, target.suffix} & {".gz", ".xz"}:
        return [example for example in read_parallel(source, target) if example.source and example.target]
    return ParallelOnDisk(source, target)


class Encoded(Sequence[Pair]):
    """The ids of many examples, end to end in one small array for each side.

    Neither all texts nor all lists of ids are ever in memory together: examples are read and encoded some at a time.
    """

    def __init__(self, examples: Sequence[Example], source: Tokenizer | None, target: Tokenizer) -> None:
        vocab = max(target.size, source.size if source else 0)
        flat: tuple[list[Compact], list[Compact]] = ([], [])
        lengths: tuple[list[int], list[int]] = ([], [])
        for at in range(0, len(examples), AT_ONCE):
            pairs = encode_examples(examples[at : at + AT_ONCE], source, target)
            for side, ids, counts in zip(zip(*pairs), flat, lengths):
                counts += map(len, side)
                ids.append(compact(np.concatenate([np.asarray(one, dtype=np.int64) for one in side]), vocab))
        self._flat = [np.concatenate(ids) for ids in flat]
        self._ends = [np.concatenate([[0], np.cumsum(counts)]) for counts in lengths]

    def __len__(self) -> int:
        return len(self._ends[0]) - 1

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        """Arrays that behave as lists of ids do: views, so that asking for all of them costs little."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = index % len(self)
        return cast(Pair, tuple(flat[ends[at] : ends[at + 1]] for flat, ends in zip(self._flat, self._ends)))

    @property
    def digest(self) -> str:
        """What tells these ids from any others."""
        return digest(*self._ends, *self._flat)


def digest(*arrays: NDArray[Any]) -> str:
    """The SHA-256 of arrays and their sizes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{len(array)} ".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
