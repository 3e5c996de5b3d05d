"""Attention masks: which query may look at which key.

A mask stays symbolic ("causal", "these keys are padding") as long as possible, because kernels have faster routes for
some symbolic masks. ``table`` computes the (Tq, Tk) tensor where one is needed; ``resolved`` does so once for all the
layers of a model.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regard.errors import UserError


@dataclass(frozen=True, eq=False)
class Mask:
    """A symbolic attention mask. True means "may look". A field at its default forbids nothing; ``&`` joins masks."""

    causal: bool = False  # a query sees keys at its own position and before
    window: int | None = None  # a query sees keys at most this far from its own position
    keys: Tensor | None = None  # (B, Tk) False at padding: no query sees these keys
    pairs: Tensor | None = None  # (..., Tq, Tk) anything else: graphs, alignments, beams
    bias: Tensor | None = None  # (..., Tq, Tk) numbers added to the logits; -inf forbids
    # Numbers added to the logits as a function of positions (Tq,) and (Tk,), for a table too large to be in memory.
    bias_at: Callable[[Tensor, Tensor], Tensor] | None = None
    sees_self: bool = False  # a promise by the caller: no field of this mask hides a query's own position from it
    empty_rows: Tensor | None = None  # (..., Tq, 1) True at queries that see no key; computed by ``resolved`` on a GPU

    def __post_init__(self) -> None:
        for name, tensor in (("keys", self.keys), ("pairs", self.pairs)):
            if tensor is not None and tensor.dtype != torch.bool:
                raise TypeError(f"Mask.{name} must be boolean (True = may look), not {tensor.dtype}")
        if self.keys is not None and self.keys.dim() != 2:
            shape = tuple(self.keys.shape)
            raise TypeError(f"Mask.keys must have the shape (B, Tk), a row for each item of the batch, not {shape}")
        if self.window is not None and self.window < 0:
            raise UserError(f"Mask.window={self.window}: must be at least 0; leave it out (None) for no window.")
        if self.bias is not None and not self.bias.is_floating_point():
            raise TypeError(
                f"Mask.bias must be a float tensor, not {self.bias.dtype}; for a boolean one use Mask.pairs"
            )

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            cure = "wrap a tensor in Mask(keys=…), (B, Tk), or Mask(pairs=…), (..., Tq, Tk)"
            raise TypeError(f"a Mask can be joined with another Mask, not with a {type(other).__name__}; {cure}")
        if other is EVERYTHING or self is EVERYTHING:  # nothing to join: the result of ``resolved`` stays valid
            return self if other is EVERYTHING else other
        windows = [w for w in (self.window, other.window) if w is not None]
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows) if windows else None,
            keys=_combine(self.keys, other.keys),
            pairs=_combine(self.pairs, other.pairs),
            bias=_combine(self.bias, other.bias, operator.add),
            bias_at=_sum(self.bias_at, other.bias_at),
            sees_self=(self.sees_self and (other.sees_self or other._by_position_only))
            or (self._by_position_only and other.sees_self),
        )

    @property
    def only_causal(self) -> bool:
        """Whether this mask is causal and nothing else: kernels have a causal option and need no table."""
        return self.causal and self.window is None and self._by_position_only

    @property
    def _by_position_only(self) -> bool:
        """Whether the mask depends on positions alone."""
        return self.keys is None and self.pairs is None and self.bias is None and self.bias_at is None

    def route(self, length: int) -> Literal["everything", "causal", "window", "table"]:
        """The kernel for self-attention over ``length`` positions; "table" means that the kernel needs the full table.

        A window is computed in blocks only when it is much narrower than the text.
        """
        if self.pairs is not None or self.bias is not None or self.bias_at is not None:
            return "table"
        if self.window is not None and self.window < length - 1:
            return "window" if length > 4 * (self.window + 32) else "table"
        if self.keys is not None:
            return "table"
        return "causal" if self.causal else "everything"

    def table(self, q_at: Tensor, k_at: Tensor, dims: int) -> Tensor | None:
        """The mask as a tensor that broadcasts to (..., Tq, Tk) with ``dims`` dimensions; None if it forbids nothing.

        The tensor is boolean, True where a query may look. With a bias it is a float tensor to add to the logits, -∞
        where a query may not look. ``q_at`` (Tq,) and ``k_at``, (Tk,) or by row (B, 1, 1, Tk), are positions; causal
        masks and windows depend on them alone. The batch is the first dimension; dimensions between it and the last
        two (heads) are broadcast.
        """
        table: Tensor | None = None
        if self.causal:
            table = q_at[:, None] >= k_at  # (Tq, Tk)
        if self.window is not None:
            table = _combine(table, (q_at[:, None] - k_at).abs() <= self.window)
        if self.keys is not None:
            table = _combine(table, _insert_dims(self.keys[:, None, :], dims))
        if self.pairs is not None:
            table = _combine(table, _insert_dims(self.pairs, dims))
        bias = self.bias
        if self.bias_at is not None:
            bias = _combine(bias, self.bias_at(q_at, k_at), operator.add)
        return table if bias is None else masked_bias(_insert_dims(bias, dims), table)

    def resolved(self, q_at: Tensor, k_at: Tensor, dims: int) -> Mask:
        """The same mask with its table computed, as ``pairs`` or ``bias``, so that all layers can share the table.

        A mask that a self-attention kernel takes in symbolic form (``route``) is returned unchanged. On a GPU this
        also finds the queries that see no key, unless ``sees_self`` promises that there are none. Nothing here waits
        for the GPU.
        """
        if q_at.shape == k_at.shape and self.route(len(q_at)) != "table":
            return self
        table = self.table(q_at, k_at, dims)
        if table is None:
            return self
        empty_rows = self.find_empty_rows(table) if table.is_cuda else None
        if table.dtype == torch.bool:
            return Mask(pairs=table, sees_self=self.sees_self, empty_rows=empty_rows)
        return Mask(bias=table, sees_self=self.sees_self, empty_rows=empty_rows)

    def for_queries(self, rows: slice) -> Mask:
        """The mask for a slice of the queries; the caller passes the positions of those queries with it."""

        def cut(table: Tensor | None) -> Tensor | None:
            return table if table is None or table.shape[-2] == 1 else table[..., rows, :]

        return replace(self, pairs=cut(self.pairs), bias=cut(self.bias), empty_rows=cut(self.empty_rows))

    def find_empty_rows(self, table: Tensor) -> Tensor | None:
        """(..., Tq, 1), True at queries that may look at no key, given this mask's table; None if there are none.

        Some kernels return the mean of all values for such a query instead of zeros, so the caller must clear it.
        """
        if self.sees_self or self.empty_rows is not None:
            return self.empty_rows
        seen = table if table.dtype == torch.bool else table > -math.inf
        return ~seen.any(-1, keepdim=True)


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)


def default_positions(q: Tensor, k: Tensor, q_at: Tensor | None, k_at: Tensor | None) -> tuple[Tensor, Tensor]:
    """The given positions. By default keys have positions 0 … Tk - 1, and queries the last Tq of them.

    The default is that of self-attention with a KV cache. In attention to a source, queries have positions of their
    own: a score or a mask that depends on positions needs ``q_at``.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    return (
        torch.arange(keys - queries, keys, device=q.device) if q_at is None else q_at,
        torch.arange(keys, device=k.device) if k_at is None else k_at,
    )


def zero_padding(x: Tensor, real: Tensor | None, dims: int | None = None) -> Tensor:
    """x (B, ..., T, D) with zeros where ``real`` (B, T) is False, so that NaN in padding reaches no result or gradient.

    A weight of zero does not hide a NaN: 0 · NaN is NaN, in the product with the values and in gradients.
    """
    return x if real is None else x.masked_fill(~_insert_dims(real[:, :, None], dims or x.dim()), 0.0)


def masked_bias(bias: Tensor, table: Tensor | None) -> Tensor:
    """The bias combined with a mask's table, boolean or float."""
    if table is None:
        return bias
    return bias.masked_fill(~table, -math.inf) if table.dtype == torch.bool else bias + table


def _combine(
    a: Tensor | None, b: Tensor | None, join: Callable[[Tensor, Tensor], Tensor] = operator.and_
) -> Tensor | None:
    """``join(a, b)``, or the one that is not None. If one has a dimension for heads, the other gets one too."""
    if a is None or b is None:
        return b if a is None else a
    dims = max(a.dim(), b.dim())
    return join(_insert_dims(a, dims), _insert_dims(b, dims))


def _sum(
    a: Callable[[Tensor, Tensor], Tensor] | None, b: Callable[[Tensor, Tensor], Tensor] | None
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The sum of two functions of positions, or the one that is not None."""
    if a is None or b is None:
        return b if a is None else a
    return lambda q_at, k_at: a(q_at, k_at) + b(q_at, k_at)


def _insert_dims(table: Tensor, dims: int) -> Tensor:
    """(B, Tq, Tk) → (B, 1, …, 1, Tq, Tk): batch stays first, the middle is broadcast. (Tq, Tk) broadcasts by itself."""
    while 2 < table.dim() < dims:
        table = table.unsqueeze(1)
    return table
