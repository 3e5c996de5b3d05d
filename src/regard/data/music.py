"""Polyphonic music (Boulanger-Lewandowski et al. 2012): the keys of a piano that sound at each step.

The files are MATLAB 5 files. Their format is simple, so they are read here and SciPy is not needed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.download import CURE
from regard.data.example import Corpus, Music
from regard.data.files import MOST_UNPACKED, find_data, opened
from regard.errors import UserError

KEYS = 88
FILES = {"jsb": "JSB_Chorales", "nottingham": "Nottingham", "muse": "MuseData", "piano": "Piano_midi"}
PARTS = ("traindata", "validdata", "testdata")  # the names of the cell arrays of a file
# MATLAB 5 files: the codes of elements, and of the types of numbers.
MATRIX, PACKED, CELLS = 14, 15, 1
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
MOST_RATIO = 100  # an unpacked file may have MOST_UNPACKED bytes, or so many times its packed size


@dataclass(frozen=True)
class PolyphonicMusic:
    """Music as the keys of a piano, in $REGARD_DATA/polymusic: from the keys so far, the keys of the next step.

    jsb: 382 chorales of J. S. Bach; nottingham: 1,037 folk tunes; muse: orchestral music; piano: classical piano.
    """

    tasks: ClassVar[tuple[str, ...]] = ("keys",)

    pieces: Literal["jsb", "nottingham", "muse", "piano"] = "jsb"  # the collection

    @property
    def files(self) -> tuple[str, ...]:
        return (f"polymusic/{FILES[self.pieces]}.mat",)

    def load(self) -> Corpus:
        path = find_data(self.files[0], CURE)
        found = read_cells(path)
        for name in PARTS:
            if name not in found:
                raise UserError(f"{path}: has no cell array {name}; give a file with {', '.join(PARTS)}.")
        train, valid, test = ([_piece(path, name, *each) for each in enumerate(found[name], 1)] for name in PARTS)
        return Corpus(train, valid, test)


def _piece(path: Path, part: str, number: int, matrix: NDArray[Any]) -> Music:
    """A piece: the keys of all steps but the last, and of all steps but the first."""
    place = f"{path}: piece {number} of {part}"
    if matrix.ndim != 2 or matrix.shape[1] != KEYS or len(matrix) < 2:
        shape = " × ".join(map(str, matrix.shape))
        raise UserError(f"{place} is a matrix {shape}; expected at least 2 steps × {KEYS} keys.")
    if not np.isin(matrix, (0, 1)).all():
        raise UserError(f"{place} has numbers other than 0 and 1; give 1 for a key that sounds and 0 for any other.")
    steps = matrix.astype(np.float32)
    return Music(steps[:-1], steps[1:])


def read_cells(path: Path) -> dict[str, list[NDArray[Any]]]:
    """The cell arrays of a MATLAB 5 file by name; the cells are matrices of numbers."""
    with opened(path) as file:
        content = memoryview(file.read())
    if bytes(content[:6]) != b"MATLAB" or bytes(content[126:128]) != b"IM":
        raise UserError(f"{path}: not a MATLAB 5 file in little-endian order; save it with save -v7 or scipy.io.")
    try:
        found = {}
        left = most = max(MOST_UNPACKED, MOST_RATIO * len(content))  # bytes that may still be unpacked
        for kind, data in _elements(content[128:]):
            if kind == PACKED:
                unpacker = zlib.decompressobj()
                unpacked = unpacker.decompress(data, left + 1)
                left -= len(unpacked)
                if left < 0:
                    raise ValueError(f"it unpacks to more than {most:,} bytes")
                ((kind, data),) = _elements(memoryview(unpacked))
            if kind == MATRIX:
                cells = _elements(data)  # one at a time: empty cells take more memory than their bytes
                flags, _, name = islice(cells, 3)
                if flags[1][0] == CELLS:
                    found[bytes(name[1]).decode("ascii")] = [_numbers(cell) for _, cell in cells]
        return found
    except (ValueError, KeyError, IndexError, struct.error, zlib.error) as error:
        raise UserError(f"{path}: a damaged MATLAB file, or one of another kind ({error}); fetch it again.") from error


def _numbers(data: memoryview) -> NDArray[Any]:
    """A matrix of numbers. MATLAB stores matrices column by column."""
    _, shape, _, (kind, values) = _elements(data)
    if kind not in NUMBERS:
        raise ValueError("a cell is no matrix of real numbers")
    sizes = np.frombuffer(shape[1], "<u4").tolist()  # a negative size is a damaged file: too large
    return np.frombuffer(values, NUMBERS[kind]).reshape(sizes, order="F")


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The elements of a file or of a matrix: the code of the type of each, and its bytes."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        at += 8
        if kind >> 16:  # a small element: its size and its bytes, at most four, are in the first eight bytes
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at - 4, at
        else:
            start, end = at, at + size + (0 if kind == PACKED else -size % 8)
        if start + size > len(data):
            raise ValueError("the file ends inside an element")
        yield kind, data[start : start + size]
        at = end
