"""Logits as an uncomputed matrix product, so that a loss can compute them in chunks instead of all at once."""

from typing import NamedTuple

from torch import Tensor


class Product(NamedTuple):
    """The factors of a model's logits: ``F.linear(*product)`` computes the logits."""

    x: Tensor  # (…, W)
    weight: Tensor  # (V, W)
    bias: Tensor | None = None  # (V,)
