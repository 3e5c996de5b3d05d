"""Writes MATLAB 5 files with cell arrays of matrices, for tests of the reader."""

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike


def mat_file(parts: Mapping[str, Sequence[ArrayLike]], packed: bool = False) -> bytes:
    """A file with a cell array of matrices for each name."""
    content = b""
    for name, matrices in parts.items():
        cells = b"".join(
            _matrix(6, np.shape(one), "", _element(9, np.asarray(one, "<f8").tobytes("F"))) for one in matrices
        )
        array = _matrix(1, (1, len(matrices)), name, cells)
        unpadded = zlib.compress(array)
        content += struct.pack("<II", 15, len(unpadded)) + unpadded if packed else array
    return b"MATLAB 5.0 MAT-file, made by a test".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + content


def _matrix(kind: int, shape: Sequence[int], name: str, content: bytes) -> bytes:
    head = _element(6, struct.pack("<II", kind, 0)) + _element(5, np.array(shape, "<i4").tobytes())
    return _element(14, head + _element(1, name.encode()) + content)


def _element(kind: int, data: bytes) -> bytes:
    """A tag and the data, padded to eight bytes; data of one to four bytes is inside the tag."""
    if 0 < len(data) <= 4:
        return struct.pack("<I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)
