"""Dot-product attention by torch's fused kernels, which do not store the weights.

Two routes: ``fused_attention`` for any mask, ``window_attention`` for narrow windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.mask import Mask

MIN_BLOCK = {"cpu": 32, "cuda": 64}  # queries in a block of a window: with fewer, matrix products are inefficient
ALIGNMENT = 8  # the number of keys of a block is a multiple of this, as kernels prefer


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    scale: float,
    dropout: float,
    causal: bool = False,
    empty_rows: Tensor | None = None,
) -> Tensor:
    """torch's fused attention. Inputs of three dimensions get a fourth one (heads), which the kernels need.

    ``table`` is that of a mask. ``empty_rows`` (..., Tq, 1) is True at queries that may look at no key, None if there
    are none.
    """
    if three_dims := q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        table, empty_rows = (x.unsqueeze(1) if x is not None and x.dim() == 3 else x for x in (table, empty_rows))
    k, v = k.to(q.dtype), v.to(q.dtype)  # under autocast a projected query is half precision, an unprojected key is not
    if table is not None and table.dtype != torch.bool:
        table = table.to(q.dtype)
    if q.is_cuda and table is not None and empty_rows is not None:
        # For a query without keys some kernels return the mean of all values, and some a NaN that spreads to every
        # gradient. So such a query sees all keys here, and its output is set to zero below.
        table = table | empty_rows if table.dtype == torch.bool else table.masked_fill(empty_rows, 0.0)
    out = F.scaled_dot_product_attention(q, k, v, table, dropout, is_causal=causal, scale=scale)
    if q.is_cuda and empty_rows is not None:
        out = out.masked_fill(empty_rows, 0.0)
    return out.squeeze(1) if three_dims else out


# -- windows ----------------------------------------------------------------------------------------------------------


def window_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    """Self-attention in the mask's window, computed as many small attentions, one for each block of queries.

    Time and memory grow with length × window instead of length².
    """
    assert mask.window is not None
    blocks = split_into_blocks(q, k, v, mask.window, mask.causal, mask.keys)
    no_empty_rows = not q.is_cuda or mask.sees_self or mask.keys is None  # without padding a query sees at least itself
    empty_rows = None if no_empty_rows else ~blocks.table.any(-1, keepdim=True)
    return blocks.merge(
        fused_attention(blocks.q, blocks.k, blocks.v, blocks.table, scale, dropout, empty_rows=empty_rows)
    )


@dataclass(frozen=True, eq=False)
class Blocks:
    """Self-attention in a window as N × n dense attentions of ``size`` queries, n for each sequence of ``length``.

    A block of queries is about as long as the window. All keys that it may see are in the span from one window before
    the block to its end (causal) or to one window after it. Spans overlap; they are views of the padded keys.
    """

    q: Tensor  # (N, n, size, D)
    k: Tensor  # (N, n, span, D)
    v: Tensor  # (N, n, span, Dv)
    table: Tensor  # (N or 1, n, size, span), True where a query may look
    leading: tuple[int, ...]  # N = B · …
    length: int

    def merge(self, out: Tensor) -> Tensor:
        """The outputs of the blocks as one sequence: (N, n, size, Dv) → (..., T, Dv)"""
        return out.flatten(1, 2)[:, : self.length].unflatten(0, self.leading)


def split_into_blocks(q: Tensor, k: Tensor, v: Tensor, window: int, causal: bool, keys: Tensor | None) -> Blocks:
    """Splits (..., T, D) into blocks. ``keys`` (B, T) is False at padding; B is the first leading dimension."""
    leading, length = q.shape[:-2], q.shape[-2]
    reach = -(-window // ALIGNMENT) * ALIGNMENT  # keys of a span before its block
    size = max(MIN_BLOCK.get(q.device.type, MIN_BLOCK["cuda"]), reach)
    count = -(-length // size)
    span = reach + size + (0 if causal else reach)

    def spans(x: Tensor) -> Tensor:
        """(N, T, …) → (N, n, span, …), views of the padded x: the span of block i starts at ``i · size - reach``."""
        after = count * size - length + span - reach - size
        padded = F.pad(x, (0, 0) * (x.dim() - 2) + (reach, after))
        return padded.unfold(1, span, size).movedim(-1, 2)

    def flatten(x: Tensor) -> Tensor:
        return x.expand(*leading, *x.shape[-2:]).flatten(0, -3)  # (..., T, D) → (N, T, D)

    blocks = F.pad(flatten(q), (0, 0, 0, count * size - length)).unflatten(1, (count, size))
    # The part of its span that a query may see is the same in every block: (size, span).
    distance = torch.arange(size, device=q.device)[:, None] + reach - torch.arange(span, device=q.device)
    table = (distance >= 0) & (distance <= window) if causal else distance.abs() <= window
    inside = spans(torch.ones(1, length, dtype=torch.bool, device=q.device))  # (1, n, span)
    if keys is not None:
        rows = keys.reshape(-1, *[1] * (len(leading) - 1), length).expand(*leading, length).flatten(0, -2)
        inside = spans(rows)  # (N, n, span)
    # The queries that fill up the last block see every key, so that no row is empty; ``merge`` drops their outputs.
    filler = (torch.arange(count * size, device=q.device) >= length).view(count, size, 1)
    table = (table & inside.unsqueeze(2)) | filler
    return Blocks(blocks, spans(flatten(k)), spans(flatten(v)), table, tuple(leading), length)
