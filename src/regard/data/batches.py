"""Batches of tensors: few shapes, under a budget of tokens, each a pure function of (seed, epoch, index)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, overload

import numpy as np
import torch
from torch import Tensor

from regard.data.flat import Flat, Lengths, Values, digest, real_places
from regard.data.shapes import FILLER, Numbers, Planned, Shapes
from regard.errors import UserError

IGNORED = -100  # a target that counts for nothing

Row = Mapping[str, Values]  # one row of a batch before it is padded: an array for each field
Columns = Mapping[str, Flat]  # an encoded corpus: every example's values, by field


class Rows(Sequence[Row]):
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

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return {
            name: values[starts[index] : starts[index] + lengths[index]]
            for name, (values, starts, lengths) in self._fields.items()
        }

    def has(self, name: str) -> bool:
        """Whether the rows have a field of this name."""
        return name in self._fields

    def lengths(self, name: str) -> Lengths:
        """The length of a field in each row, (B,)."""
        return self._fields[name][2]

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
        """A field as a tensor (B, width), without its `first` and `last` places; `fill` after the end of each row."""
        values, starts, lengths = self._fields[name]
        real = real_places(lengths - first - last, width)
        kind = np.int64 if values.dtype.kind in "iu" else np.float32
        rows = np.full((len(starts), width, *values.shape[1:]), fill, kind)
        rows[real] = values[(starts[:, None] + np.arange(first, first + width))[real]]
        return torch.from_numpy(rows)

    def real(self, name: str, width: int, last: int = 0) -> Tensor:
        """Which places of the padded field are not padding, (B, width)."""
        return torch.from_numpy(real_places(self._fields[name][2] - last, width))


def _joined(arrays: Sequence[Values]) -> tuple[Values, Lengths, Lengths]:
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return np.concatenate(arrays), np.cumsum(lengths) - lengths, lengths


@dataclass(frozen=True)
class Batch:
    """What a model reads and what it should predict. True in `real` means "not padding"."""

    fields: Mapping[str, Tensor]  # inputs such as tokens and source, and targets; IGNORED targets count for nothing
    real: Mapping[str, Tensor] = field(default_factory=dict)  # by input: which places may be seen
    counts: Mapping[str, int] = field(default_factory=dict)  # by input: how many places are real; targets: how many
    rows: list[int] = field(default_factory=list)  # the number of each row's example; -1: a filler row, all padding
    segment: int | None = None  # of contiguous text: how many batches before it its rows continue; None: other text

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

    The lengths of its output depend on the lengths of its input alone, so that the shapes of batches are known before
    any row is corrupted.
    """

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The length of each field after the corruption, given the lengths before it."""
        ...

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        """The corrupted rows."""
        ...


class Collation(Protocol):
    """How rows become a batch: the part of a task (`regard.tasks.Task`) that batches need."""

    @property
    def rows(self) -> Callable[[Columns, int], list[Row]]: ...
    @property
    def widths(self) -> Callable[[Mapping[str, Lengths]], Mapping[str, Lengths]]: ...
    @property
    def collate(self) -> Callable[[Rows, Mapping[str, int], np.random.Generator], Batch]: ...


def one_row(columns: Columns, index: int) -> list[Row]:
    """The rows of an example for most tasks: one, which has its values as they are."""
    return [{name: column[index] for name, column in columns.items()}]


class Batches:
    """The batches of a corpus, epoch after epoch: `batch(step)` is a function of the seed and the step alone.

    Every epoch has each row once, in batches of at most `budget` padded tokens on the longest axis. A row with an axis
    longer than `limit`, or than the budget, is left out. Rank r of several ranks has the batches r, r + ranks, … of the
    one order; if the batches do not divide evenly, batches of filler rows make up the rest.
    """

    def __init__(
        self,
        columns: Columns,
        task: Collation,
        budget: int,
        seed: int,
        shuffle: bool = True,
        limit: int | None = None,
        corruption: Corruption | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if budget < 2:
            raise UserError(f"a budget of {budget} tokens cannot hold an example; give some thousands.")
        assert 0 <= rank < ranks
        self._columns, self._task, self._corruption = columns, task, corruption
        self._seed, self._shuffle, self._rank, self._ranks = seed, shuffle, rank, ranks
        count = len(next(iter(columns.values())))
        if not count:
            raise UserError("there are no examples to make batches of; give at least one.")
        if task.rows is one_row:
            self._examples, lengths = np.arange(count), {name: column.lengths for name, column in columns.items()}
            first: Row = {name: column.values for name, column in columns.items()}
        else:
            self._examples, lengths, first = _measure(columns, task, count)
        self._filler = {name: values[:0] for name, values in first.items()}
        widths = task.widths(lengths if corruption is None else corruption.lengths(lengths))
        widths = {name: np.maximum(axis, 1) for name, axis in widths.items()}
        most = budget if limit is None else min(limit, budget)
        kept = np.flatnonzero(np.all([axis <= most for axis in widths.values()], axis=0))
        self.dropped = len(self._examples) - len(kept)  # rows that are too long
        if not len(kept):
            raise UserError(
                f"every example has more than {most} tokens, the most that plan.batch_tokens and the model's longest "
                "text allow; raise that one."
            )
        self._kept = np.append(kept, FILLER)  # so that index FILLER gives FILLER
        self._shapes = Shapes({name: axis[kept] for name, axis in widths.items()}, budget)
        self._latest = (0, self._plan(0))

    def __len__(self) -> int:
        """Batches per epoch of each rank; the same in every epoch."""
        return len(self._latest[1]) // self._ranks

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The few shapes (rows, width of each axis) that occur on any rank."""
        return sorted({planned.shape for planned in self._latest[1]})

    @property
    def digest(self) -> str:
        """The SHA-256 of the corpus: a run is resumed only with the same one."""
        return digest(*(array for column in self._columns.values() for array in (column.ends, column.values)))

    def batch(self, step: int) -> Batch:
        """The batch of any step of training: epoch step // len, place step % len."""
        epoch, place = divmod(step, len(self))
        if self._shuffle and epoch != self._latest[0]:
            self._latest = (epoch, self._plan(epoch))
        planned = self._latest[1][place * self._ranks + self._rank]
        numbers = self._kept[planned.rows]
        rows = self._rows(numbers)
        random = np.random.default_rng((self._seed, step * self._ranks + self._rank, 1))
        if self._corruption is not None:
            rows = self._corruption(rows, random)
        batch = self._task.collate(rows, planned.widths, random)
        return replace(batch, rows=np.where(numbers == FILLER, FILLER, self._examples[numbers]).tolist())

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        """The batches of one of so many parts of the first epoch: all parts together have every row once."""
        first, end = (-(-n * len(self) // parts) for n in (number, number + 1))  # rounded up
        return map(self.batch, range(first, end))

    def _rows(self, numbers: Numbers) -> Rows:
        """The rows of these numbers; a filler row has no tokens."""
        if self._task.rows is not one_row:
            return Rows.of([self._filler if number == FILLER else self._part(number) for number in numbers.tolist()])
        there = numbers != FILLER
        return Rows(
            {
                name: (column.values, starts, np.where(there, column.ends[numbers + 1] - starts, 0))
                for name, column in self._columns.items()
                for starts in [column.ends[numbers]]
            }
        )

    def _part(self, number: int) -> Row:
        """One of the several rows of an example."""
        example = int(self._examples[number])
        first = int(np.searchsorted(self._examples, example))
        return self._task.rows(self._columns, example)[number - first]

    def _plan(self, epoch: int) -> list[Planned]:
        """The batches of all ranks in an epoch, in order."""
        random = np.random.default_rng((self._seed, epoch))
        planned = self._shapes.plan(random.permutation if self._shuffle else lambda rows: rows)
        empty = replace(planned[0], rows=np.full_like(planned[0].rows, FILLER))
        planned += [empty] * (-len(planned) % self._ranks)
        return [planned[i] for i in random.permutation(len(planned))] if self._shuffle else planned


def _measure(columns: Columns, task: Collation, count: int) -> tuple[Numbers, dict[str, Lengths], Row]:
    """Of a task that makes several rows of an example: the example of each row, the lengths of its fields, a row."""
    examples, lengths = list[int](), list[list[int]]()
    first: Row = {}
    for example in range(count):
        for row in task.rows(columns, example):
            first = first or row
            examples.append(example)
            lengths.append([len(row[name]) for name in first])
    if not examples:
        raise UserError("the examples have no rows to make batches of; give longer ones.")
    return np.array(examples), dict(zip(first, np.array(lengths, np.int64).T)), first


def collate(rows: Sequence[Row], task: Collation) -> Batch:
    """One batch of exactly these rows, in their order and as narrow as possible."""
    rows = Rows.of(rows)
    lengths = {name: rows.lengths(name) for name in rows[0]}
    widths = {name: max(int(axis.max()), 1) for name, axis in task.widths(lengths).items()}
    return replace(task.collate(rows, widths, np.random.default_rng(0)), rows=list(range(len(rows))))
