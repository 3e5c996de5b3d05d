"""The weights of any model, without changing its answer.

>>> with record(model, "decoder.*") as tape:        # doctest: +SKIP
...     model(batch)
>>> tape["decoder.attention"].shape                 # doctest: +SKIP
torch.Size([1, 10, 16])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, weights
from regard.errors import UserError, nearest
from regard.mask import Mask, default_positions
from regard.scores import Score, at_least_float32

_NUMBERS = count()


@dataclass(frozen=True)
class Axes:
    """What stands beside the queries and the keys of a read, and which part of a model it is of."""

    rows: Sequence[str]  # who looks
    columns: Sequence[str]  # what at
    part: str = ""  # encoder, decoder or cross: a source that looks at itself, a target at its past, or at the source
    first: int = 0  # the key that the first column is; those before it stand for nothing


@dataclass
class Tape:
    """What was looked at: for each attention module, by its path in the model, the weights of its reads in order.

    A module that several layers share has a name for each of them: "path[0]", "path[1]" …
    """

    reads: dict[str, list[Tensor]] = field(default_factory=dict)
    # Of each of them, whether it goes on in the text of the one before: a past that has grown.
    onward: dict[str, list[bool]] = field(default_factory=dict)
    # Of each item of the batch, where a verb knows them: the axes of every name.
    captions: list[dict[str, Axes]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Tensor:
        """All reads of one module, joined along the query axis: (B, [H,] Tq, Tk), at least float32, on the CPU.

        Of a past that grew from read to read, no query sees the keys that came after it.
        """
        if name not in self.reads:
            raise KeyError(f"nothing recorded under {name!r}.{nearest(name, self.reads)}")
        reads = self.reads[name]
        if all(self.onward[name][1:]):
            keys = max(read.shape[-1] for read in reads)
            reads = [F.pad(read, (0, keys - read.shape[-1])) for read in reads]
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
    turns: int = 1  # how many layers share the module; each has a name of its own on the tape: "name[0]", "name[1]" …
    starts: dict[str, int] = field(default_factory=dict)  # queries read so far: where the next read begins on the tape
    ends: dict[str, int] = field(default_factory=dict)  # the position after the last query: where its text would go on
    reads: int = 0
    ticket: Tensor = field(
        default_factory=lambda: torch.tensor(next(_NUMBERS), device="cpu")
    )  # by which compiled code finds the tap

    @torch.no_grad()
    def watch(
        self, score: Score, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None = None, k_at: Tensor | None = None
    ) -> None:
        """Puts the weights of one read, by queries (B, [H,] Tq, D), on the tape. Keys have positions in a past only.

        Long texts are watched a part at a time, and rows that nobody asked for are not looked at: all weights of 8,192
        tokens are 3 GiB a layer. Compiled code makes them at once.
        """
        length, at = q.shape[-2], None if k_at is None else q_at
        q_at, k_at = default_positions(q, k, q_at, k_at)
        if torch.compiler.is_compiling():
            self.write(weights(score, q, k, mask, q_at, k_at), at)
            return
        step = max(PART // (math.prod(q.shape[:-2]) * k.shape[-2]), 1)
        name, start = self._next()
        wanted = [slice(first, min(first + step, length)) for first in range(0, length, step)]
        if self.rows is not None:
            wanted = [some for some in wanted if any(some.start <= row - start < some.stop for row in self.rows)]
        parts = (
            self._chosen(
                weights(score, q[..., some, :], k, mask.of_queries(some), q_at[some], k_at), start + some.start
            )
            for some in wanted or [slice(0, 0)]
        )
        rows = range(length) if self.rows is None else [row for row in self.rows if 0 <= row - start < length]
        self._put(name, _gathered(parts, len(rows)), length, at)

    def write(self, weights: Tensor, at: Tensor | None = None) -> None:
        """Puts the weights (B, [H,] Tq, Tk) of one read on the tape; ``at`` (Tq,): where in a past the queries stand.

        Compiled code goes through an operator that the compiler cannot look into: nothing breaks its graph, and the
        ticket is data, so that a program compiled for one tape serves the next.
        """
        if torch.compiler.is_compiling():
            torch.ops.regard.write_tape(weights.detach(), at, self.ticket)
        else:
            self.keep(weights.detach(), at)

    def keep(self, weights: Tensor, at: Tensor | None = None) -> None:
        """What was asked for of one read."""
        name, start = self._next()
        self._put(name, self._chosen(weights, start).cpu(), weights.shape[-2], at)

    def _next(self) -> tuple[str, int]:
        """What the next read is called, and which row of the tape is its first."""
        name = self.name if self.turns == 1 else f"{self.name}[{self.reads % self.turns}]"
        return name, self.starts.get(name, 0)

    def _chosen(self, weights: Tensor, start: int) -> Tensor:
        """The heads and rows that were asked for, of a read whose first row is ``start``."""
        if self.heads is not None and weights.dim() > 3:
            if max(self.heads, default=0) >= weights.shape[1]:
                raise UserError(
                    f"record: heads={list(self.heads)}: {self.name!r} has heads 0 to {weights.shape[1] - 1}"
                )
            weights = weights[:, list(self.heads)]
        if self.rows is not None:
            here = [row - start for row in self.rows if 0 <= row - start < weights.shape[-2]]
            weights = weights[..., here, :]
        return at_least_float32(weights)

    def _put(self, name: str, kept: Tensor, queries: int, at: Tensor | None) -> None:
        self.tape.reads.setdefault(name, []).append(kept)
        onward = at is not None and int(at[0]) == self.ends.get(name)
        self.tape.onward.setdefault(name, []).append(onward)
        self.ends[name] = queries if at is None else int(at[-1]) + 1
        self.starts[name] = self.starts.get(name, 0) + queries
        self.reads += 1


def _gathered(parts: Iterable[Tensor], rows: int) -> Tensor:
    """Parts (B, [H,] some rows, Tk) of a table, on the CPU: each goes at once to where it will stay, head by head."""
    whole, first = None, 0
    for part in parts:
        if part.shape[-2] == rows:
            return part.cpu()
        if whole is None:
            whole = part.new_empty(*part.shape[:-2], rows, part.shape[-1], device="cpu")
        place = whole[..., first : first + part.shape[-2], :]
        for to, one in zip(place.flatten(0, -3), part.flatten(0, -3)):
            to.copy_(one)
        first += part.shape[-2]
    assert whole is not None
    return whole


PART = 2**26  # weights that are made at a time while somebody watches: 256 MiB
_OPEN: dict[int, Tap] = {}  # the taps of the tapes that are recording, by their tickets


@cache
def _operator() -> None:
    """Makes the operator known to torch, once, when first something is recorded.

    It is said to change the ticket, which it does not: a compiler drops what changes nothing.
    """

    @torch.library.custom_op("regard::write_tape", mutates_args=("ticket",))
    def write_tape(weights: Tensor, at: Tensor | None, ticket: Tensor) -> None:
        _OPEN[int(ticket)].keep(weights, at)

    write_tape.register_fake(lambda weights, at, ticket: None)


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every attention module of a model, by its path."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


@contextmanager
def record(
    model: nn.Module,
    pattern: str | Sequence[str] = "*",
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
) -> Iterator[Tape]:
    """Records the weights of the attention modules whose path matches ``pattern``, or one of several, in the block.

    ``heads`` and ``rows`` limit what is kept; rows stay in their order. A row is a query's place on the tape, where the
    reads of a module follow one another: the same query is the same row whether a model steps or runs at once. Inside
    another ``record`` of the same module this one takes over until it ends.
    """
    found = attentions(model)
    patterns = [pattern] if isinstance(pattern, str) else pattern
    for one in patterns:
        if one != "*" and not any(fnmatchcase(name, one) for name in found):
            raise UserError(f"record: no attention module matches {one!r}.{nearest(one, found)}")
    tape = Tape()
    chosen = {name: module for name, module in found.items() if any(fnmatchcase(name, one) for one in patterns)}
    before = {name: module.tap for name, module in chosen.items()}
    kept = None if heads is None else tuple(heads), None if rows is None else tuple(sorted(rows))
    taps = {name: Tap(tape, name, *kept, module.turns) for name, module in chosen.items()}
    _operator()
    _OPEN.update({int(tap.ticket): tap for tap in taps.values()})
    for name, module in chosen.items():
        module.tap = taps[name]
    try:
        yield tape
    finally:
        for name, module in chosen.items():
            module.tap = before[name]
            del _OPEN[int(taps[name].ticket)]


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
