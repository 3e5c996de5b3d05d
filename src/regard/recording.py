"""Records the attention weights of any model without changing its output.

>>> with record(model, "decoder.*") as tape:        # doctest: +SKIP
...     model(batch)
>>> tape["decoder.attention"].shape                 # doctest: +SKIP
torch.Size([1, 10, 16])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from operator import index
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, weights
from regard.errors import UserError, nearest
from regard.mask import Mask, default_positions
from regard.scores import Score, at_least_float32
from regard.taps import INTERCEPTING, LOCK, RECORDING, Change, between_compilations, opened, register_operators, tap_of


@dataclass(frozen=True)
class Axes:
    """The labels of the queries and keys of an attention read, and the part of the model that it belongs to."""

    rows: Sequence[str]  # the tokens that look (queries)
    columns: Sequence[str]  # the tokens that are looked at (keys)
    part: str = ""  # encoder (source to source), decoder (target to earlier target) or cross (target to source)


@dataclass
class Tape:
    """Recorded weights: for each attention module, by its path in the model, the weights of its reads in order.

    A module that several layers share has one name for each layer: "path[0]", "path[1]" …
    """

    reads: dict[str, list[Tensor]] = field(default_factory=dict)
    # For each read: whether its text continues the text of the previous read, through a KV cache.
    continues: dict[str, list[bool]] = field(default_factory=dict)
    # For each item of the batch: name → axes. Filled in by verbs, empty otherwise.
    captions: list[dict[str, Axes]] = field(default_factory=list)
    # For each item of the batch: the loaded model and the ids that it read, source and target. Filled in by verbs.
    origins: list[tuple[Any, tuple[list[int], list[int]]]] = field(default_factory=list, repr=False)
    # Name → the numbers of the recorded heads, where ``record`` chose some of them.
    heads: dict[str, list[int]] = field(default_factory=dict)
    # The names of all attention modules of the model, recorded or not, from the input to the output.
    modules: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        found = (f"{name} {len(reads)} × {tuple(reads[-1].shape)}" for name, reads in self.reads.items())
        return f"<Tape of {len(self.reads)} modules{': ' * bool(self.reads)}{', '.join(islice(found, 3))}>"

    def __getitem__(self, name: str) -> Tensor:
        """All reads of one module, concatenated along the query axis: (B, [H,] Tq, Tk), at least float32, on the CPU.

        If a KV cache grew from read to read, the weights of keys that came after a query are zero.
        """
        if not self.reads:
            raise KeyError(f"nothing recorded under {name!r}: the tape is empty; run the model while it records.")
        if name not in self.reads:
            raise KeyError(f"nothing recorded under {name!r}.{nearest(name, self.reads)}")
        reads = self.reads[name]
        if all(self.continues[name][1:]):
            keys = max(read.shape[-1] for read in reads)
            reads = [F.pad(read, (0, keys - read.shape[-1])) for read in reads]
        shapes = {(*read.shape[:-2], read.shape[-1]): tuple(read.shape) for read in reads}  # all but the query axis
        if len(shapes) > 1:
            raise UserError(
                f"tape[{name!r}]: cannot join reads of different shapes, {' and '.join(map(str, shapes.values()))}: "
                f"record one batch at a time, or take the reads one by one from tape.reads[{name!r}]."
            )
        return torch.cat(reads, dim=-2)

    def add(self, name: str, weights: Tensor, continues: bool = False) -> None:
        """Appends the weights of one read."""
        self.reads.setdefault(name, []).append(weights)
        self.continues.setdefault(name, []).append(continues)

    def layer_number(self, name: str) -> int | None:
        """The number of a module among those of the model whose names differ only in digits; None: there is only one.

        "decoder.blocks.2.cross.read" has the number 2, also if the other blocks are not recorded.
        """
        alike, recorded = (
            [other for other in names if name_pattern(other) == name_pattern(name)]
            for names in (self.modules, self.reads)
        )
        if len(recorded) >= len(alike):  # all are recorded: the order of the first reads is that of the layers
            alike = recorded
        return alike.index(name) if len(alike) > 1 else None

    def __iter__(self) -> Iterator[str]:
        return iter(self.reads)

    def __len__(self) -> int:
        return len(self.reads)

    def names(self) -> list[str]:
        return list(self.reads)


@dataclass
class Recorder:
    """Writes the weights of one attention module to a tape, limited to the requested heads and query rows."""

    tape: Tape
    name: str
    score: Score
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    shared_by: int = 1  # how many layers share the module; on the tape each has its own name: "name[0]", "name[1]" …
    starts: dict[str, int] = field(default_factory=dict)  # name → how many queries were recorded so far
    ends: dict[str, int] = field(default_factory=dict)  # name → the position after the last recorded query
    reads: int = 0  # how many reads were recorded so far

    @torch.no_grad()
    def record_read(
        self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None = None, k_at: Tensor | None = None
    ) -> None:
        """Computes the weights of one read, by queries (B, [H,] Tq, D), and writes them to the tape.

        ``k_at`` is given only if the keys are in a KV cache. The weights of a long text are computed in chunks, and
        only for the requested rows, because all weights of 8,192 tokens take 3 GiB a layer.
        """
        length, at = q.shape[-2], None if k_at is None else q_at
        q_at, k_at = default_positions(q, k, q_at, k_at)
        size = max(CHUNK // (math.prod(q.shape[:-2]) * k.shape[-2]), 1)
        name, start = self._next_name()
        chunks = [slice(first, min(first + size, length)) for first in range(0, length, size)]
        if self.rows is not None:
            chunks = [chunk for chunk in chunks if any(chunk.start <= row - start < chunk.stop for row in self.rows)]
        parts = (
            self._select(
                weights(self.score, q[..., chunk, :], k, mask.for_queries(chunk), q_at[chunk], k_at),
                start + chunk.start,
            )
            for chunk in chunks or [slice(0, 0)]
        )
        rows = range(length) if self.rows is None else [row for row in self.rows if 0 <= row - start < length]
        self._append(name, _concatenate(parts, len(rows)), length, at)

    @torch.no_grad()
    def record_weights(self, weights: Tensor, at: Tensor | None = None) -> None:
        """Writes the requested heads and rows of the weights (B, [H,] Tq, Tk) of one read to the tape.

        ``at`` (Tq,) are the positions of the queries if the keys are in a KV cache.
        """
        name, start = self._next_name()
        self._append(name, self._select(weights, start).cpu(), weights.shape[-2], at)

    def _next_name(self) -> tuple[str, int]:
        """The name of the next read, and the row of the tape at which it starts."""
        name = tape_name(self.name, self.shared_by, self.reads)
        return name, self.starts.get(name, 0)

    def _select(self, weights: Tensor, start: int) -> Tensor:
        """The requested heads and rows of a read whose first row on the tape is ``start``."""
        if self.heads is not None and weights.dim() > 3:
            count = weights.shape[1]
            if not all(-count <= head < count for head in self.heads):
                raise UserError(f"record: heads={list(self.heads)}: {self.name!r} has heads 0 to {count - 1}.")
            self.heads = tuple(head % count for head in self.heads)  # -1 is the last head
            weights = weights[:, list(self.heads)]
        if self.rows is not None:
            here = [row - start for row in self.rows if 0 <= row - start < weights.shape[-2]]
            weights = weights[..., here, :]
        return at_least_float32(weights)

    def _append(self, name: str, weights: Tensor, queries: int, at: Tensor | None) -> None:
        self.tape.add(name, weights, continues=at is not None and int(at[0]) == self.ends.get(name))
        if self.heads is not None and weights.dim() > 3:
            self.tape.heads[name] = list(self.heads)
        self.ends[name] = queries if at is None else int(at[-1]) + 1
        self.starts[name] = self.starts.get(name, 0) + queries
        self.reads += 1


@dataclass
class Watcher:
    """The weights of the reads of one attention module, with gradient, on the device of the model."""

    shared_by: int = 1  # as in Recorder
    weights: list[Tensor] = field(default_factory=list)
    read: list[Tensor] = field(default_factory=list)

    def add(self, weights: Tensor, read: Tensor) -> None:
        self.weights.append(weights)
        self.read.append(read)


@dataclass(frozen=True)
class Watched:
    """What ``watch`` gives a loss: two tapes whose weights have a gradient and stay on the device."""

    watchers: dict[str, Watcher]  # by the path of the module

    @property
    def weights(self) -> Tape:
        """The weights of the scores, before a reader changed them."""
        return self._tape({path: watcher.weights for path, watcher in self.watchers.items()})

    @property
    def read(self) -> Tape:
        """The weights that were read. Without a reader they are ``weights``."""
        return self._tape({path: watcher.read for path, watcher in self.watchers.items()})

    def _tape(self, reads: dict[str, list[Tensor]]) -> Tape:
        tape = Tape()
        for path, tables in reads.items():
            for number, table in enumerate(tables):
                tape.add(tape_name(path, self.watchers[path].shared_by, number), table)
        return tape


def name_pattern(name: str) -> str:
    """The name with * for each number: equal for the same module of all layers."""
    return re.sub(r"\d+", "*", name)


def tape_name(path: str, shared_by: int, reads: int) -> str:
    """The name of the next read of a module, after some reads: its path, with a number if several layers share it."""
    return path if shared_by == 1 else f"{path}[{reads % shared_by}]"


def _concatenate(parts: Iterable[Tensor], rows: int) -> Tensor:
    """The parts (B, [H,] some rows, Tk) as one CPU tensor; each part is copied to its place before the next is made."""
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


CHUNK = 2**26  # the most weights that are computed at once while recording: 256 MiB


def attentions(model: nn.Module) -> dict[str, Attention]:
    """All attention modules of a model: path → module."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Attention)}


def matching(model: nn.Module, pattern: str | Sequence[str], function: str) -> dict[str, Attention]:
    """The attention modules whose path matches a pattern, or one of several. ``function`` is named in errors."""
    if not isinstance(model, nn.Module):
        raise UserError(f"{function}: a {type(model).__name__} is no module; give model.module of a loaded model.")
    found = attentions(model)
    patterns = [pattern] if isinstance(pattern, str) else pattern
    if patterns and not found:
        cure = "load a model of transformers with regard.load(model, tokenizer=…), or build yours with regard.MultiHead"
        raise UserError(f"{function}: {type(model).__name__} has no attention module of Regard; {cure}.")
    for one in patterns:
        if one != "*" and not any(fnmatchcase(name, one) for name in found):
            raise UserError(f"{function}: no attention module matches {one!r}.{nearest(one, found)}")
    return {name: module for name, module in found.items() if any(fnmatchcase(name, one) for one in patterns)}


@contextmanager
def record(
    model: nn.Module,
    pattern: str | Sequence[str] = "*",
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
) -> Iterator[Tape]:
    """Records the weights of the attention modules whose path matches ``pattern``, or one of several patterns.

    ``heads`` and ``rows``, two lists of numbers, limit what is recorded. A row is the index of a query on the tape,
    where the reads of a module follow one another: a query has the same row whether the model runs step by step or all
    at once. Inside another ``record`` of the same module, only the inner one records. What other threads read is not
    recorded, and neither are copies of the model (``regard.taps``).
    """
    tape, chosen = Tape(), matching(model, pattern, "record")
    tape.modules = [
        tape_name(name, module.shared_by, turn)
        for name, module in attentions(model).items()
        for turn in range(module.shared_by)
    ]
    some_heads, some_rows = _numbers("heads", heads), _numbers("rows", rows)
    if some_rows is not None and min(some_rows, default=0) < 0:
        raise UserError(f"record: rows={list(some_rows)}: rows count from 0; give numbers of 0 or more.")
    some_rows = None if some_rows is None else tuple(sorted(some_rows))
    recorders = {
        name: Recorder(tape, name, one.score, some_heads, some_rows, one.shared_by) for name, one in chosen.items()
    }
    register_operators()
    changes = {module.number: _with_recorder(recorders[name]) for name, module in chosen.items()}
    with opened(changes, RECORDING):
        yield tape
    longest = max((rows for recorder in recorders.values() for rows in recorder.starts.values()), default=0)
    if some_rows and 0 < longest <= some_rows[-1]:  # the last of these rows was not recorded, of any module
        raise UserError(f"record: rows={list(some_rows)}: the tape has rows 0 to {longest - 1}.")


def _numbers(name: str, given: Iterable[int] | None) -> tuple[int, ...] | None:
    """The list of numbers given for the argument ``name`` of ``record``."""
    try:
        return None if given is None else tuple(map(index, given))
    except TypeError:
        raise UserError(f"record: {name}={given!r}: give a list of numbers, such as {name}=[0].") from None


def _with_recorder(recorder: Recorder | None) -> Change:
    return lambda tap: replace(tap, recorder=recorder)


@contextmanager
def pause_recording(model: nn.Module) -> Iterator[None]:
    """Inside this context no tape records: for searches, whose many rejected hypotheses should not be recorded."""
    with opened({module.number: _with_recorder(None) for module in recorded(model)}):
        yield


@contextmanager
def observe(modules: Mapping[str, Attention], function: Callable[..., None]) -> Iterator[None]:
    """Calls a function with each read of these modules, by their paths, inside this block.

    It gets the path, the arguments of ``Attention.forward``, with the padding of the memory in the mask, and its
    output. Blocks are not run by compiled code then.
    """

    def shown(path: str) -> Change:
        return lambda tap: replace(tap, observers=(*tap.observers, partial(function, path)))

    with opened({module.number: shown(path) for path, module in modules.items()}, INTERCEPTING):
        yield


@contextmanager
def watch(model: nn.Module, pattern: str | Sequence[str] = "*") -> Iterator[Watched]:
    """Gives a loss the weights of the attention modules whose path matches, with gradient, while the model runs.

    Inside this context these modules read by the definition, since the fast route has no weights. Several ``watch`` of
    the same module may be nested. It changes the module for all threads: a loss watches the model that it trains.
    """
    chosen = matching(model, pattern, "watch")
    watched = Watched({name: Watcher(module.shared_by) for name, module in chosen.items()})
    own = {id(watcher) for watcher in watched.watchers.values()}
    try:
        with between_compilations(), LOCK:  # compiled code has a program for each number of watchers
            for name, module in chosen.items():
                module.watchers = (*module.watchers, watched.watchers[name])
        yield watched
    finally:
        with between_compilations(), LOCK:
            for module in chosen.values():
                module.watchers = tuple(one for one in module.watchers if id(one) not in own)


def recorded(model: nn.Module) -> dict[Attention, Recorder]:
    """The recorders with which the caller records this model now."""
    if not RECORDING.open:
        return {}
    taps = {module: tap_of(module.number) for module in attentions(model).values()}
    return {module: cast(Recorder, tap.recorder) for module, tap in taps.items() if tap.recorder is not None}


def active_tape(model: nn.Module) -> Tape | None:
    """The tape on which the caller records this model now, or None."""
    return next((recorder.tape for recorder in recorded(model).values()), None)


def intercepted(model: nn.Module) -> bool:
    """Whether something changes or observes the reads of this model: a reader, an edit or an observer of the caller."""
    modules = attentions(model).values()
    if any(module.reader is not None for module in modules):
        return True
    if not INTERCEPTING.open:
        return False
    return any(tap.reader is not None or tap.observers for tap in (tap_of(module.number) for module in modules))
