"""What a caller has open on a model: recordings, edits and observers of its attention, and the states of its layers.

A model may be used by several callers at the same time, so none of these writes into the model. They are in a context
variable: every thread has its own context, and an asyncio task starts with a copy of the context that creates it. A
copy sees what was open when it was made, until the block that opened it ends.

A context variable cannot be read in compiled code, and reading it takes time. So three flags of the whole process say
whether any context has something open, and the compiler makes one program for each value of a flag. With a recording
open, the program calls an operator that reads the context variable when it runs. As long as any thread has an edit or
an observer open, on any model, attention does not run compiled; neither does code that adds the states of a layer, as
long as any thread collects them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from threading import RLock, get_ident
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from regard.device import autocast_dtype
from regard.mask import Mask, default_positions

LOCK = RLock()  # held while something changes that all threads use
_NUMBERS = count()


def between_compilations() -> AbstractContextManager[object]:
    """Inside this context no other thread compiles.

    The compiler looks twice at what a program depends on: as it traces, and after it has traced, to learn for which
    values the program is right. A change between the two would give a program that is wrong for ever.
    """
    lock = _compile_lock()
    return nullcontext() if lock is None else lock


def _compile_lock() -> Any:
    """The lock that torch holds while it compiles; None if it has compiled nothing yet."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


class Flag:
    """Whether any context of the process has something of one kind open."""

    def __init__(self) -> None:
        self.open = False  # read by compiled code, so it changes between two compilations
        self.openings: set[Opening] = set()

    def add(self, opening: Opening) -> None:
        with LOCK:
            self.openings.add(opening)
            if self.open:
                return
        self._renew()

    def remove(self, opening: Opening) -> None:
        with LOCK:
            self.openings.discard(opening)
            if self.openings:
                return
        self._renew()

    def _renew(self) -> None:
        with between_compilations(), LOCK:
            self.open = bool(self.openings)


RECORDING = Flag()  # tapes
INTERCEPTING = Flag()  # edits and observers, which are Python functions of the caller
COLLECTING = Flag()  # lists that collect the states of layers


class Records(Protocol):
    """Writes the weights of an attention module to a tape (``regard.recording.Recorder``)."""

    def record_read(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None, k_at: Tensor | None) -> None: ...

    def record_weights(self, weights: Tensor, at: Tensor | None) -> None: ...


@dataclass(frozen=True)
class Tap:
    """What a caller has open on one attention module."""

    recorder: Records | None = None
    reader: Callable[[Tensor], Tensor] | None = None  # used in the place of the module's own reader
    observers: tuple[Callable[..., None], ...] = ()  # called with each read: the arguments of `forward`, and its output
    repeats_watched: bool = False  # this repeats a watched read: read by the definition, and do not watch


NOTHING = Tap()
Change = Callable[[Tap], Tap]


@dataclass(eq=False)
class Opening:
    """One ``with`` block. It ends for all contexts at once, also for those that were copied inside it.

    What it held is dropped then, since a copy may live much longer than the block.
    """

    changes: Mapping[int, Change] = field(default_factory=dict)  # of the taps of modules, by their numbers
    layers: list[Tensor] | None = None  # the states of layers are added to this list
    before: tuple[Opening, ...] = ()  # of the repetition of a forward pass: what the context had open before it
    open: bool = True
    thread: int = field(default_factory=get_ident)

    def end(self) -> None:
        self.open, self.changes, self.layers, self.before = False, {}, None, ()


_OPENED: ContextVar[tuple[Opening, ...]] = ContextVar("opened", default=())  # the outermost block first


def _still_open(openings: tuple[Opening, ...]) -> tuple[Opening, ...]:
    return tuple(opening for opening in openings if opening.open)


@contextmanager
def _block(opening: Opening, flag: Flag | None) -> Iterator[None]:
    """A ``with`` block. Blocks may end in any order, and in another context than that in which they began."""
    try:
        if flag is not None:
            flag.add(opening)
        _OPENED.set((*_still_open(_OPENED.get()), opening))
        yield
    finally:
        opening.end()
        _OPENED.set(_still_open(_OPENED.get()))
        if flag is not None:
            flag.remove(opening)


def opened(changes: Mapping[int, Change], flag: Flag | None = None) -> AbstractContextManager[None]:
    """Inside this block, the taps of these modules are changed for this context and for those that are copied in it."""
    return _block(Opening(changes), flag)


def tap_of(number: int) -> Tap:
    """What this context has open on the module with this number. Compiled code cannot call it."""
    tap = NOTHING
    for opening in _OPENED.get():
        change = opening.changes.get(number)
        if change is not None:
            tap = change(tap)
    return tap


def new_number() -> int:
    """The number of a new attention module, by which taps are found."""
    return next(_NUMBERS)


def number_tensor(number: int) -> Tensor:
    """The number of a module as compiled code takes it: an input, so that one program serves all modules.

    The modes of torch have no effect on a tensor that is made from an array in this way, except inference mode. So it
    is a plain tensor on the CPU even if the model is built on another device, or of fake tensors.
    """
    with torch.inference_mode(False):
        return from_dlpack(np.array(number))


# --- edits -----------------------------------------------------------------------------------------------------------


_VISIBLE: ContextVar[Tensor | None] = ContextVar("visible", default=None)


def read_by(reader: Callable[[Tensor], Tensor], weights: Tensor, visible: Tensor | None) -> Tensor:
    """What a reader returns for weights; meanwhile `visible_keys` says which keys the mask of this read allows."""
    token = _VISIBLE.set(visible)
    try:
        return reader(weights)
    finally:
        _VISIBLE.reset(token)


def visible_keys() -> Tensor | None:
    """In the function of an edit: True at the keys that a query may look at; the shape broadcasts to the weights.

    None: all. A visible key may have the weight 0, if a softmax gives it less than the smallest number.
    """
    return _VISIBLE.get()


# --- forks --------------------------------------------------------------------------------------------------------


def _renew_in_child() -> None:
    """Makes a forked process forget the other threads, which it does not have.

    Another thread may have held a lock at the time of the fork, and what it had open will never end.
    """
    LOCK._at_fork_reinit()  # type: ignore[attr-defined]
    lock = _compile_lock()
    if lock is not None and not lock._is_owned():
        lock._at_fork_reinit()
    here = _OPENED.get()
    for flag in (RECORDING, INTERCEPTING, COLLECTING):
        flag.openings = {one for one in flag.openings if one.thread == get_ident() or one in here}
        flag.open = bool(flag.openings)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)


# --- recording in compiled code -----------------------------------------------------------------------------------


def record_read_as_it_runs(
    number: Tensor, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None, k_at: Tensor | None
) -> None:
    """Makes compiled code record a read, whenever its caller records the module with this number.

    The compiler does not trace the operator, so the graph has no break, and the weights are computed for a tape alone.
    """
    bias = mask.bias
    if mask.bias_at is not None:  # an operator takes no function
        positions = default_positions(q, k, q_at, k_at)
        bias = Mask(bias=mask.bias, bias_at=mask.bias_at).table(*positions, q.dim())
    given = (None if one is None else one.detach() for one in (q, k, q_at, k_at, mask.keys, mask.pairs, bias))
    torch.ops.regard.record_read(*given, mask.causal, mask.window, mask.sees_self, autocast_dtype(q.device), number)


def record_weights_as_it_runs(number: Tensor, weights: Tensor, at: Tensor | None) -> None:
    """Makes compiled code record weights that it has, whenever its caller records the module with this number."""
    torch.ops.regard.record_weights(weights.detach(), at, number)


def register_operators() -> None:
    """Registers the two operators with torch, once, at the first recording."""
    with LOCK:
        _registered()


@cache
def _registered() -> None:
    """Registers the operators. ``cache`` has no lock: two threads would both run this.

    The operators declare that they change ``number``, though they do not: the compiler would remove an operator that
    changes nothing. The tag keeps them out of the compiler's CUDA graphs, which would run them at the capture alone.
    """
    unsafe = (torch.Tag.cudagraph_unsafe,)

    @torch.library.custom_op("regard::record_read", mutates_args=("number",), tags=unsafe)
    def record_read(
        q: Tensor,
        k: Tensor,
        q_at: Tensor | None,
        k_at: Tensor | None,
        keys: Tensor | None,
        pairs: Tensor | None,
        bias: Tensor | None,
        causal: bool,
        window: int | None,
        sees_self: bool,
        autocast: torch.dtype | None,
        number: Tensor,
    ) -> None:
        if (recorder := tap_of(int(number)).recorder) is not None:
            mask = Mask(causal, window, keys, pairs, bias, sees_self=sees_self)
            with torch.autocast(q.device.type, autocast, enabled=autocast is not None):  # a compiled program is outside
                recorder.record_read(q, k, mask, q_at, k_at)

    @torch.library.custom_op("regard::record_weights", mutates_args=("number",), tags=unsafe)
    def record_weights(weights: Tensor, at: Tensor | None, number: Tensor) -> None:
        if (recorder := tap_of(int(number)).recorder) is not None:
            recorder.record_weights(weights, at)

    record_read.register_fake(lambda *given: None)
    record_weights.register_fake(lambda *given: None)


# --- gradient checkpointing ---------------------------------------------------------------------------------------


def recomputation(watched: Sequence[int] = ()) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """The contexts of a forward pass and of its repetition in the backward pass (``context_fn`` of ``checkpoint``).

    The repetition has the edits of the forward pass, whatever is open in the backward pass: on a GPU, that runs in a
    thread of autograd. It is not recorded or observed a second time, and adds no states of layers. The modules with the
    numbers ``watched`` read by the definition again.
    """
    taps = {number: tap_of(number) for opening in _OPENED.get() for number in opening.changes}
    taps = {number: Tap(reader=tap.reader) for number, tap in taps.items() if tap.reader is not None}
    for number in watched:
        taps[number] = replace(taps.get(number, NOTHING), repeats_watched=True)
    return nullcontext(), _Repetition(taps)


class _Repetition(AbstractContextManager[None]):
    """The context of the repetition of a forward pass. Several backward passes enter it, perhaps at the same time."""

    def __init__(self, taps: Mapping[int, Tap]) -> None:
        self.changes: Mapping[int, Change] = {number: _constant(tap) for number, tap in taps.items()}

    def __enter__(self) -> None:
        opening = Opening(self.changes, before=_OPENED.get())
        try:
            if self.changes:
                INTERCEPTING.add(opening)  # which may wait for the compiler, and be interrupted
            _OPENED.set((opening,))
        except BaseException:
            INTERCEPTING.remove(opening)
            raise

    def __exit__(self, *error: object) -> None:
        opening = _OPENED.get()[0]
        _OPENED.set(_still_open(opening.before))
        opening.end()
        if self.changes:
            INTERCEPTING.remove(opening)


def _constant(tap: Tap) -> Change:
    return lambda before: tap


# --- the states of layers -----------------------------------------------------------------------------------------


def add_layer(states: Tensor) -> None:
    """Adds the states (B, T, width) of a layer to those that the caller collects, if it does."""
    if COLLECTING.open:
        _append(states)


def collecting() -> bool:
    """Whether the caller collects the states of layers."""
    return COLLECTING.open and _collects()


@contextmanager
def collected_layers() -> Iterator[list[Tensor]]:
    """Collects the states of the layers that run inside this block, and not in an inner block of this kind."""
    found: list[Tensor] = []
    with _block(Opening(layers=found), COLLECTING):
        yield found


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
    return _layers() is not None


def _append(states: Tensor) -> None:
    if torch.compiler.is_dynamo_compiling():
        torch.compiler.disable(_append)(states)
    elif (layers := _layers()) is not None:
        layers.append(states)


def _layers() -> list[Tensor] | None:
    """The list to which this context adds the states of layers."""
    return next((one.layers for one in reversed(_OPENED.get()) if one.layers is not None), None)
