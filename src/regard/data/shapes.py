"""How examples of every length become batches of few shapes.

Lengths are rounded up to a short list, and every batch of a shape has the same number of rows, so that a compiler or
a captured graph meets few shapes. What is left over of a shape moves up to the next larger one; only the last batch of
the largest has filler rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

# 8, 12, 16, 20, 24, 32, 40, 48, 64, …: past 8 a length grows by half at the very most.
LENGTHS = (8, 12, *(2**k * quarters // 4 for k in range(4, 20) for quarters in (4, 5, 6)))
FILLER = -1  # in place of an example's number: a row that is empty


@dataclass(frozen=True)
class Planned:
    """One batch to be: how wide it is and which examples are its rows."""

    source_width: int
    target_width: int
    rows: Ids

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.rows), self.source_width, self.target_width


class Shapes:
    """The shapes that examples of these lengths need under a budget of tokens (rows × the larger width).

    How many batches of each there are follows from the lengths alone, whatever the order of the examples, so that
    every epoch has the same number.
    """

    def __init__(self, source_lengths: Ids, target_lengths: Ids, budget: int) -> None:
        count = len(source_lengths)
        assert count > 0
        assert max(source_lengths.max(), target_lengths.max()) <= budget
        steps = np.array([0, *(length for length in LENGTHS if length < budget), budget])
        sources, targets = (np.searchsorted(steps, lengths) for lengths in (source_lengths, target_lengths))
        keys = sources * len(steps) + targets  # one number for each pair of widths
        # The largest of both widths takes what nothing else can, even if no example is that long on both sides.
        used = np.union1d(keys, sources.max() * len(steps) + targets.max())
        widths = [(int(steps[key // len(steps)]), int(steps[key % len(steps)])) for key in used]
        by_length = np.lexsort((source_lengths, target_lengths))
        members = [by_length[keys[by_length] == key] for key in used]
        # A shape that fits into another has a smaller sum, so in this order nothing that moves up is met too late.
        order = sorted(range(len(used)), key=lambda shape: sum(widths[shape]))
        self._widths = [widths[shape] for shape in order]
        self._members = [members[shape] for shape in order]
        self._rows = [_rows(max(pair), budget, count) for pair in self._widths]
        self._above = [_smallest_above(pair, self._widths) for pair in self._widths]

    def plan(self, arrange: Callable[[Ids], Ids]) -> list[Planned]:
        """Every example once, from short to long; `arrange` orders those that share a shape."""
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
            planned += [Planned(*widths, chunk) for chunk in rows.reshape(-1, count)]
        return planned


def _rows(width: int, budget: int, count: int) -> int:
    """How many rows a batch of this width has: what the budget allows and the examples can use, in eights if it can."""
    rows = budget // width
    rows = rows // 8 * 8 if rows >= 8 else rows
    return min(rows, -(-count // 8) * 8 if count >= 8 else count)


def _smallest_above(widths: tuple[int, int], known: list[tuple[int, int]]) -> int | None:
    """The cheapest other shape that these widths fit into; None for the largest."""
    larger = [i for i, other in enumerate(known) if other != widths and all(a <= b for a, b in zip(widths, other))]
    return min(larger, key=lambda i: (max(known[i]), sum(known[i])), default=None)
