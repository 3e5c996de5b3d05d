"""The weights of any model, without changing its answer.

>>> with record(model, "decoder.*") as tape:        # doctest: +SKIP
...     model(batch)
>>> tape["decoder.attention"].shape                 # doctest: +SKIP
torch.Size([1, 10, 16])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from regard.attention import Attention
from regard.errors import UserError, nearest
from regard.scores import at_least_float32


@dataclass
class Tape:
    """What was looked at: for each attention module, by its path in the model, the weights of its reads in order."""

    reads: dict[str, list[Tensor]] = field(default_factory=dict)
    # Of each item of the batch, where a verb knows them: the captions of its queries, and of its keys.
    captions: list[tuple[list[str], list[str]]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Tensor:
        """All reads of one module, joined along the query axis: (B, [H,] Tq, Tk), at least float32, on the CPU."""
        if name not in self.reads:
            raise KeyError(f"nothing recorded under {name!r}.{nearest(name, self.reads)}")
        reads = self.reads[name]
        shapes = {(*read.shape[:-2], read.shape[-1]): tuple(read.shape) for read in reads}  # all but the query axis
        if len(shapes) > 1:
            raise UserError(
                f"tape[{name!r}]: reads of different shapes, {' and '.join(map(str, shapes.values()))}, do not join: "
                f"record one batch at a time, or take them one by one from tape.reads[{name!r}]."
            )
        return torch.cat(reads, dim=-2)

    def __iter__(self) -> Iterator[str]:
        return iter(self.reads)

    def __len__(self) -> int:
        return len(self.reads)

    def names(self) -> list[str]:
        return list(self.reads)


@dataclass
class Tap:
    """Connects one attention module to a tape; keeps only the heads and query rows that were asked for."""

    tape: Tape
    name: str
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    start: int = 0  # queries read so far: where the next read begins on the tape

    def write(self, weights: Tensor) -> None:
        """Puts the weights (B, [H,] Tq, Tk) of one read on the tape."""
        kept, queries = weights.detach(), weights.shape[-2]
        if self.heads is not None and kept.dim() > 3:
            if max(self.heads, default=0) >= kept.shape[1]:
                raise UserError(f"record: heads={list(self.heads)}: {self.name!r} has heads 0 to {kept.shape[1] - 1}")
            kept = kept[:, list(self.heads)]
        if self.rows is not None:
            kept = kept[..., [row - self.start for row in self.rows if 0 <= row - self.start < queries], :]
        self.start += queries
        self.tape.reads.setdefault(self.name, []).append(at_least_float32(kept).cpu())


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every attention module of a model, by its path."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


@contextmanager
def record(
    model: nn.Module, pattern: str = "*", heads: Sequence[int] | None = None, rows: Sequence[int] | None = None
) -> Iterator[Tape]:
    """Records the weights of the attention modules whose path matches ``pattern`` while the block runs.

    ``heads`` and ``rows`` limit what is kept. A row is a query's place on the tape, where the reads of a module follow
    one another: the same query is the same row whether a model steps or runs at once. Inside another ``record`` of the
    same module this one takes over until it ends.
    """
    found = attentions(model)
    chosen = {name: module for name, module in found.items() if fnmatchcase(name, pattern)}
    if not chosen and pattern != "*":
        raise UserError(f"record: no attention module matches {pattern!r}.{nearest(pattern, found)}")
    tape = Tape()
    before = {name: module.tap for name, module in chosen.items()}
    for name, module in chosen.items():
        module.tap = Tap(tape, name, _tuple(heads), _tuple(rows))
    try:
        yield tape
    finally:
        for name, module in chosen.items():
            module.tap = before[name]


@contextmanager
def silenced(model: nn.Module) -> Iterator[None]:
    """No tape records inside: searches try many hypotheses, and only the winners are worth a look."""
    taps = [(module, module.tap) for module in attentions(model).values()]
    for module, _ in taps:
        module.tap = None
    try:
        yield
    finally:
        for module, tap in taps:
            module.tap = tap


def active_tape(model: nn.Module) -> Tape | None:
    """The tape that is recording this model, if any."""
    return next((module.tap.tape for module in attentions(model).values() if module.tap is not None), None)


def _tuple(chosen: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if chosen is None else tuple(chosen)
