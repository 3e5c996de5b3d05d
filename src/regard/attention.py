"""Reading a memory: the definition, the fast route, and the one module in which weights exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.mask import EVERYTHING, Mask, default_positions
from regard.scores import ScaledDot, Score

if TYPE_CHECKING:
    from regard.recording import Tap


def weights(
    score: Score, q: Tensor, k: Tensor, mask: Mask = EVERYTHING, q_at: Tensor | None = None, k_at: Tensor | None = None
) -> Tensor:
    """How much each query looks at each key: the definition. (..., Tq, D), (..., Tk, D) → (..., Tq, Tk)

    ``k`` is ``score.keys(memory)``. Rows sum to one; a row that may see nothing is zeros.
    """
    q_at, k_at = default_positions(q, k, q_at, k_at)
    return score.weights(q, k, mask, q_at, k_at)


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
    """What each query reads: ``weights(score, q, k, mask) @ v`` by the fastest route the score has."""
    return score.attend(q, k, v, mask, dropout, q_at, k_at)


@dataclass(frozen=True, eq=False)
class Memory:
    """What attention reads: a source's states with their projected keys, or the slots of a past. An argument and a
    result, never something that a module keeps."""

    keys: Tensor  # (B, ..., Tk, D)
    values: Tensor  # (B, ..., Tk, Dv)
    real: Tensor | None = None  # (B, Tk) False at padding

    def write_at(self, slots: Tensor, new: Memory) -> Memory:
        """The memory with these slots (T,) holding ``new``. Without gradients the buffers are reused: a step consumes
        its state."""
        copy = Tensor.index_copy if torch.is_grad_enabled() else Tensor.index_copy_
        return replace(
            self,
            keys=copy(self.keys, -2, slots, new.keys.to(self.keys.dtype)),  # under autocast what is written may be half
            values=copy(self.values, -2, slots, new.values.to(self.values.dtype)),
        )

    def first(self, slots: int) -> Memory:
        """What the first so many slots hold."""
        real = None if self.real is None else self.real[:, :slots]
        return Memory(self.keys[..., :slots, :], self.values[..., :slots, :], real)

    def packed(self) -> Memory:
        """The same in one piece: worth the copy to whoever reads it often, since products copy what is not."""
        return replace(self, keys=self.keys.contiguous(), values=self.values.contiguous())

    def like(self, rows: int, slots: int) -> Memory:
        """Empty buffers of so many rows and slots, shaped and typed otherwise like this memory."""
        keys, values = (x.new_zeros(rows, *x.shape[1:-2], slots, x.shape[-1]) for x in (self.keys, self.values))
        return Memory(keys, values)

    def select(self, rows: Tensor) -> Memory:
        """The memory whose row i was row ``rows[i]``."""
        return Memory(self.keys[rows], self.values[rows], None if self.real is None else self.real[rows])

    def seen_through(self, mask: Mask) -> Mask:
        """The mask, and what may be seen of the memory at all; where all of it may, the mask as it was."""
        return mask if self.real is None else mask & Mask(keys=self.real)


@dataclass(frozen=True, eq=False)
class Look:
    """A read with its weights, both with gradient: for models that train on where they looked."""

    context: Tensor
    weights: Tensor


class Attention(nn.Module):
    """One read of a memory. The only module in the library where weights exist.

    The read itself always takes the fast route. While a tape is recording, the weights are computed *beside* it, from
    their definition: looking never changes the answer.
    """

    def __init__(self, score: Score, dropout: float = 0.0) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout
        self.tap: Tap | None = None  # set by record()
        self.turns = 1  # how many layers share this module, which then take turns to read with it

    def memory(self, states: Tensor, real: Tensor | None = None) -> Memory:
        """Prepares states (B, T, D) to be read: keys are projected here, once, not at every read."""
        return Memory(self.score.keys(states), states, real)

    def forward(
        self,
        q: Tensor,
        memory: Memory,
        mask: Mask = EVERYTHING,
        q_at: Tensor | None = None,
        k_at: Tensor | None = None,
    ) -> Tensor:
        """What the queries (B, ..., Tq, D) read, (B, ..., Tq, Dv)."""
        seen = memory.seen_through(mask)
        dropout = self.dropout if self.training else 0.0
        context = attend(self.score, q, memory.keys, memory.values, seen, dropout, q_at, k_at)
        if self.tap is not None:
            self.tap.watch(self.score, q, memory.keys, seen, q_at, k_at)
        return context

    def look(self, q: Tensor, memory: Memory, mask: Mask = EVERYTHING, q_at: Tensor | None = None) -> Look:
        """Context and weights, both differentiable (hard attention, coverage, alignment losses); taped as well."""
        table = weights(self.score, q, memory.keys, memory.seen_through(mask), q_at)
        if self.tap is not None:
            self.tap.write(table)
        return Look(table.to(memory.values.dtype) @ memory.values, table)


class MultiHead(nn.Module):
    """Several reads side by side (Vaswani et al. 2017, §3.2.2): project, split into heads, read, join, project.

    One ``qkv`` matrix holds the three projections; reading another memory uses slices of it.
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
        if head_width is None and width % heads:
            raise ValueError(f"width {width} does not divide into {heads} heads: choose a multiple, or give head_width")
        self.heads = heads
        self.head_width = head_width or width // heads
        self.inner = self.heads * self.head_width
        self.qkv = nn.Linear(width, 3 * self.inner, bias=bias)
        self.out = nn.Linear(self.inner, width, bias=bias)
        self.read = Attention(score or ScaledDot(self.head_width), dropout)

    def memory(self, states: Tensor, real: Tensor | None = None) -> Memory:
        """Keys and values of states (B, T, width), projected and split into heads."""
        k, v = self.projected(states, slice(self.inner, None)).split(self.inner, -1)
        return Memory(self.read.score.keys(self._split(k)), self._split(v), real)

    def queries(self, x: Tensor) -> Tensor:
        """What x (B, T, width) asks, (B, H, T, D)."""
        return self._split(self.projected(x, slice(self.inner)))

    def project(self, x: Tensor) -> tuple[Tensor, Memory]:
        """What x asks, and the memory of x itself: one product."""
        q, k, v = (self._split(part) for part in self.qkv(x).split(self.inner, -1))
        return q, Memory(self.read.score.keys(k), v)

    def answer(
        self, q: Tensor, memory: Memory, mask: Mask, q_at: Tensor | None = None, k_at: Tensor | None = None
    ) -> Tensor:
        """What the queries (B, H, Tq, D) read, joined and projected: (B, Tq, width)."""
        return self.out(self.read(q, memory, mask, q_at, k_at).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, memory: Memory | None = None, mask: Mask = EVERYTHING) -> Tensor:
        """Reads ``memory``, or x itself when none is given. (B, Tq, width) → (B, Tq, width)"""
        q, memory = self.project(x) if memory is None else (self.queries(x), memory)
        return self.answer(q, memory, mask)

    def projected(self, x: Tensor, rows: slice) -> Tensor:
        """By some rows of the one matrix: those of the queries, or of keys and values."""
        bias = self.qkv.bias
        return nn.functional.linear(x, self.qkv.weight[rows], None if bias is None else bias[rows])

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, T, H·D) → (B, H, T, D)
