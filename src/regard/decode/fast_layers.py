"""Layers that replace others for decoding: the same results, faster.

They are put into a copy of the model that shares its weights, so that the model itself stays as it is, and ``print``
shows them. The weights must not change afterwards, because some layers keep a second copy of them.

**On a CPU** (``with_onednn``) a search multiplies a few rows by the same weights at every step. oneDNN's kernels are up
to four times faster when the weights are stored in oneDNN's own layout. Reordering them costs about as much as one
product.

**On a GPU** (``with_fused_steps``) a step of a Transformer has a few fused kernels for each block, see
``regard.kernels.step``. The definition is ``Block.forward``, which launches some sixteen short kernels for a step. A
fused step launches five, or eight with cross-attention, and one more for every norm after a sum (post-norm).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Memory, MultiHead, StackedLinear
from regard.kernels.step import MAX_HEAD_WIDTH, MAX_QUERIES, Norm, attend_step, linear_step, norm_step, usable
from regard.layers.convolution import WeightNorm
from regard.layers.kv_cache import AttentionPlan
from regard.layers.product import Logits, Product, Readout
from regard.layers.transformer import ACTIVATIONS, Block, FeedForward
from regard.mask import EVERYTHING, Mask
from regard.recording import attentions
from regard.scores import Dot, ScaledDot

M = TypeVar("M", bound=nn.Module)

MIN_ROWS = 4  # with fewer rows, reading the weights takes most of the time, in any layout
MAX_ROWS = 1024  # with more rows (a whole text), torch's own products are as fast
MAX_WEIGHTS = 2**28  # the largest model that is stored a second time: 1 GiB

# The activations that oneDNN can apply after a product (its post-ops): name, scalars and algorithm of each.
POST_OPS: dict[str, tuple[str, list[float], str]] = {
    "none": ("none", [], ""),
    "relu": ("relu", [], ""),
    "gelu": ("gelu", [], "none"),
    "gelu-tanh": ("gelu", [], "tanh"),
    "silu": ("swish", [], ""),
    "tanh": ("tanh", [], ""),
}

MAX_FUSED_ROWS = 512  # of a fused step: with more rows, torch's own matrix products are faster
TILE = 64  # the rows of a readout matrix are padded to a multiple of this


def shared_copy(model: M) -> M:
    """A copy that shares every parameter and buffer with the model. Nothing records, edits or watches it."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    for part in attentions(model).values():
        shared[id(part.watchers)] = ()
    return deepcopy(model, shared)


def with_layers(model: M, faster: Callable[[nn.Module], nn.Module | None]) -> M:
    """A shared copy in which `faster(layer)` replaces each layer for which it is not None; `print` shows them.

    Normalised weights are computed once, not at every step.
    """
    copy = shared_copy(model)
    for parent in list(copy.modules()):
        if isinstance(parent, WeightNorm):
            parent.fixed = parent.weight.detach()
        for name, layer in list(parent.named_children()):
            if (new := faster(layer)) is not None:
                setattr(parent, name, new)
    return copy.train(model.training)  # a new layer starts in training mode


class OneDnnLinear(StackedLinear):
    """x ↦ f(W x + b). Each slice of rows of W that is used is reordered into oneDNN's layout at its first call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none") -> None:
        nn.Module.__init__(self)  # the weights are given
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias, self.activation = weight, bias, activation  # type: ignore[assignment]
        self._reordered: dict[tuple[int | None, int | None], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.partial(x, slice(None))

    def partial(self, x: Tensor, rows: slice) -> Tensor:
        """The product with these rows of the matrix alone."""
        count, part = x.numel() // x.shape[-1], (rows.start, rows.stop)
        bias = None if self.bias is None else self.bias[rows]
        # Under autocast an input may be half precision, which these kernels do not take with float32 weights.
        if not MIN_ROWS <= count <= MAX_ROWS or torch.is_grad_enabled() or x.dtype != self.weight.dtype:
            y = F.linear(x, self.weight[rows], bias)
            return y if self.activation == "none" else ACTIVATIONS[self.activation](y)
        if part not in self._reordered:
            self._reordered[part] = torch.ops.mkldnn._reorder_linear_weight(self.weight[rows].detach(), count)
        post_op = POST_OPS[self.activation]
        return torch.ops.mkldnn._linear_pointwise(x, self._reordered[part], bias, *post_op)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}"


class OneDnnFeedForward(nn.Module):
    """The feed-forward layer of a Transformer, whose activation is a part of the first product."""

    def __init__(self, feed: FeedForward, activation: str) -> None:
        super().__init__()
        self.up = OneDnnLinear(feed.up.weight, feed.up.bias, activation)
        self.down = OneDnnLinear(feed.down.weight, feed.down.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))


class OneDnnReadout(Readout):
    """Computes logits with a reordered readout matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.linear: OneDnnLinear | None = None

    def forward(self, product: Logits) -> Tensor:
        if isinstance(product, Product) and self.linear is None:
            self.linear = OneDnnLinear(product.weight, product.bias)
        linear = self.linear
        if not isinstance(product, Product) or linear is None or product.weight is not linear.weight:
            return product.logits()
        return linear(product.x)


def with_onednn(decoder: M) -> M:
    """A shared copy of the decoder with the layers of this file, or the decoder itself if it cannot use them.

    It cannot if it is not one of our models, if this build of torch lacks oneDNN, if its weights are not float32 on a
    CPU, or if they are too large to be stored a second time. The weights must not change afterwards.
    """
    weights = list(decoder.parameters())
    if not (
        any(isinstance(layer, Readout) for layer in decoder.modules())
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in weights)
        and sum(weight.numel() for weight in weights) <= MAX_WEIGHTS
    ):
        return decoder
    return with_layers(decoder, _faster)


def _faster(layer: nn.Module) -> nn.Module | None:
    if type(layer) is FeedForward and layer.gate is None:  # a subclass may compute something else
        return OneDnnFeedForward(layer, name) if (name := _activation(layer)) in POST_OPS else None
    if type(layer) in (nn.Linear, StackedLinear):
        return OneDnnLinear(layer.weight, layer.bias)  # type: ignore[arg-type]
    return OneDnnReadout() if type(layer) is Readout else None


def _activation(feed: FeedForward) -> str:
    """The name of the activation of a feed-forward layer; empty if it is not in the table."""
    return next((name for name, known in ACTIVATIONS.items() if known is feed.activation), "")


def with_fused_steps(decoder: M) -> M:
    """A shared copy of the decoder with the layers of this file where the weights and the device support them."""
    weight = next(decoder.parameters())
    fused = usable(weight.dtype, weight.device)
    padded = weight.is_cuda and weight.dtype != torch.float32

    def faster(layer: nn.Module) -> nn.Module | None:
        if fused and _fusable(layer):
            return FusedBlock(layer)
        return PaddedReadout() if padded and type(layer) is Readout else None

    return with_layers(decoder, faster)


class PaddedReadout(Readout):
    """Computes logits with a readout matrix that is padded to a multiple of TILE rows.

    With a vocabulary such as 50257 a GPU cannot use its fast kernels. So a second copy of the readout's weights is
    kept, with rows of zeros at the end. The logits of these rows are cut off.
    """

    def __init__(self) -> None:
        super().__init__()
        self._weight: Tensor | None = None  # the matrix that is padded
        self._padded: tuple[Tensor, Tensor | None] | None = None

    def forward(self, product: Logits) -> Tensor:
        if isinstance(product, Product) and self._padded is None:
            padding = -len(product.weight) % TILE
            bias = None if product.bias is None else F.pad(product.bias, (0, padding))
            self._weight, self._padded = product.weight, (F.pad(product.weight, (0, 0, 0, padding)), bias)
        if not isinstance(product, Product) or self._padded is None or product.weight is not self._weight:
            return product.logits()
        return Product(product.x, *self._padded).logits()[..., : len(product.weight)]


def _fusable(block: nn.Module) -> TypeGuard[Block]:
    """Whether the kernels support this module: a residual block with dot-product scores and known norms."""
    if type(block) is not Block or not block.residual or not _activation(block.feed):
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
        vars(self).update(vars(block))
        self._modules = dict(block._modules)  # its own, since layers may be replaced in one of the two
        self._activation = _activation(block.feed)

    def forward(
        self,
        x: Tensor,
        plan: AttentionPlan,
        cache: Memory | None = None,
        source: Memory | None = None,
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, Memory | None]:
        sentences, queries, width = x.shape
        few = queries <= MAX_QUERIES and sentences * queries <= MAX_FUSED_ROWS and not torch.is_grad_enabled()
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
