"""Layers for decoding on a CPU, with weights reordered once for oneDNN.

A search multiplies a few rows by the same weights at every step. oneDNN's kernels are up to four times faster when the
weights are stored in oneDNN's own layout. Reordering them costs about as much as one product.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import StackedLinear
from regard.decode.shared_copy import with_layers
from regard.layers.product import Logits, Product, Readout
from regard.layers.transformer import ACTIVATIONS, FeedForward

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


class OneDnnLinear(StackedLinear):
    """x ↦ f(W x + b). Each slice of rows of W that is used is reordered into oneDNN's layout at its first call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none") -> None:
        nn.Module.__init__(self)  # the weights are given
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias, self.activation = weight, bias, activation  # type: ignore[assignment]
        self._reordered: dict[tuple[int | None, int | None], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x, slice(None))

    def rows(self, x: Tensor, rows: slice) -> Tensor:
        """The product with these rows of the matrix alone."""
        count, part = x.numel() // x.shape[-1], (rows.start, rows.stop)
        bias = None if self.bias is None else self.bias[rows]
        if not MIN_ROWS <= count <= MAX_ROWS or torch.is_grad_enabled():
            y = F.linear(x, self.weight[rows], bias)
            return y if self.activation == "none" else ACTIVATIONS[self.activation](y)
        if part not in self._reordered:
            self._reordered[part] = torch.ops.mkldnn._reorder_linear_weight(self.weight[rows].detach(), count)
        post_op = POST_OPS[self.activation]
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._reordered[part], bias, *post_op)
        return product

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
        self._linear: OneDnnLinear | None = None

    def forward(self, product: Logits) -> Tensor:
        if not isinstance(product, Product):
            return product.logits()
        if self._linear is None:
            self._linear = OneDnnLinear(product.weight, product.bias)
        return self._linear(product.x)


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
    if isinstance(layer, FeedForward) and layer.gate is None:
        activation = next(name for name, known in ACTIVATIONS.items() if known is layer.activation)
        return OneDnnFeedForward(layer, activation) if activation in POST_OPS else None
    if isinstance(layer, nn.Linear):
        return OneDnnLinear(layer.weight, layer.bias)
    return OneDnnReadout() if isinstance(layer, Readout) else None
