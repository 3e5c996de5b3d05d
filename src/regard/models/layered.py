"""The states of every layer of a model that reads a text."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.checks import refuse
from regard.models.facts import Model
from regard.taps import collected_layers


class Layered(Model):
    """A model whose ``features`` calls ``add_layer`` with the embeddings and with the states of each layer."""

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
        with collected_layers() as found:
            self.features(tokens, real, segments, positions)
        if not found:
            cure = "call regard.taps.add_layer(states) for its embeddings and after each layer"
            raise UserError(f"{type(self).__name__}: adds no states of layers; {cure}.")
        return tuple(found)


class ReadsTokensAlone(Layered):
    """A model without segments and positions. A subclass has ``states(tokens, real)``, its features."""

    states: Callable[..., Tensor]
    readout: Callable[..., Tensor]

    def features(
        self,
        tokens: Tensor,
        real: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The states (B, T, width) of the last layer at tokens (B, T)."""
        refuse("segments", segments)
        refuse("positions", positions)
        return self.states(tokens, real)

    def forward(self, batch: Batch) -> Tensor:
        """The logits of a batch: (B, labels) of a classifier, else (B, T, V)."""
        real = batch.visible("tokens")
        features = self.features(batch["tokens"], real)
        return self.readout(features, real) if self.config.one_per_text else self.readout(features)
