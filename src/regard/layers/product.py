"""Logits as an uncomputed matrix product, so that a loss can compute them in chunks instead of all at once."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Logits(Protocol):
    """Logits that are not computed yet: one matrix product, or one for each cluster of the vocabulary."""

    def logits(self) -> Tensor:
        """The logits, (…, V)."""
        ...


class Product(NamedTuple):
    """The factors of a model's logits: ``F.linear(*product)`` computes the logits."""

    x: Tensor  # (…, W)
    weight: Tensor  # (V, W)
    bias: Tensor | None = None  # (V,)

    def logits(self) -> Tensor:
        """The logits: in float32 if the factors are bfloat16 on a GPU and need no gradient.

        Rounded to bfloat16, a logit has three digits, so that tokens of different probability get equal logits.
        """
        x, weight, bias = self
        if x.is_cuda and x.dtype == weight.dtype == torch.bfloat16 and not torch.is_grad_enabled():
            product = torch.mm(x.reshape(-1, x.shape[-1]), weight.mT, out_dtype=torch.float32)
            return (product if bias is None else product + bias).view(*x.shape[:-1], len(weight))
        return F.linear(x, weight, bias)


class Readout(nn.Module):
    """Computes the logits of a model. It has no weights; decoding replaces it by a faster one (``regard.decode``)."""

    def forward(self, product: Logits) -> Tensor:
        return product.logits()
