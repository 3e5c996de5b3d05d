"""Reading a memory: the definition, the fast route, and the one module in which weights exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.mask import EVERYTHING, Mask, default_positions
from regard.scores import ScaledDot, Score

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
        """The memory with T more slots filled."""
        assert self.used is not None, "a source memory is not written to"
        slots = self.used + torch.arange(keys.shape[-2], device=keys.device)
        return replace(self.write_at(slots, Memory(keys, values)), used=self.used + keys.shape[-2])

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
        return replace(self, keys=self.keys[..., :slots, :], values=self.values[..., :slots, :])

    def packed(self) -> Memory:
        """The same in one piece: worth the copy to whoever reads it often, since products copy what is not."""
        return replace(self, keys=self.keys.contiguous(), values=self.values.contiguous())

    def like(self, rows: int, slots: int) -> Memory:
        """Empty buffers of so many rows and slots, shaped and typed otherwise like this memory."""
        keys, values = (x.new_zeros(rows, *x.shape[1:-2], slots, x.shape[-1]) for x in (self.keys, self.values))
        return Memory(keys, values)

    def select(self, rows: Tensor) -> Memory:
        """The memory after hypotheses have moved within their sentences: row i was row ``rows[i]``.

        A past belongs to a hypothesis and moves with it. A source belongs to a sentence, whose hypotheses share it, and
        stays put: right because ``rows`` keeps the hypotheses of a sentence side by side and never takes one to another
        sentence (``decode.State.select``). It cannot drop sentences or change their order.
        """
        if self.used is None:
            return self
        real = None if self.real is None else self.real[rows]
        return replace(self, keys=self.keys[rows], values=self.values[rows], real=real)

    def seen_through(self, mask: Mask) -> Mask:
        """The mask, and what may be seen of the memory at all; where all of it may, the mask as it was."""
        return mask if self.real is None and self.used is None else mask & self.mask()

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
        folded, q_at = _fold(q, memory, mask, q_at)
        seen = memory.seen_through(mask)
        dropout = self.dropout if self.training else 0.0
        context = attend(self.score, folded, memory.keys, memory.values, seen, dropout, q_at, k_at)
        if self.tap is not None:
            q_at, k_at = default_positions(folded, memory.keys, q_at, k_at)

            def part(rows: slice) -> Tensor:
                """The weights of some of the queries; of beams, which are folded into one another, of all."""
                some = rows if folded is q else slice(None)
                asked, where = folded[..., some, :], q_at[some]
                return _unfold(weights(self.score, asked, memory.keys, seen.of_queries(some), where, k_at), q)

            with torch.no_grad():
                self.tap.watch(part, q.shape, memory.keys.shape[-2])
        return _unfold(context, q)

    def look(self, q: Tensor, memory: Memory, mask: Mask = EVERYTHING, q_at: Tensor | None = None) -> Look:
        """Context and weights, both differentiable (hard attention, coverage, alignment losses); taped as well."""
        folded, q_at = _fold(q, memory, mask, q_at)
        table = weights(self.score, folded, memory.keys, memory.seen_through(mask), q_at)
        look = Look(_unfold(table.to(memory.values.dtype) @ memory.values, q), _unfold(table, q))
        if self.tap is not None:
            self.tap.write(look.weights)
        return look


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
        k, v = self._project(states, slice(self.inner, None)).split(self.inner, -1)
        return Memory(self.read.score.keys(self._split(k)), self._split(v), real)

    def queries(self, x: Tensor) -> Tensor:
        """What x (B, T, width) asks, (B, H, T, D)."""
        return self._split(self._project(x, slice(self.inner)))

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

    def _project(self, x: Tensor, rows: slice) -> Tensor:
        bias = self.qkv.bias
        return nn.functional.linear(x, self.qkv.weight[rows], None if bias is None else bias[rows])

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)  # (B, T, H·D) → (B, H, T, D)


def _fold(q: Tensor, memory: Memory, mask: Mask, q_at: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """(B·K, ..., Tq, D) → (B, ..., K·Tq, D), and positions: the K beams of a sentence share its memory as more queries.

    Without beams the queries stay as they are. Positions count from what a growing memory holds, never from its end.
    """
    rows, queries = memory.keys.shape[0], q.shape[-2]
    if q.shape[0] == rows:
        if q_at is None and memory.used is not None:
            q_at = memory.used - queries + torch.arange(queries, device=q.device)
        return q, q_at
    assert memory.used is None, "only a source memory is shared by beams"
    assert mask.keys is mask.pairs is None, "what beams may see of their memory is said in the memory"
    beams = q.shape[0] // rows
    assert beams * rows == q.shape[0], f"{q.shape[0]} queries cannot share {rows} memories"
    q_at, _ = default_positions(q, memory.keys, q_at, None)
    return q.unflatten(0, (rows, beams)).movedim(1, -3).flatten(-3, -2), q_at.repeat(beams)


def _unfold(result: Tensor, q: Tensor) -> Tensor:
    """(B, ..., K·Tq, X) → (B·K, ..., Tq, X): each beam gets its own."""
    if result.shape[0] == q.shape[0]:
        return result
    return result.unflatten(-2, (-1, q.shape[-2])).movedim(-3, 1).flatten(0, 1)
