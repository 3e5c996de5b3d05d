"""Batches of few shapes from rows of every length.

Lengths are rounded up to a short list, and every batch of a shape has the same number of rows, so that a compiler or
a CUDA graph meets few shapes. Rows that do not fill a batch of their shape move to the next larger shape; only the last
batch of the largest shape has filler rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.flat import Lengths

Numbers = NDArray[np.int64]

# 8, 12, 16, 20, 24, 32, 40, 48, 64, …: above 8, rounding makes a length at most half as long again.
LENGTHS = (8, 12, *(2**k * quarters // 4 for k in range(4, 20) for quarters in (4, 5, 6)))
FILLER = -1  # in place of the number of a row: an empty row


@dataclass(frozen=True)
class Planned:
    """One batch of an epoch: the width of each of its axes and the numbers of its rows."""

    widths: Mapping[str, int]
    rows: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.widths.values()


class Shapes:
    """The shapes that rows of these lengths need under a budget of tokens (rows × the largest width).

    `lengths` has an array for each axis of a batch, such as source and target. The number of batches of a shape follows
    from the lengths alone, whatever the order of the rows, so that every epoch has the same number.
    """

    def __init__(self, lengths: Mapping[str, Lengths], budget: int) -> None:
        count = len(next(iter(lengths.values())))
        assert count > 0
        assert max(axis.max() for axis in lengths.values()) <= budget
        steps = np.array([0, *(length for length in LENGTHS if length < budget), budget])
        rounded = [np.searchsorted(steps, axis).astype(np.int32) for axis in lengths.values()]
        dims = (len(steps),) * len(rounded)
        keys = np.ravel_multi_index(rounded, dims)  # one number for each combination of widths
        # The largest width of every axis takes the rows that fit nowhere else, even if no row has all of them.
        used = np.union1d(keys, np.ravel_multi_index([axis.max() for axis in rounded], dims))
        widths: list[tuple[int, ...]] = [tuple(row) for row in steps[np.array(np.unravel_index(used, dims)).T].tolist()]
        by_length = np.lexsort(list(lengths.values()))
        members = [by_length[keys[by_length] == key] for key in used]
        # A shape that fits into another has a smaller sum: in this order, rows move only to shapes that come later.
        order = sorted(range(len(used)), key=lambda shape: sum(widths[shape]))
        self._names = tuple(lengths)
        self._widths = [widths[shape] for shape in order]
        self._members = [members[shape] for shape in order]
        self._rows = [_rows(max(each), budget, count) for each in self._widths]
        self._above = [_smallest_above(each, self._widths) for each in self._widths]

    def plan(self, arrange: Callable[[Numbers], Numbers]) -> list[Planned]:
        """Every row once, from short to long; `arrange` orders the rows of a shape."""
        pools = [[members] for members in self._members]
        planned = []
        for pool, widths, count, above in zip(pools, self._widths, self._rows, self._above):
            rows = arrange(np.concatenate(pool))
            left = len(rows) % count
            if left and above is not None:
                pools[above].append(rows[-left:])
                rows = rows[:-left]
            elif left:
                rows = np.append(rows, np.full(count - left, FILLER))
            named = dict(zip(self._names, widths))
            planned += [Planned(named, chunk) for chunk in rows.reshape(-1, count)]
        return planned


def _rows(width: int, budget: int, count: int) -> int:
    """The rows of a batch of this width: as many as the budget allows and the data can fill, in eights if possible."""
    rows = budget // width
    rows = rows // 8 * 8 if rows >= 8 else rows
    return min(rows, -(-count // 8) * 8 if count >= 8 else count)


def _smallest_above(widths: tuple[int, ...], known: list[tuple[int, ...]]) -> int | None:
    """The smallest other shape that these widths fit into; None for the largest."""
    larger = [i for i, other in enumerate(known) if other != widths and all(a <= b for a, b in zip(widths, other))]
    return min(larger, key=lambda i: (max(known[i]), sum(known[i])), default=None)
