"""The scalar mix of the layers of a model (Peters et al. 2018, eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """γ · Σᵢ softmax(w)ᵢ · layerᵢ, with one trained number wᵢ for each layer and one scale γ.

    The weights start equal, so that an untrained mix is the mean of the layers.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """The mix (B, T, D) of as many layers, each (B, T, D)."""
        return self.scale * torch.tensordot(self.weights.softmax(0), torch.stack(tuple(layers)), dims=1)


def equal_width(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The layers that are as wide as the last one: those that can be mixed. Embeddings may have another width."""
    return tuple(layer for layer in layers if layer.shape[-1] == layers[-1].shape[-1])
