"""What a caller has open on a model: recordings, edits and observers of its attention, and the states of its layers.

A model may be used by several callers at the same time, so none of these writes into the model. They are in a context
variable: every thread has its own context, and an asyncio task starts with a copy of the context that creates it. A
copy sees what was open when it was made, until the block that opened it ends.

A context variable cannot be read in compiled code, and reading it takes time. So three flags of the whole process say
whether any context has something open, and the compiler makes one program for each value of a flag. Code with an open
recording calls an operator that reads the context variable when it runs. Code with an open edit or observer, or with
collected layers, is not compiled as long as that is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from regard.mask import Mask
from regard.scores import Score

_LOCK = Lock()
_NUMBERS = count()


class Flag:
    """Whether any context of the process has something of one kind open."""

    def __init__(self) -> None:
        self.open = False
        self._count = 0

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Inside this context the flag is open."""
        _renew_lock_in_forks()
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with _LOCK:
            self._count += number
            self.open = self._count > 0


RECORDING = Flag()  # tapes
INTERCEPTING = Flag()  # edits and observers, which are Python functions of the caller
COLLECTING = Flag()  # states of layers


@cache
def _renew_lock_in_forks() -> None:
    """Gives a forked process a lock of its own, since another thread may hold the lock at the time of the fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_LOCK._at_fork_reinit)  # type: ignore[attr-defined]


class Records(Protocol):
    """Writes the weights of an attention module to a tape (``regard.recording.Recorder``)."""

    def record_read(
        self, score: Score, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None, k_at: Tensor | None
    ) -> None: ...

    def record_weights(self, weights: Tensor, at: Tensor | None) -> None: ...


@dataclass(frozen=True)
class Tap:
    """What a caller has open on one attention module."""

    recorder: Records | None = None
    reader: Callable[[Tensor], Tensor] | None = None  # used in the place of the module's own reader
    observers: tuple[Callable[..., None], ...] = ()  # called with each read: the arguments of `forward`, and its output
    explicit: bool = False  # reads by the definition even without a reader


NOTHING = Tap()
Change = Callable[[Tap], Tap]


@dataclass(eq=False)
class Opening:
    """One ``with`` block: how it changes the taps of modules, by their numbers."""

    changes: Mapping[int, Change]
    open: bool = True  # False after the end of the block, also for the contexts that were copied inside


@dataclass(frozen=True, eq=False)
class Opened:
    """All that a context has open, the outermost block first, and the taps that follow from it."""

    openings: tuple[Opening, ...] = ()
    taps: Mapping[int, Tap] = field(default_factory=dict)

    def with_openings(self, openings: tuple[Opening, ...]) -> Opened:
        taps: dict[int, Tap] = {}
        for opening in openings:
            taps |= {number: change(taps.get(number, NOTHING)) for number, change in opening.changes.items()}
        return Opened(openings, taps)

    def still_open(self) -> Opened:
        return self.with_openings(tuple(opening for opening in self.openings if opening.open))


_OPENED: ContextVar[Opened] = ContextVar("opened", default=Opened())  # noqa: B039  never changed in place


def new_number() -> Tensor:
    """The number of a new attention module, by which taps are found: a tensor, which compiled code takes as an input.

    So one program serves all modules and all tapes.
    """
    return torch.tensor(next(_NUMBERS), device="cpu")


def tap_of(number: Tensor) -> Tap:
    """What this context has open on the module with this number. Compiled code cannot call it."""
    found = _OPENED.get()
    if not all(opening.open for opening in found.openings):  # this context was copied in a block that has ended
        found = found.still_open()
        _OPENED.set(found)
    return found.taps.get(int(number), NOTHING) if found.taps else NOTHING


@contextmanager
def opened(changes: Mapping[int, Change], flag: Flag | None = None) -> Iterator[None]:
    """Inside this block, the taps of these modules are changed for this context and for those that are copied from it.

    Blocks may end in any order, and also in another context than the one in which they began (generators may do so).
    """
    opening = Opening(changes)
    with nullcontext() if flag is None else flag.raised():
        _OPENED.set(_OPENED.get().with_openings((*_OPENED.get().openings, opening)))
        try:
            yield
        finally:
            opening.open = False
            _OPENED.set(_OPENED.get().still_open())


def write_tape(weights: Tensor, at: Tensor | None, number: Tensor) -> None:
    """Writes the weights of a read to the tape of this context, if it has one, from compiled code.

    The compiler does not trace the operator, so the graph has no break.
    """
    torch.ops.regard.write_tape(weights.detach(), at, number)


@cache
def register_operator() -> None:
    """Registers the custom operator with torch, once, at the first recording.

    The operator declares that it changes ``number``, though it does not: the compiler would remove an operator that
    changes nothing.
    """

    @torch.library.custom_op("regard::write_tape", mutates_args=("number",))
    def write(weights: Tensor, at: Tensor | None, number: Tensor) -> None:
        if (recorder := tap_of(number).recorder) is not None:
            recorder.record_weights(weights, at)

    write.register_fake(lambda weights, at, number: None)


# --- gradient checkpointing ---------------------------------------------------------------------------------------


def recomputation(
    watched: Sequence[Tensor],
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """The contexts of a forward pass and of its repetition in the backward pass (``context_fn`` of ``checkpoint``).

    The repetition has the edits of the forward pass, whatever is open in the backward pass: on a GPU, that runs in a
    thread of autograd. It is not recorded, observed or watched a second time. The modules with the numbers ``watched``
    read by the definition again.
    """
    taps = {number: Tap(reader=tap.reader) for number, tap in _OPENED.get().taps.items() if tap.reader is not None}
    for number in map(int, watched):
        taps[number] = replace(taps.get(number, NOTHING), explicit=True)
    return nullcontext(), _repeated(Opened(taps=taps))


@contextmanager
def _repeated(forward: Opened) -> Iterator[None]:
    token = _OPENED.set(forward)
    try:
        with INTERCEPTING.raised() if forward.taps else nullcontext():
            yield
    finally:
        _OPENED.reset(token)


# --- the states of layers -----------------------------------------------------------------------------------------

_LAYERS: ContextVar[list[Tensor] | None] = ContextVar("layers", default=None)


def add_layer(states: Tensor) -> None:
    """Adds the states (B, T, width) of a layer to those that the caller collects, if it does."""
    if collecting():
        _append(states)


def collecting() -> bool:
    """Whether the caller collects the states of layers."""
    return COLLECTING.open and _collects()


@contextmanager
def collected_layers() -> Iterator[list[Tensor]]:
    """Collects the states of the layers that run inside this block, and not in an inner block of this kind."""
    found: list[Tensor] = []
    with COLLECTING.raised():
        token = _LAYERS.set(found)
        try:
            yield found
        finally:
            _LAYERS.reset(token)


@contextmanager
def inner_layers() -> Iterator[list[Tensor]]:
    """Keeps the layers of a part of a model apart from those that the caller collects: they are in this list."""
    if collecting():
        with collected_layers() as found:
            yield found
    else:
        yield []


def _collects() -> bool:
    if torch.compiler.is_dynamo_compiling():
        return bool(torch.compiler.disable(_collects)())
    return _LAYERS.get() is not None


def _append(states: Tensor) -> None:
    if torch.compiler.is_dynamo_compiling():
        torch.compiler.disable(_append)(states)
        return
    layers = _LAYERS.get()
    assert layers is not None
    layers.append(states)
