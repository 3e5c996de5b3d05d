"""Dot-product attention by torch's fused kernels, which do not store the weights.

Two routes: ``fused_attention`` for any mask, ``window_attention`` for narrow windows.
"""

from __future__ import annotations

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


def window_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    """Self-attention in the mask's window, computed as many small attentions, one for each block of queries.

    Time and memory grow with length × window instead of length². A block of queries is about as long as the window. All
    keys that it may see are in its span: from one window before the block to its end (causal), or to one window after
    it. Spans overlap; they are views of the padded keys.
    """
    assert mask.window is not None
    leading, length, device = q.shape[:-2], q.shape[-2], q.device
    reach = -(-mask.window // ALIGNMENT) * ALIGNMENT  # keys of a span before its block
    size = max(MIN_BLOCK.get(device.type, MIN_BLOCK["cuda"]), reach)  # queries of a block
    count = -(-length // size)  # blocks of a sequence
    after = 0 if mask.causal else reach  # keys of a span after its block
    span = reach + size + after

    def flatten(x: Tensor) -> Tensor:
        return x.expand(*leading, *x.shape[-2:]).flatten(0, -3)  # (..., T, D) → (N, T, D)

    def spans(x: Tensor) -> Tensor:
        """(N, T, …) → (N, count, span, …), views of the padded x: that of block i starts at ``i · size - reach``."""
        padded = F.pad(x, (0, 0) * (x.dim() - 2) + (reach, count * size - length + after))
        return padded.unfold(1, span, size).movedim(-1, 2)

    queries = F.pad(flatten(q), (0, 0, 0, count * size - length)).unflatten(1, (count, size))  # (N, count, size, D)
    # The part of its span that a query may see is the same in every block: (size, span).
    distance = torch.arange(size, device=device)[:, None] + reach - torch.arange(span, device=device)
    table = (distance >= 0) & (distance <= mask.window) if mask.causal else distance.abs() <= mask.window
    if mask.keys is None:
        inside = spans(torch.ones(1, length, dtype=torch.bool, device=device))  # (1, count, span)
    else:
        rows = mask.keys.reshape(-1, *[1] * (len(leading) - 1), length).expand(*leading, length).flatten(0, -2)
        inside = spans(rows)  # (N, count, span)
    # The queries that fill up the last block see every key, so that no row is empty; their outputs are dropped below.
    filler = (torch.arange(count * size, device=device) >= length).view(count, size, 1)
    table = (table & inside.unsqueeze(2)) | filler  # (N or 1, count, size, span)
    no_empty_rows = not q.is_cuda or mask.sees_self or mask.keys is None  # without padding a query sees at least itself
    empty_rows = None if no_empty_rows else ~table.any(-1, keepdim=True)
    out = fused_attention(
        queries, spans(flatten(k)), spans(flatten(v)), table, scale, dropout, empty_rows=empty_rows
    )  # (N, count, size, Dv)
    return out.flatten(1, 2)[:, :length].unflatten(0, leading)
