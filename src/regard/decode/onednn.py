"""Linear layers on a CPU with weights reordered once for oneDNN.

A search multiplies a few rows by the same weights at every step. oneDNN's kernels are up to four times faster when the
weights are stored in oneDNN's own layout. Reordering them costs about as much as one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.decode.shared_copy import shared_copy
from regard.layers.product import Product
from regard.layers.transformer import ACTIVATIONS, FeedForward

MIN_ROWS = 4  # with fewer rows, reading the weights takes most of the time, in any layout
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


class OneDnnLinear:
    """x ↦ f(W x + b), with W reordered into oneDNN's layout at the first call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none") -> None:
        self._weight, self._bias = weight, bias
        self._post_op = POST_OPS[activation]
        self._reordered: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._reordered is None:
            self._reordered = torch.ops.mkldnn._reorder_linear_weight(self._weight.detach(), x[..., 0].numel())
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._reordered, self._bias, *self._post_op)
        return product


class OneDnnRows:
    """``MultiHead.projected`` with reordered weights. Each slice of rows, such as the queries, has its own copy."""

    def __init__(self, linear: nn.Linear) -> None:
        self._linear = linear
        self._parts: dict[tuple[int | None, int | None], OneDnnLinear] = {}

    def __call__(self, x: Tensor, rows: slice) -> Tensor:
        weight, bias, part = self._linear.weight, self._linear.bias, (rows.start, rows.stop)
        if part not in self._parts:
            self._parts[part] = OneDnnLinear(weight[rows], None if bias is None else bias[rows])
        return self._parts[part](x)


class OneDnnDecoder:
    """A decoder on a CPU whose steps use reordered weights. Searches use it like the decoder itself.

    The weights must not change. Steps of very few rows, and whole texts, use the decoder's own weights.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder, self._onednn = decoder, shared_copy(decoder)
        for part in self._onednn.modules():
            if isinstance(part, nn.Linear):
                part.__dict__.setdefault("forward", OneDnnLinear(part.weight, part.bias))
            elif isinstance(part, MultiHead):
                part.__dict__["projected"] = OneDnnRows(part.qkv)
            elif (
                isinstance(part, FeedForward) and part.gate is None
            ):  # `modules` yields it before its own linear layers
                name = next(name for name, known in ACTIVATIONS.items() if known is part.activation)
                if name in POST_OPS:
                    part.up.__dict__["forward"] = OneDnnLinear(part.up.weight, part.up.bias, name)
                    part.activation = _identity
        self._readout: OneDnnLinear | None = None

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if len(tokens) < MIN_ROWS or torch.is_grad_enabled():
            found: tuple[Tensor, Any] = self._decoder.step(tokens, state)
            return found
        features, state = self._onednn.advance(tokens[:, None], state)
        return self._read_out(features[:, 0]), state

    def advance(self, tokens: Tensor, state: Any, *given: Any) -> tuple[Tensor, Any]:
        found: tuple[Tensor, Any] = self._decoder.advance(tokens, state, *given)
        return found

    def _read_out(self, features: Tensor) -> Tensor:
        product = self._decoder.product(features)
        if not isinstance(product, Product):
            logits: Tensor = self._decoder.readout(features)
            return logits
        if self._readout is None:
            self._readout = OneDnnLinear(product.weight, product.bias)
        return self._readout(product.x)


def _identity(x: Tensor) -> Tensor:
    return x


def onednn_usable(decoder: nn.Module) -> bool:
    """Whether a decoder can use oneDNN on this machine, and is small enough for a second copy of its weights."""
    weights = list(decoder.parameters())
    return (
        hasattr(decoder, "product")
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in weights)
        and sum(weight.numel() for weight in weights) <= MAX_WEIGHTS
    )
