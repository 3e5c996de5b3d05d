"""Who may look at whom.

A mask is a statement, not a table: it stays symbolic ("causal", "these keys are padding") as long as possible, so that
a kernel can use the statement itself. ``table`` writes it out when somebody needs the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mask:
    """True always means "may look". Fields left at their default forbid nothing; ``&`` joins two masks."""

    causal: bool = False  # a query sees keys at its own position and before
    window: int | None = None  # a query sees keys at most this far from its own position
    documents: Tensor | None = None  # (B, T) ids of packed documents: a query sees only its own document
    keys: Tensor | None = None  # (B, Tk) False at padding: these keys are seen by nobody
    pairs: Tensor | None = None  # (..., Tq, Tk) anything else: graphs, alignments, beams

    def __post_init__(self) -> None:
        for name, tensor in (("keys", self.keys), ("pairs", self.pairs)):
            if tensor is not None and tensor.dtype != torch.bool:
                raise TypeError(f"Mask.{name} must be boolean (True = may look), not {tensor.dtype}")

    def __and__(self, other: Mask) -> Mask:
        windows = [w for w in (self.window, other.window) if w is not None]
        if self.documents is not None and other.documents is not None:
            raise ValueError("two masks with documents cannot be joined: give the documents in one of them")
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows) if windows else None,
            documents=self.documents if other.documents is None else other.documents,
            keys=_both(self.keys, other.keys),
            pairs=_both_pairs(self.pairs, other.pairs),
        )

    @property
    def only_causal(self) -> bool:
        """Whether "no looking ahead" is all this mask says: kernels know that sentence without a table."""
        return (
            self.causal and self.window is None and self.documents is None and self.keys is None and self.pairs is None
        )

    def table(self, q_at: Tensor, k_at: Tensor, dims: int) -> Tensor | None:
        """The mask written out, broadcastable to (..., Tq, Tk) with ``dims`` dimensions; None: nothing is forbidden.

        ``q_at`` (Tq,) and ``k_at`` (Tk,) are positions, which is all that causality and windows depend on. Leading
        dimensions stay free: batch is first, whatever lies between it and the last two (heads) is broadcast.
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
        return table


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)


def default_positions(q: Tensor, k: Tensor, q_at: Tensor | None, k_at: Tensor | None) -> tuple[Tensor, Tensor]:
    """The given positions; where none are given, the queries are the last Tq of the Tk keys."""
    queries, keys = q.shape[-2], k.shape[-2]
    return (
        torch.arange(keys - queries, keys, device=q.device) if q_at is None else q_at,
        torch.arange(keys, device=k.device) if k_at is None else k_at,
    )


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _both_pairs(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """One of the two may speak of heads and the other not."""
    if a is None or b is None:
        return _both(a, b)
    dims = max(a.dim(), b.dim())
    return _spread(a, dims) & _spread(b, dims)


def _spread(table: Tensor, dims: int) -> Tensor:
    """(B, Tq, Tk) → (B, 1, …, 1, Tq, Tk): batch stays first, the middle is broadcast. (Tq, Tk) broadcasts by itself."""
    while 2 < table.dim() < dims:
        table = table.unsqueeze(1)
    return table
