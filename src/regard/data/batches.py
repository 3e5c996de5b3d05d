"""Batches of tensors: few shapes, under a budget of tokens, each a pure function of (seed, epoch, index)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.flat import Columns, Lengths, Row, Rows, digest
from regard.errors import UserError

Numbers = NDArray[np.int64]  # of rows

IGNORED = -100  # a target that counts for nothing
# 8, 12, 16, 20, 24, 32, 40, 48, 64, …: above 8, rounding makes a length at most half as long again.
LENGTHS = (8, 12, *(2**k * quarters // 4 for k in range(4, 20) for quarters in (4, 5, 6)))
LONG = 64  # a length of all rows that is not rounded: padding of long rows costs more than a round number gains
FILLER = -1  # in place of the number of a row: an empty row


@dataclass(frozen=True)
class Batch:
    """What a model reads and what it should predict. True in `real` means "not padding"."""

    fields: Mapping[str, Tensor]  # inputs such as tokens and source, and targets; IGNORED targets count for nothing
    real: Mapping[str, Tensor] = field(default_factory=dict)  # by input: which places may be seen
    counts: Mapping[str, int] = field(default_factory=dict)  # by input: how many places are real; targets: how many
    rows: list[int] = field(default_factory=list)  # the number of each row's example; -1: a filler row, all padding
    segment: int | None = None  # of contiguous text: how many batches before it its rows continue; None: other text
    scale: float = 1.0  # of the learning rate of its step, as windows of several lengths need

    def __getitem__(self, name: str) -> Tensor:
        return self.fields[name]

    def visible(self, name: str) -> Tensor | None:
        """`real[name]`, or None if the input has no padding: a mask of nothing but True is slower than none."""
        real = self.real[name]
        return None if self.counts.get(name) == real.numel() else real

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved = [
            {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
            for tensors in (self.fields, self.real)
        ]
        return replace(self, fields=moved[0], real=moved[1])


class Corruption(Protocol):
    """A change to the rows of a batch before they are padded, such as masking: a function of the rows and a seed.

    A corruption may inherit from this class, for the defaults of `check` and `lengths`.
    The lengths of its output depend on the lengths of its input alone, so that the shapes of batches are known before
    any row is corrupted.
    """

    def check(self, lengths: Mapping[str, Lengths]) -> None:
        """Refuse training data whose texts have these lengths; by default nothing is refused."""
        return None

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The length of each field after the corruption, given the lengths before it: the same, unless overridden."""
        return lengths

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        """The corrupted rows."""
        ...


class Collation(Protocol):
    """How rows become a batch: the part of a task (`regard.tasks.Task`) that batches need."""

    @property
    def widths(self) -> Callable[[Mapping[str, Lengths]], Mapping[str, Lengths]]: ...
    @property
    def collate(self) -> Callable[[Rows, Mapping[str, int], np.random.Generator], Batch]: ...


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

    Lengths are rounded up to a short list, and every batch of a shape has the same number of rows, so that few shapes
    are compiled or captured as CUDA graphs. If all rows have the same length, 64 or more, it is not rounded. Rows that
    do not fill a batch of their shape move to the next larger shape; only the last batch of the largest shape has
    filler rows.

    `lengths` has an array for each axis of a batch, such as source and target. The number of batches of a shape follows
    from the lengths alone, whatever the order of the rows, so that every epoch has the same number.
    """

    def __init__(self, lengths: Mapping[str, Lengths], budget: int) -> None:
        count = len(next(iter(lengths.values())))
        assert count > 0
        assert max(axis.max() for axis in lengths.values()) <= budget
        same = [int(axis[0]) for axis in lengths.values() if axis.min() == axis.max()]
        exact = same if len(same) == len(lengths) and min(same) >= LONG else []
        steps = np.unique([0, *(length for length in LENGTHS if length < budget), *exact, budget])
        rounded = [np.searchsorted(steps, axis).astype(np.int32) for axis in lengths.values()]
        dims = (len(steps),) * len(rounded)
        keys = np.ravel_multi_index(rounded, dims)  # one number for each combination of widths
        # The largest width of every axis takes the rows that fit nowhere else, even if no row has all of them.
        used = np.union1d(keys, np.ravel_multi_index([axis.max() for axis in rounded], dims))
        widths: list[tuple[int, ...]] = [tuple(row) for row in steps[np.array(np.unravel_index(used, dims)).T].tolist()]
        by_shape = np.lexsort([*lengths.values(), keys])  # and by length inside a shape
        members = np.split(by_shape, np.searchsorted(keys[by_shape], used[1:]))
        # A shape that fits into another has a smaller sum: in this order, rows move only to shapes that come later.
        order = sorted(range(len(used)), key=lambda shape: sum(widths[shape]))
        self._names = tuple(lengths)
        self._widths = [widths[shape] for shape in order]
        self._members = [members[shape] for shape in order]
        self._rows = [_rows(max(each), budget, count) for each in self._widths]
        self._above = [_smallest_above(each, self._widths) for each in self._widths]

    def plan(self, random: np.random.Generator) -> list[Planned]:
        """Every row once, from short to long; the rows of a shape are in random order."""
        pools = [[members] for members in self._members]
        planned = []
        for pool, widths, count, above in zip(pools, self._widths, self._rows, self._above):
            rows = random.permutation(np.concatenate(pool))
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


class Batches:
    """The batches of a corpus, epoch after epoch: `batch(step)` is a function of the seed and the step alone.

    Every epoch has each row once, in batches of at most `budget` padded tokens on the longest axis. A row with an axis
    longer than `limit`, or than the budget, is left out.
    """

    unit = "tokens"  # what is counted for the speed of training

    def __init__(
        self,
        columns: Columns,
        task: Collation,
        budget: int,
        seed: int,
        limit: int | None = None,
        corruption: Corruption | None = None,
    ) -> None:
        if budget < 2:
            raise UserError(f"a budget of {budget} tokens cannot hold an example; give some thousands.")
        self._columns, self._task, self._corruption, self._seed = columns, task, corruption, seed
        self._budget, self._limit = budget, limit
        count = len(next(iter(columns.values())))
        if not count:
            raise UserError("there are no examples to make batches of; give at least one.")
        lengths: Mapping[str, Lengths] = {name: column.lengths for name, column in columns.items()}
        if corruption is not None:
            corruption.check(lengths)
            lengths = corruption.lengths(lengths)
        widths = task.widths(lengths)
        widths = {name: np.maximum(axis, 1) for name, axis in widths.items()}
        most = budget if limit is None else min(limit, budget)
        kept = np.flatnonzero(np.all([axis <= most for axis in widths.values()], axis=0))
        self.rows = count  # those that are too long included
        self.dropped = self.rows - len(kept)  # rows that are too long
        if not len(kept):
            raise UserError(
                f"every example has more than {most} tokens, the most that plan.batch_tokens and the model's longest "
                "text allow; raise that one."
            )
        self._kept = np.append(kept, FILLER)  # so that index FILLER gives FILLER
        self._shapes = Shapes({name: axis[kept] for name, axis in widths.items()}, budget)
        self._latest = (0, self._plan(0))

    def __len__(self) -> int:
        """Batches per epoch; the same in every epoch."""
        return len(self._latest[1])

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The few shapes (rows, width of each axis) that occur."""
        return sorted({planned.shape for planned in self._latest[1]})

    def halved(self) -> Batches | None:
        """Batches of the same rows with half of the budget; None if it may be too small for the longest row."""
        half = self._budget // 2
        if half < max(max(shape[1:]) for shape in self.shapes):
            return None
        return Batches(self._columns, self._task, half, self._seed, self._limit, self._corruption)

    @property
    def digest(self) -> str:
        """The SHA-256 of the corpus: a run is resumed only with the same one."""
        columns = [(each.ends, each.values, each.arrays) for each in self._columns.values()]
        return digest(*(array for column in columns for array in column if array is not None))

    def batch(self, step: int) -> Batch:
        """The batch of any step of training: epoch step // len, place step % len."""
        epoch, place = divmod(step, len(self))
        if epoch != self._latest[0]:
            self._latest = (epoch, self._plan(epoch))
        planned = self._latest[1][place]
        numbers = self._kept[planned.rows]
        rows = self._rows(numbers)
        random = np.random.default_rng((self._seed, step, 1))
        if self._corruption is not None:
            rows = self._corruption(rows, random)
        return replace(self._task.collate(rows, planned.widths, random), rows=numbers.tolist())

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        """The batches of one of so many parts of the first epoch: all parts together have every row once."""
        first, end = (-(-n * len(self) // parts) for n in (number, number + 1))  # rounded up
        return map(self.batch, range(first, end))

    def _rows(self, numbers: Numbers) -> Rows:
        """The rows of these numbers; a filler row has no tokens."""
        there = numbers != FILLER
        return Rows(
            {
                name: (column.values, starts, np.where(there, lengths, 0))
                for name, column in self._columns.items()
                for starts, lengths in [column.spans(numbers)]
            }
        )

    def _plan(self, epoch: int) -> list[Planned]:
        """The batches of an epoch, in order."""
        random = np.random.default_rng((self._seed, epoch))
        planned = self._shapes.plan(random)
        return [planned[i] for i in random.permutation(len(planned))]


def collate(rows: Sequence[Row], task: Collation) -> Batch:
    """One batch of exactly these rows, in their order and as narrow as possible."""
    rows = Rows.of(rows)
    lengths = {name: rows.lengths(name) for name in rows[0]}
    widths = {name: max(int(axis.max()), 1) for name, axis in task.widths(lengths).items()}
    return replace(task.collate(rows, widths, np.random.default_rng(0)), rows=list(range(len(rows))))
