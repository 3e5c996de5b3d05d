"""A Transformer's decoding step on a GPU with a few fused kernels for each block: see ``regard.kernels.step``.

The definition is ``Block.forward``, which launches some sixteen short kernels for a step. A fused step launches five,
or eight with cross-attention, and one more for every norm after a sum (post-norm).
"""

from __future__ import annotations

from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Memory, MultiHead
from regard.decode.shared_copy import with_layers
from regard.kernels.step import MAX_HEAD_WIDTH, MAX_QUERIES, Norm, attend_step, linear_step, norm_step, usable
from regard.layers.kv_cache import AttentionPlan
from regard.layers.product import Logits, Product, Readout
from regard.layers.transformer import ACTIVATIONS, Block
from regard.mask import EVERYTHING, Mask
from regard.scores import Dot, ScaledDot

M = TypeVar("M", bound=nn.Module)

MAX_ROWS = 512  # with more rows, torch's own matrix products are faster
TILE = 64  # the rows of a readout matrix are padded to a multiple of this


def with_fused_steps(decoder: M) -> M:
    """A shared copy of the decoder with the layers of this file where the weights and the device support them."""
    weight = next(decoder.parameters())
    fused = usable(weight.dtype, weight.device)
    padded = weight.is_cuda and weight.dtype != torch.float32

    def faster(layer: nn.Module) -> nn.Module | None:
        if fused and _fusable(layer):
            return FusedBlock(layer)
        return PaddedReadout() if padded and isinstance(layer, Readout) else None

    return with_layers(decoder, faster)


class PaddedReadout(Readout):
    """Computes logits with a readout matrix that is padded to a multiple of TILE rows.

    With a vocabulary such as 50257 a GPU cannot use its fast kernels. So a second copy of the readout's weights is
    kept, with rows of zeros at the end. The logits of these rows are cut off.
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: tuple[Tensor, Tensor | None] | None = None

    def forward(self, product: Logits) -> Tensor:
        if not isinstance(product, Product) or len(product.weight) % TILE == 0:
            return product.logits()
        if self._weights is None:
            padding = -len(product.weight) % TILE
            bias = None if product.bias is None else F.pad(product.bias, (0, padding))
            self._weights = F.pad(product.weight, (0, 0, 0, padding)), bias
        return Product(product.x, *self._weights).logits()[..., : len(product.weight)]


def _fusable(block: nn.Module) -> TypeGuard[Block]:
    """Whether the kernels support this module: a residual block with dot-product scores and known norms."""
    if not isinstance(block, Block) or not block.residual:
        return False
    reads = [part for part in (block.attention, block.cross) if part is not None]
    norms = [norm for norm in (block.attention_norm, block.cross_norm, block.feed_norm) if norm is not None]
    return all(
        type(part.read.score) in (Dot, ScaledDot) and part.head_width <= MAX_HEAD_WIDTH and part.read.reader is None
        for part in reads
    ) and all(Norm.of(norm) is not None for norm in norms)


class FusedBlock(Block):
    """A block whose step, one token of each hypothesis, is fused. Other calls are those of ``Block``."""

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)
        self.attention, self.attention_norm = block.attention, block.attention_norm
        self.cross, self.cross_norm = block.cross, block.cross_norm
        self.feed, self.feed_norm = block.feed, block.feed_norm
        self.pre, self.residual, self.dropout = block.pre, block.residual, block.dropout
        self._activation = next(name for name, known in ACTIVATIONS.items() if known is block.feed.activation)

    def forward(
        self,
        x: Tensor,
        plan: AttentionPlan,
        cache: Memory | None = None,
        source: Memory | None = None,
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, Memory | None]:
        sentences, queries, width = x.shape
        few = queries <= MAX_QUERIES and sentences * queries <= MAX_ROWS and not torch.is_grad_enabled()
        if cache is None or plan.slots is None or plan.q_at is None or plan.k_at is None or not (few and plan.single):
            return super().forward(x, plan, cache, source, source_mask)
        rows = x.reshape(-1, width)  # (B·K, W)
        qkv, inner = self.attention.qkv, self.attention.inner
        projected = self._linear(rows, qkv.weight, qkv.bias, self.attention_norm)
        table = plan.mask.table(plan.q_at, plan.k_at, 4)
        slots, scale = cache.first(plan.k_at.shape[-1]), _scale(self.attention)
        q, new = projected[:, :inner], projected[:, inner:]
        read = attend_step(q, slots.keys, slots.values, queries, scale, table, new, plan.slots)
        rows = self._add_residual(rows, self.attention.out, read, self.attention_norm)
        if self.cross is not None:
            assert source is not None
            assert self.cross_norm is not None
            read = self._cross(self.cross, self.cross_norm, rows, queries, source, source.mask_padding(source_mask))
            rows = self._add_residual(rows, self.cross.out, read, self.cross_norm)
        rows = self._add_residual(rows, self.feed.down, self._feed(rows), self.feed_norm)
        return rows.view_as(x), cache

    def _cross(
        self, part: MultiHead, norm: nn.Module, rows: Tensor, queries: int, source: Memory, mask: Mask
    ) -> Tensor:
        bias = part.qkv.bias
        q = self._linear(rows, part.qkv.weight[: part.inner], None if bias is None else bias[: part.inner], norm)
        no_positions = rows.new_empty(0, dtype=torch.long)  # the mask of a source does not depend on positions
        table = mask.table(no_positions, no_positions, 4)
        return attend_step(q, source.keys, source.values, queries, _scale(part), table)

    def _feed(self, rows: Tensor) -> Tensor:
        """The hidden values of the feed-forward layer."""
        feed, norm = self.feed, self.feed_norm
        if feed.gate is None:
            return self._linear(rows, feed.up.weight, feed.up.bias, norm, self._activation)
        up = self._linear(rows, feed.up.weight, feed.up.bias, norm)
        return self._linear(rows, feed.gate.weight, feed.gate.bias, norm, self._activation, up)

    def _linear(
        self,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm: nn.Module,
        activation: str = "none",
        times: Tensor | None = None,
    ) -> Tensor:
        """A linear layer, with the block's norm before it if the block is pre-norm."""
        return linear_step(rows, weight, bias, Norm.of(norm) if self.pre else None, activation, times=times)

    def _add_residual(self, rows: Tensor, last: nn.Linear, y: Tensor, norm: nn.Module) -> Tensor:
        """The residual sum of rows and the linear layer of y, then the norm if the block is post-norm."""
        rows = linear_step(y, last.weight, last.bias, add=rows)
        post_norm = None if self.pre else Norm.of(norm)
        return rows if post_norm is None else norm_step(rows, post_norm)


def _scale(part: MultiHead) -> float:
    assert isinstance(part.read.score, Dot)
    return part.read.score.scale
