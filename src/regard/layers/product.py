"""A matrix product not yet made: whoever needs only what follows from the logits need not have them all."""

from typing import NamedTuple

from torch import Tensor


class Product(NamedTuple):
    """What a model's logits are made of: ``F.linear(*product)``."""

    x: Tensor  # (…, W)
    weight: Tensor  # (V, W)
    bias: Tensor | None = None  # (V,)
