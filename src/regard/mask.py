"""Who may look at whom.

A mask is a statement, not a table: it stays symbolic ("causal", "these keys are padding") as long as possible, so that
a kernel can use the statement itself. ``table`` writes it out when somebody needs the cells, and ``resolved`` does so
once for all the layers of a model.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, eq=False)
class Mask:
    """True always means "may look". Fields left at their default forbid nothing; ``&`` joins two masks."""

    causal: bool = False  # a query sees keys at its own position and before
    window: int | None = None  # a query sees keys at most this far from its own position
    documents: Tensor | None = None  # (B, T) ids of packed documents: a query sees only its own document
    keys: Tensor | None = None  # (B, Tk) False at padding: these keys are seen by nobody
    pairs: Tensor | None = None  # (..., Tq, Tk) anything else: graphs, alignments, beams
    bias: Tensor | None = None  # (..., Tq, Tk) added to the logits: what is preferred; -inf forbids
    sighted: bool = False  # a promise: whatever is forbidden here, no query is forbidden its own position
    blind: Tensor | None = None  # (..., Tq, 1) the queries that see nothing, where ``resolved`` has looked for them

    def __post_init__(self) -> None:
        for name, tensor in (("keys", self.keys), ("pairs", self.pairs)):
            if tensor is not None and tensor.dtype != torch.bool:
                raise TypeError(f"Mask.{name} must be boolean (True = may look), not {tensor.dtype}")
        if self.bias is not None and not self.bias.is_floating_point():
            raise TypeError(f"Mask.bias must be numbers to add to the logits, not {self.bias.dtype}: see Mask.pairs")

    def __and__(self, other: Mask) -> Mask:
        if other is EVERYTHING or self is EVERYTHING:  # nothing to join: what was worked out stays worked out
            return self if other is EVERYTHING else other
        windows = [w for w in (self.window, other.window) if w is not None]
        if self.documents is not None and other.documents is not None:
            raise ValueError("two masks with documents cannot be joined: give the documents in one of them")
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows) if windows else None,
            documents=self.documents if other.documents is None else other.documents,
            keys=_both(self.keys, other.keys),
            pairs=_both(self.pairs, other.pairs),
            bias=_both(self.bias, other.bias, operator.add),
            sighted=(self.sighted and (other.sighted or other._symbolic)) or (self._symbolic and other.sighted),
        )

    @property
    def only_causal(self) -> bool:
        """Whether "no looking ahead" is all this mask says: kernels know that sentence without a table."""
        return self.causal and self.window is None and self.documents is None and self.keys is None and self._symbolic

    @property
    def _symbolic(self) -> bool:
        """Whether it speaks of positions and documents alone."""
        return self.keys is None and self.pairs is None and self.bias is None

    def route(self, length: int) -> Literal["everything", "causal", "window", "documents", "table"]:
        """What kernels can make of this in self-attention over ``length`` positions; "table": they need the cells.

        A window is worth cutting into blocks when it is much narrower than the text.
        """
        if self.pairs is not None or self.bias is not None:
            return "table"
        if self.documents is not None:
            return "documents" if self.documents.is_cuda else "table"
        if self.window is not None and self.window < length - 1:
            return "window" if length > 4 * (self.window + 32) else "table"
        if self.keys is not None:
            return "table"
        return "causal" if self.causal else "everything"

    def table(self, q_at: Tensor, k_at: Tensor, dims: int) -> Tensor | None:
        """The mask written out, broadcastable to (..., Tq, Tk) with ``dims`` dimensions; None: nothing is forbidden.

        Boolean, True where a query may look; with a bias, numbers to be added to the logits, -∞ where it may not.
        ``q_at`` (Tq,) and ``k_at`` (Tk,), by row (B, 1, 1, Tk), are positions, which is all that causality and windows
        depend on. Leading dimensions stay free: batch is first, whatever lies between it and the last two (heads) is
        broadcast.
        """
        table: Tensor | None = None
        if self.causal:
            table = q_at[:, None] >= k_at  # (Tq, Tk)
        if self.window is not None:
            table = _both(table, (q_at[:, None] - k_at).abs() <= self.window)
        if self.documents is not None:
            same = self.documents[:, q_at][:, :, None] == self.documents[:, k_at][:, None, :]  # (B, Tq, Tk)
            table = _both(table, _spread(same, dims))
        if self.keys is not None:
            table = _both(table, _spread(self.keys[:, None, :], dims))
        if self.pairs is not None:
            table = _both(table, _spread(self.pairs, dims))
        return table if self.bias is None else preferred(_spread(self.bias, dims), table)

    def resolved(self, q_at: Tensor, k_at: Tensor, dims: int) -> Mask:
        """The same mask with its table written, as ``pairs`` or ``bias``, for layers that all see through it.

        What a kernel of self-attention takes as it is (``route``) stays a statement. Nothing is read back from a
        device; on a GPU, the queries that see nothing are found here, once, unless the mask promises there are none.
        """
        if q_at.shape == k_at.shape and self.route(len(q_at)) != "table":
            return self
        table = self.table(q_at, k_at, dims)
        if table is None:
            return self
        blind = self.blinded(table) if table.is_cuda else None
        if self.bias is None:
            return Mask(pairs=table, sighted=self.sighted, blind=blind)
        return Mask(bias=table, sighted=self.sighted, blind=blind)

    def of_queries(self, rows: slice) -> Mask:
        """What the mask says of some of the queries, whose positions are given with it."""

        def cut(table: Tensor | None) -> Tensor | None:
            return table if table is None or table.shape[-2] == 1 else table[..., rows, :]

        return replace(self, pairs=cut(self.pairs), bias=cut(self.bias), blind=cut(self.blind))

    def blinded(self, table: Tensor) -> Tensor | None:
        """(..., Tq, 1), True at the queries to which this table, the mask's own, leaves nothing; None: there are none.

        Some kernels read such a row as an even one, and must be told.
        """
        if self.sighted or self.blind is not None:
            return self.blind
        seen = table if table.dtype == torch.bool else table > -math.inf
        return ~seen.any(-1, keepdim=True)

    @property
    def layout(self) -> BlockMask:
        """Which blocks of self-attention over packed documents hold anything: the table of flex attention.

        Kept with the mask, for all the layers that are given it; a compiler sees by itself that it is the same.
        """
        return self._lay_out() if torch.compiler.is_compiling() else self._layout

    @cached_property
    def _layout(self) -> BlockMask:
        return self._lay_out()

    def _lay_out(self) -> BlockMask:
        from torch.nn.attention.flex_attention import create_block_mask

        documents, keys, causal, window = self.documents, self.keys, self.causal, self.window
        assert documents is not None

        def may_look(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            seen = documents[b, q] == documents[b, k]
            seen = seen & (q >= k) if causal else seen
            seen = seen if window is None else seen & ((q - k).abs() <= window)
            return seen if keys is None else seen & keys[b, k]

        rows, length = documents.shape
        return create_block_mask(may_look, rows, None, length, length, device=documents.device)


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)


def default_positions(q: Tensor, k: Tensor, q_at: Tensor | None, k_at: Tensor | None) -> tuple[Tensor, Tensor]:
    """The given positions; where none are given, the queries are the last Tq of the Tk keys."""
    queries, keys = q.shape[-2], k.shape[-2]
    return (
        torch.arange(keys - queries, keys, device=q.device) if q_at is None else q_at,
        torch.arange(keys, device=k.device) if k_at is None else k_at,
    )


def preferred(bias: Tensor, table: Tensor | None) -> Tensor:
    """A bias that also forbids what the table, of either kind, forbids."""
    if table is None:
        return bias
    return bias.masked_fill(~table, -math.inf) if table.dtype == torch.bool else bias + table


def _both(
    a: Tensor | None, b: Tensor | None, join: Callable[[Tensor, Tensor], Tensor] = operator.and_
) -> Tensor | None:
    """What both say, or the one that says anything; one of the two may speak of heads and the other not."""
    if a is None or b is None:
        return b if a is None else a
    dims = max(a.dim(), b.dim())
    return join(_spread(a, dims), _spread(b, dims))


def _spread(table: Tensor, dims: int) -> Tensor:
    """(B, Tq, Tk) → (B, 1, …, 1, Tq, Tk): batch stays first, the middle is broadcast. (Tq, Tk) broadcasts by itself."""
    while 2 < table.dim() < dims:
        table = table.unsqueeze(1)
    return table
