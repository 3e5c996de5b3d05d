"""Self-attention over packed documents by flex attention: blocks in which no two positions meet cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def usable(q: Tensor, v: Tensor, dropout: float) -> bool:
    """Whether flex attention takes these: a GPU, (B, H, T, D), widths it has tiles for, and no dropout: it has none."""
    widths = (q.shape[-1], v.shape[-1])
    return q.is_cuda and q.dim() == 4 and q.dtype != torch.float64 and not dropout and all(w >= 16 for w in widths)


def attend_packed(q: Tensor, k: Tensor, v: Tensor, layout: BlockMask, scale: float) -> Tensor:
    """What (B, H, T, D) read within their own documents; a row that may see nothing reads zeros."""
    flex = _plain() if torch.compiler.is_compiling() else _compiled()  # in a compiled model, with all the rest
    read: Tensor = flex(q, k, v, block_mask=layout, scale=scale)
    return read


@cache
def _compiled() -> Callable[..., Any]:
    """Flex attention is fast only when compiled; that happens at its first use, once."""
    return torch.compile(_plain())


def _plain() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    plain: Callable[..., Any] = flex_attention
    return plain
