"""Counts of words that occur together, for texts of any size: sorted parts on disk that are merged.

X of words i and j is the sum of 1 / distance over all pairs of places in a line, at most `window` words apart, with i
at one place and j at the other. X is symmetric, so cells with i ≤ j are stored. A file of cells has random order, since
training reads it from its beginning to its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import CACHE_CURE, cached, locked, open_regular, require_space
from regard.data.words import Ids, Sentences
from regard.file_io import atomic_write, remove_leftovers

FORMAT = 1  # the version of the file format
IN_MEMORY = 2**23  # pairs, or cells, that are in memory at once
AT_ONCE = 2**16  # cells that are counted by words at once
KEY_COUNT = np.dtype([("key", np.int64), ("count", np.float64)])  # the key of the cell (i, j) is i · V + j
CELL = np.dtype([("word", np.uint32), ("context", np.uint32), ("count", np.float32)])

Counts = NDArray[Any]  # of KEY_COUNT, sorted by key
Cells = NDArray[Any]  # of CELL


def cooccurrences(text: Sentences, size: int, window: int, in_memory: int = IN_MEMORY) -> Cells:
    """The cells of a text with `size` ids, memory-mapped from a file of the cache; the file is written once.

    Those of a small text are in memory instead.
    """
    if text.tokens * window <= in_memory:
        return next(count_cells(text, size, window, None, in_memory))
    identity = f"{FORMAT} {text.digest} {text.first} {size} {window}"
    path = cached("cooccurrences", hashlib.sha256(identity.encode()).hexdigest() + ".bin")
    with locked(path):
        if not path.is_file():
            remove_leftovers(path)
            with atomic_write(path, CACHE_CURE) as file:
                for cells in count_cells(text, size, window, path.parent, in_memory):
                    file.write(cells.tobytes())
    with open_regular(path) as file:
        return np.asarray(np.memmap(file, dtype=CELL, mode="r"))


def count_cells(text: Sentences, size: int, window: int, folder: Path | None, in_memory: int) -> Iterator[Cells]:
    """All cells of a text in random order, some at a time. What does not fit into memory is in `folder` meanwhile.

    None: the folder of the system for temporary files.
    """
    with TemporaryDirectory(dir=folder, prefix=".counts") as temporary:
        place, parts = Path(temporary), list[Counts]()
        for number, part in enumerate(_count_parts(text, size, window, in_memory)):
            require_space(place, 3 * part.nbytes)
            part.tofile(place / f"part{number}")
            parts.append(np.memmap(place / f"part{number}", KEY_COUNT, "r"))
        merged, random = merge(parts, in_memory), np.random.default_rng(0)
        if sum(map(len, parts)) <= in_memory:
            for counts in merged:  # only one
                yield random.permutation(_cells(counts, size))
            return
        files = 1 + sum(map(len, parts)) // in_memory
        for counts in merged:  # each cell goes into a file at random; then each file is shuffled
            chosen = random.integers(files, size=len(counts))
            for number in range(files):
                with (place / f"cells{number}").open("ab") as file:
                    file.write(_cells(counts[chosen == number], size).tobytes())
        for number in range(files):
            yield random.permutation(np.fromfile(place / f"cells{number}", CELL))


def most_cells(cells: Cells, size: int) -> int:
    """The largest number of cells with the same word, or with the same context word, of `size` words."""
    counts = np.zeros((2, size), np.int64)
    for start in range(0, len(cells), AT_ONCE):
        some = cells[start : start + AT_ONCE]
        counts += [np.bincount(some[name], minlength=size) for name in ("word", "context")]
    return int(counts.max())


def merge(parts: Sequence[Counts], in_memory: int = IN_MEMORY) -> Iterator[Counts]:
    """Sorted parts as one sorted sequence, some cells at a time; the counts of a key are added."""
    total = sum(map(len, parts))
    ranges = max(1, -(-total // in_memory))
    sample = np.sort(np.concatenate([part["key"][:: max(1, len(part) // (64 * ranges))] for part in parts]))
    bounds = [sample[len(sample) * number // ranges] for number in range(1, ranges)]
    edges = [[0, *np.searchsorted(part["key"], bounds), len(part)] for part in parts]
    for number in range(ranges):
        some = np.concatenate([part[edge[number] : edge[number + 1]] for part, edge in zip(parts, edges)])
        if len(some):
            some = some[np.argsort(some["key"], kind="stable")]
            yield _added(some["key"], some["count"])


def _count_parts(text: Sentences, size: int, window: int, in_memory: int) -> Iterator[Counts]:
    """The counts of consecutive parts of a text, each sorted. A pair belongs to the part that has its second word."""
    tokens = max(1, in_memory // window)
    before: Ids = np.zeros(0, np.int64)  # the last words of the part before, and the places and lines of all words
    lines_before, lines = before, 0
    for start in range(0, text.tokens, tokens):
        words, of_line = text.words(start, start + tokens)
        all_words = np.concatenate([before, words])
        all_lines = np.concatenate([lines_before, of_line + lines])
        packed = []  # key · (window + 1) + distance: sorted once, without the weights
        for distance in range(1, min(window, len(all_words) - 1) + 1):
            first = max(0, len(before) - distance)  # the second word of the pair is in this part
            left, right = all_words[first : len(all_words) - distance], all_words[first + distance :]
            same = all_lines[first : len(all_words) - distance] == all_lines[first + distance :]
            keys = np.minimum(left, right) * size + np.maximum(left, right)
            packed.append(keys[same] * (window + 1) + distance)
        found = np.sort(np.concatenate([before[:0], *packed]))
        if len(found):
            weights = 1 / np.arange(window + 1).clip(1)
            yield _added(found // (window + 1), weights[found % (window + 1)])
        lines += text.line_ends(start, start + tokens)
        before, lines_before = all_words[-window:], all_lines[-window:]
        if text.report:
            done = min(start + tokens, text.tokens)
            text.report("counting pairs of words", done * text.nbytes // text.tokens, text.nbytes)


def _added(keys: Ids, counts: NDArray[np.float64]) -> Counts:
    """Sorted keys with the sum of the counts of each."""
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    result = np.empty(len(starts), KEY_COUNT)
    result["key"], result["count"] = keys[starts], np.add.reduceat(counts, starts)
    return result


def _cells(counts: Counts, size: int) -> Cells:
    """The cells of counts. Both orders of a pair of equal words are the same cell, which counts them twice."""
    cells = np.empty(len(counts), CELL)
    cells["word"], cells["context"] = np.divmod(counts["key"], size)
    cells["count"] = counts["count"] * np.where(cells["word"] == cells["context"], 2, 1)
    return cells
