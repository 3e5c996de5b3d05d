"""Dot-product attention through torch's fused kernels: the weights never exist."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.blocks import in_blocks
from regard.mask import Mask


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    scale: float,
    dropout: float,
    causal: bool = False,
    blind: Tensor | None = None,
) -> Tensor:
    """torch's fused attention; three dimensions are lifted to the four that kernels want.

    ``table`` is a mask's. ``blind`` (..., Tq, 1) is True where it leaves a query nothing, if anywhere it does.
    """
    if lift := q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        table, blind = (x.unsqueeze(1) if x is not None and x.dim() == 3 else x for x in (table, blind))
    k, v = k.to(q.dtype), v.to(q.dtype)  # under autocast a projected query is half, an unprojected key is not
    if table is not None and table.dtype != torch.bool:
        table = table.to(q.dtype)
    if q.is_cuda and table is not None and blind is not None:
        # Of a row that may see nothing, some kernels make an even one, and some NaN, in the gradient of everything. So
        # it sees all, and what it has read is forgotten.
        table = table | blind if table.dtype == torch.bool else table.masked_fill(blind, 0.0)
    out = F.scaled_dot_product_attention(q, k, v, table, dropout, is_causal=causal, scale=scale)
    if q.is_cuda and blind is not None:
        out = out.masked_fill(blind, 0.0)
    return out.squeeze(1) if lift else out


def windowed(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    """Self-attention through the mask's window, as many small attentions of a block each."""
    assert mask.window is not None
    blocks = in_blocks(q, k, v, mask.window, mask.causal, mask.keys)
    known = not q.is_cuda or mask.sighted or mask.keys is None  # without padding a query sees itself at least
    blind = None if known else ~blocks.table.any(-1, keepdim=True)
    return blocks.joined(fused(blocks.q, blocks.k, blocks.v, blocks.table, scale, dropout, blind=blind))
