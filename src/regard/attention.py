"""Reading a memory: the definition, the fast route, and the one module in which weights exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.mask import EVERYTHING, Mask
from regard.scores import ScaledDot, Score, default_positions

if TYPE_CHECKING:
    from regard.record import Tap


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
    """What attention reads: encoder states with their projected keys, or a growing past. An argument and a result.

    With ``used`` None the memory is a source: every slot counts, nobody writes. Otherwise it is a preallocated past of
    which the first ``used`` slots are filled; shapes never change, so a step can be captured.
    """

    keys: Tensor  # (B, ..., Tk, D)
    values: Tensor  # (B, ..., Tk, Dv)
    real: Tensor | None = None  # (B, Tk) False at padding
    used: Tensor | None = None  # 0-d, on the device

    @staticmethod
    def empty(keys: tuple[int, ...], values: tuple[int, ...], like: Tensor) -> Memory:
        """A past with nothing in it yet; the shapes name the capacity."""
        start = torch.zeros((), dtype=torch.long, device=like.device)
        return Memory(like.new_zeros(keys), like.new_zeros(values), None, start)

    def write(self, keys: Tensor, values: Tensor) -> Memory:
        """The memory with T more slots filled. Without gradients the buffers are reused: a step consumes its state."""
        assert self.used is not None, "a source memory is not written to"
        slots = self.used + torch.arange(keys.shape[-2], device=keys.device)
        if torch.is_grad_enabled():
            filled = self.keys.index_copy(-2, slots, keys), self.values.index_copy(-2, slots, values)
        else:
            filled = self.keys.index_copy_(-2, slots, keys), self.values.index_copy_(-2, slots, values)
        return replace(self, keys=filled[0], values=filled[1], used=self.used + keys.shape[-2])

    def select(self, rows: Tensor) -> Memory:
        """Rows reordered or repeated, for beams. The beams of a sentence share its source memory, which stays put."""
        if self.used is None:
            return self
        return replace(self, keys=self.keys[rows], values=self.values[rows])

    def mask(self) -> Mask:
        """What may be seen of it."""
        seen = self.real
        if self.used is not None:
            filled = torch.arange(self.keys.shape[-2], device=self.keys.device) < self.used
            seen = filled.expand(self.keys.shape[0], -1) if seen is None else seen & filled
        return EVERYTHING if seen is None else Mask(keys=seen)


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

    def memory(self, states: Tensor, real: Tensor | None = None) -> Memory:
        """Prepares states (B, T, D) to be read: keys are projected here, once, not at every read."""
        return Memory(self.score.keys(states), states, real)

    def forward(self, q: Tensor, memory: Memory, mask: Mask = EVERYTHING, q_at: Tensor | None = None) -> Tensor:
        read = mask & memory.mask()
        folded = _fold(q, memory)
        context = attend(
            self.score,
            folded,
            memory.keys,
            memory.values,
            read,
            self.dropout if self.training else 0.0,
            _repeat(q_at, q, folded),
        )
        if self.tap is not None:
            self.tap.write(self._weights(q, memory, read, q_at))
        return context.reshape(*q.shape[:-1], context.shape[-1])

    def look(self, q: Tensor, memory: Memory, mask: Mask = EVERYTHING, q_at: Tensor | None = None) -> Look:
        """Context and weights, both differentiable (hard attention, coverage, alignment losses); taped as well."""
        seen = self._weights(q, memory, mask & memory.mask(), q_at)
        if self.tap is not None:
            self.tap.write(seen)
        context = _fold(seen, memory).to(memory.values.dtype) @ memory.values
        return Look(context.reshape(*q.shape[:-1], context.shape[-1]), seen)

    def _weights(self, q: Tensor, memory: Memory, mask: Mask, q_at: Tensor | None) -> Tensor:
        folded = _fold(q, memory)
        table = weights(self.score, folded, memory.keys, mask, _repeat(q_at, q, folded))
        return table.reshape(*q.shape[:-1], table.shape[-1])


class MultiHead(nn.Module):
    """Several reads side by side (Vaswani et al. 2017, §3.2.2): project, split into heads, read, join, project.

    One ``qkv`` matrix holds the three projections; reading another memory uses slices of it.
    """

    def __init__(
        self, width: int, heads: int, score: Score | None = None, head_width: int | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} does not divide into {heads} heads: choose a multiple, or give head_width")
        self.heads = heads
        self.head_width = head_width or width // heads
        inner = self.heads * self.head_width
        self.qkv = nn.Linear(width, 3 * inner)
        self.out = nn.Linear(inner, width)
        self.read = Attention(score or ScaledDot(self.head_width), dropout)

    def memory(self, states: Tensor, real: Tensor | None = None) -> Memory:
        """Keys and values of states (B, T, width), projected and split into heads."""
        inner = self.heads * self.head_width
        k, v = nn.functional.linear(states, self.qkv.weight[inner:], self.qkv.bias[inner:]).split(inner, -1)
        return Memory(self.read.score.keys(self._split(k)), self._split(v), real)

    def forward(self, x: Tensor, memory: Memory | None = None, mask: Mask = EVERYTHING) -> Tensor:
        """Reads ``memory``, or x itself when none is given. (B, Tq, width) → (B, Tq, width)"""
        inner = self.heads * self.head_width
        if memory is None:
            q, k, v = (self._split(part) for part in self.qkv(x).split(inner, -1))
            memory = Memory(self.read.score.keys(k), v)
        else:
            q = self._split(nn.functional.linear(x, self.qkv.weight[:inner], self.qkv.bias[:inner]))
        return self.out(self.read(q, memory, mask).transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, T, H·D) → (B, H, T, D)


def _fold(q: Tensor, memory: Memory) -> Tensor:
    """(B·K, Tq, D) → (B, K·Tq, D): the K beams of a sentence read its one source memory as further queries."""
    rows = memory.keys.shape[0]
    if q.shape[0] == rows:
        return q
    assert memory.used is None, "only a source memory is shared by beams"
    assert q.shape[0] % rows == 0, f"{q.shape[0]} queries cannot share {rows} memories"
    return q.reshape(rows, -1, q.shape[-1])


def _repeat(q_at: Tensor | None, q: Tensor, folded: Tensor) -> Tensor | None:
    """The positions of folded queries: every beam has those of its sentence."""
    return q_at if q_at is None or q is folded else q_at.repeat(q.shape[0] // folded.shape[0])
