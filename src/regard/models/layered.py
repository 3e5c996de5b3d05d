"""The states of every layer of a model that reads a text."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Layered(nn.Module):
    """A model whose ``features(tokens, real, segments, positions, layers)`` adds the states of each layer to a list."""

    features: Callable[..., Tensor]

    def layers(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The states (B, T, D) of every layer at tokens (B, T): the input embeddings first, ``features`` last.

        The embeddings may have a width of their own.
        """
        found: list[Tensor] = []
        self.features(tokens, real, segments, positions, found)
        return tuple(found)
