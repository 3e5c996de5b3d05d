"""Logits as an uncomputed matrix product, so that a loss can compute them in chunks instead of all at once."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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
        return F.linear(*self)


class Readout(nn.Module):
    """Computes the logits of a model. It has no weights; decoding replaces it by a faster one (``regard.decode``)."""

    def forward(self, product: Logits) -> Tensor:
        return product.logits()
