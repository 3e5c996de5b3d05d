"""Parallel corpora that are too large for memory: pairs are read from disk when they are indexed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Pair
from regard.data.files import not_utf8, opened, read_parallel
from regard.errors import UserError

NEWLINE = 0x0A
PIECE = 2**24  # bytes that are searched for line ends at once


class LinesOnDisk:
    """The lines of a plain text file by number; only the start and end of each line are in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise UserError(f"{path}: the file is empty; give one with a line of text per example.")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pieces = ((at, np.frombuffer(self._bytes[at : at + PIECE], np.uint8)) for at in range(0, size, PIECE))
        ends = [at + np.flatnonzero(piece == NEWLINE) for at, piece in pieces]
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
        """The length of each line in bytes."""
        return self._ends - self._starts


class ParallelOnDisk(Sequence[Pair]):
    """The pairs of two plain parallel files; pairs with an empty side are left out."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = LinesOnDisk(source), LinesOnDisk(target)
        if len(self._source) != len(self._target):
            counts = f"{source} has {len(self._source)} lines, {target} has {len(self._target)}"
            raise UserError(f"{counts}; parallel files must correspond line for line.")
        self._kept = np.flatnonzero((self._source.lengths > 0) & (self._target.lengths > 0))

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return [self._pair(number) for number in self._kept[index].tolist()]
        return self._pair(int(self._kept[index]))

    def _pair(self, number: int) -> Pair:
        return Pair(self._source[number], self._target[number])


def open_parallel(source: Path, target: Path) -> Sequence[Pair]:
    """The pairs of two parallel files: left on disk if both are plain, read into memory if one is packed."""
    if {source.suffix, target.suffix} & {".gz", ".xz"}:
        return [example for example in read_parallel(source, target) if example.source and example.target]
    return ParallelOnDisk(source, target)
