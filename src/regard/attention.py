"""Attention to a memory: the definition (``weights``), the fast route (``attend``), and the modules that use them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import check_sizes
from regard.mask import EVERYTHING, Mask, default_positions, zero_padding
from regard.scores import ScaledDot, Score
from regard.taps import (
    INTERCEPTING,
    RECORDING,
    new_number,
    number_tensor,
    read_by,
    record_read_as_it_runs,
    record_weights_as_it_runs,
    tap_of,
)

if TYPE_CHECKING:
    from regard.recording import Watcher


def weights(
    score: Score, q: Tensor, k: Tensor, mask: Mask = EVERYTHING, q_at: Tensor | None = None, k_at: Tensor | None = None
) -> Tensor:
    """The attention weights, by the definition. (..., Tq, D), (..., Tk, D) → (..., Tq, Tk)

    ``k`` is ``score.keys(memory)``, not the memory itself. A row is a softmax over the keys that the mask allows and
    sums to one; a row that is fully masked is zeros. The rows of ``LocalPredictive`` sum to at most one. What padding
    (``mask.keys``) contains changes nothing, even if it is NaN.
    """
    q_at, k_at = default_positions(q, k, q_at, k_at)
    return score.weights(q, zero_padding(k, mask.keys, q.dim()), mask, q_at, k_at)


def attend(
    score: Score,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = EVERYTHING,
    dropout: float = 0.0,
    q_at: Tensor | None = None,
    k_at: Tensor | None = None,
) -> Tensor:
    """The attention output, ``weights(score, q, k, mask) @ v``, by the fastest route that the score has."""
    k, v = (zero_padding(x, mask.keys, q.dim()) for x in (k, v))
    return score.attend(q, k, v, mask, dropout, q_at, k_at)


@dataclass(frozen=True, eq=False)
class Memory:
    """The keys and values that attention reads: those of a source, or the slots of a KV cache.

    A memory is passed to modules and returned by them; no module stores one.
    """

    keys: Tensor  # (B, ..., Tk, D)
    values: Tensor  # (B, ..., Tk, Dv)
    real: Tensor | None = None  # (B, Tk) False at padding
    finite_padding: bool = False  # whether keys and values at padding are known to be finite

    def write_at(self, slots: Tensor, new: Memory) -> Memory:
        """The memory with ``new`` written to these slots (T,), in place: the old memory must not be used afterwards.

        Gradients pass through: a text of T tokens needs one cache instead of T.
        """
        write = WriteInPlace.apply if torch.is_grad_enabled() else Tensor.index_copy_
        return replace(  # under autocast new keys and values may be half precision
            self,
            keys=write(self.keys, -2, slots, new.keys.to(self.keys.dtype)),
            values=write(self.values, -2, slots, new.values.to(self.values.dtype)),
        )

    def first(self, slots: int) -> Memory:
        """The memory of the first ``slots`` slots."""
        real = None if self.real is None else self.real[:, :slots]
        return replace(self, keys=self.keys[..., :slots, :], values=self.values[..., :slots, :], real=real)

    def contiguous(self) -> Memory:
        """The same memory in contiguous tensors; otherwise every matrix product would copy them.

        ``Tensor.contiguous`` would leave any stride to a dimension of size 1, and the kernels of decoding read strides.
        """
        keys, values = (x.clone(memory_format=torch.contiguous_format) for x in (self.keys, self.values))
        return replace(self, keys=keys, values=values)

    def new_zeros(self, rows: int, slots: int) -> Memory:
        """A memory of zeros with this many rows and slots; the other sizes and the dtype are those of this memory."""
        keys, values = (x.new_zeros(rows, *x.shape[1:-2], slots, x.shape[-1]) for x in (self.keys, self.values))
        return Memory(keys, values)

    def select(self, rows: Tensor) -> Memory:
        """The memory whose row i is row ``rows[i]`` of this one."""
        real = None if self.real is None else self.real[rows]
        return replace(self, keys=self.keys[rows], values=self.values[rows], real=real)

    def mask_padding(self, mask: Mask) -> Mask:
        """The mask joined with this memory's padding; without padding, the same mask."""
        return mask if self.real is None else mask & Mask(keys=self.real)

    def zero_padding(self, real: Tensor | None) -> Memory:
        """The memory with zeros where ``real`` (B, Tk) is False; the same memory if nothing there can be NaN."""
        if real is None or (self.finite_padding and real is self.real):
            return self
        return Memory(zero_padding(self.keys, real), zero_padding(self.values, real), real, finite_padding=True)


class WriteInPlace(torch.autograd.Function):
    """``cache.index_copy_(dim, slots, new)`` with gradients, although the cache was read before.

    Each slot is written once, before any step reads it, so the values that earlier steps saved for their gradients do
    not change.
    """

    @staticmethod
    def forward(ctx: Any, cache: Tensor, dim: int, slots: Tensor, new: Tensor) -> Tensor:
        ctx.dim, ctx.slots = dim, slots
        return cache.data.index_copy_(dim, slots, new)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, Tensor]:
        return gradient, None, None, gradient.index_select(ctx.dim, ctx.slots)


@dataclass(frozen=True, eq=False)
class Look:
    """The output of an attention read and the weights that were read, both with gradient."""

    context: Tensor
    weights: Tensor


class Attention(nn.Module):
    """Attention to a memory. Every model here attends through this module, so that recording finds all its weights.

    The output comes from the fast route. While the caller records, the weights are computed in addition, by their
    definition, so recording never changes the output. A reader (``regard.readers``) is a module that changes the
    weights before the values are read: the output is then ``reader(weights) @ values``, by the definition.
    """

    def __init__(self, score: Score, dropout: float = 0.0, reader: nn.Module | None = None) -> None:
        super().__init__()
        if isinstance(reader, type):
            raise TypeError(f"reader={reader.__name__} is a class; pass an instance, reader={reader.__name__}()")
        self.score = score
        self.dropout = dropout
        self.reader = reader  # None: soft attention; inside edit() the caller has another reader
        self.watchers: tuple[Watcher, ...] = ()  # set by watch()
        self.shared_by = 1  # how many layers use this module
        self._set_number()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Gives a copy of the module a number of its own: what is open on a module is not open on its copies."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._set_number()

    def _set_number(self) -> None:
        self.number = new_number()
        self.number_tensor = number_tensor(self.number)  # for compiled code

    def memory(self, states: Tensor, real: Tensor | None = None, values: Tensor | None = None) -> Memory:
        """The memory of states (B, T, D). The keys are projected here once, not at every read.

        The values are the states, unless others are given.
        """
        states = zero_padding(states, real)
        values = states if values is None else zero_padding(values, real)
        return Memory(self.score.keys(states), values, real, finite_padding=True)

    def forward(
        self,
        q: Tensor,
        memory: Memory,
        mask: Mask = EVERYTHING,
        q_at: Tensor | None = None,
        k_at: Tensor | None = None,
    ) -> Tensor:
        """The attention output (B, ..., Tq, Dv) of the queries (B, ..., Tq, D)."""
        if INTERCEPTING.open and torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(self.forward)(q, memory, mask, q_at, k_at)
        if (
            self.watchers
            or self.current_reader is not None
            or (INTERCEPTING.open and tap_of(self.number).repeats_watched)
        ):
            return self.look(q, memory, mask, q_at, k_at).context
        mask = memory.mask_padding(mask)
        memory = memory.zero_padding(mask.keys)
        dropout = self.dropout if self.training else 0.0
        context = self.score.attend(q, memory.keys, memory.values, mask, dropout, q_at, k_at)
        if RECORDING.open:
            self._record(q, memory.keys, mask, q_at, k_at)
        if INTERCEPTING.open:
            self._show(q, memory, mask, q_at, k_at, context)
        return context

    def look(
        self,
        q: Tensor,
        memory: Memory,
        mask: Mask = EVERYTHING,
        q_at: Tensor | None = None,
        k_at: Tensor | None = None,
    ) -> Look:
        """The output and the weights by the definition, both with gradient; with a reader, the weights it returns.

        Whatever a reader returns, keys that the mask forbids are not read.
        """
        if INTERCEPTING.open and torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(self.look)(q, memory, mask, q_at, k_at)
        mask = memory.mask_padding(mask)
        memory = memory.zero_padding(mask.keys)
        read = soft = self.score.weights(q, memory.keys, mask, *default_positions(q, memory.keys, q_at, k_at))
        if (reader := self.current_reader) is not None:
            table = mask.table(*default_positions(q, memory.keys, q_at, k_at), q.dim())
            visible = table if table is None or table.dtype == torch.bool else table > -math.inf
            read = read_by(reader, soft, visible) if INTERCEPTING.open else reader(soft)
            if visible is not None:
                read = read.masked_fill(~visible, 0.0)
        if self.watchers and not (INTERCEPTING.open and tap_of(self.number).repeats_watched):
            for watcher in self.watchers:
                watcher.add(soft, read)
        if RECORDING.open:
            self._record_weights(read, None if k_at is None else q_at)
        context = F.dropout(read, self.dropout, self.training).to(memory.values.dtype) @ memory.values
        if INTERCEPTING.open:
            self._show(q, memory, mask, q_at, k_at, context)
        return Look(context, read)

    @property
    def current_reader(self) -> Callable[[Tensor], Tensor] | None:
        """The reader of this module in the present context: that of an edit, or else its own."""
        edited = tap_of(self.number).reader if INTERCEPTING.open else None
        return self.reader if edited is None else edited

    def _record(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor | None, k_at: Tensor | None) -> None:
        """Computes the weights of a read by their definition, if the caller records this module."""
        if torch.compiler.is_dynamo_compiling():  # whether the caller records is known when the code runs
            record_read_as_it_runs(self.number_tensor, q, k, mask, q_at, k_at)
        elif (recorder := tap_of(self.number).recorder) is not None:
            recorder.record_read(q, k, mask, q_at, k_at)

    def _record_weights(self, read: Tensor, at: Tensor | None) -> None:
        """Records weights that are known, at these positions if the keys are in a KV cache."""
        if torch.compiler.is_dynamo_compiling():
            record_weights_as_it_runs(self.number_tensor, read, at)
        elif (recorder := tap_of(self.number).recorder) is not None:
            recorder.record_weights(read, at)

    def _show(self, *read: Any) -> None:
        """Shows a read to the observers of the caller: queries, memory, mask, positions of both, and the output."""
        for observer in tap_of(self.number).observers:
            observer(*read)


class StackedLinear(nn.Linear):
    """Several projections of one input, stacked in one matrix."""

    def partial(self, x: Tensor, rows: slice) -> Tensor:
        """The projections in these rows of the matrix alone."""
        return F.linear(x, self.weight[rows], None if self.bias is None else self.bias[rows])


class MultiHead(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, §3.2.2): project, split into heads, attend, concatenate, project.

    One ``qkv`` matrix holds the three projections; attention to another memory uses slices of it.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        score: Score | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads)
        check_sizes(0, head_width=head_width or 0)
        if not head_width and width % heads:
            raise ValueError(f"width {width} does not divide into {heads} heads: choose a multiple, or give head_width")
        self.heads = heads
        self.head_width = head_width or width // heads
        self.inner = self.heads * self.head_width
        self.qkv = StackedLinear(width, 3 * self.inner, bias=bias)
        self.out = nn.Linear(self.inner, width, bias=bias)
        self.read = Attention(score or ScaledDot(self.head_width), dropout)

    def memory(self, states: Tensor, real: Tensor | None = None) -> Memory:
        """Keys and values of states (B, T, width), projected and split into heads."""
        k, v = self.qkv.partial(zero_padding(states, real), slice(self.inner, None)).split(self.inner, -1)
        return Memory(self.read.score.keys(self._split(k)), self._split(v), real, finite_padding=True)

    def queries(self, x: Tensor) -> Tensor:
        """The queries (B, H, T, D) of x (B, T, width)."""
        return self._split(self.qkv.partial(x, slice(self.inner)))

    def project(self, x: Tensor) -> tuple[Tensor, Memory]:
        """The queries of x and the memory of x, by one matrix product: for self-attention."""
        q, k, v = (self._split(part) for part in self.qkv(x).split(self.inner, -1))
        return q, Memory(self.read.score.keys(k), v)

    def attend(
        self, q: Tensor, memory: Memory, mask: Mask, q_at: Tensor | None = None, k_at: Tensor | None = None
    ) -> Tensor:
        """The output of the queries (B, H, Tq, D), heads concatenated and projected: (B, Tq, width)."""
        return self.out(self.read(q, memory, mask, q_at, k_at).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, memory: Memory | None = None, mask: Mask = EVERYTHING) -> Tensor:
        """Attention to ``memory``, or self-attention if none is given. (B, Tq, width) → (B, Tq, width)"""
        q, memory = self.project(x) if memory is None else (self.queries(x), memory)
        return self.attend(q, memory, mask)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, T, H·D) → (B, H, T, D)
