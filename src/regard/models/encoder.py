"""Encoders: what a decoder gets of a source, and the recurrent encoder of a text."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.recurrent import Recurrent, add_layer


@dataclass(frozen=True, eq=False)
class Encoded:
    """The output of an encoder. Each decoder makes its own memory of it (``Attention.memory``)."""

    states: Tensor  # (B, Ts, width): of a text, one for each token
    summary: Tensor  # (B, width): of the whole source
    real: Tensor | None = None  # (B, Ts) False at padding


class RecurrentEncoder(nn.Module):
    """Reads a text: token embeddings, then a recurrent stack."""

    def __init__(self, embedding: nn.Embedding, rnn: Recurrent) -> None:
        super().__init__()
        self.embedding, self.rnn = embedding, rnn

    def forward(self, source: Tensor, real: Tensor | None = None, layers: list[Tensor] | None = None) -> Encoded:
        """(B, Ts) tokens → the states of the last layer, and its state after the last token.

        The embeddings and the states of each layer are added to ``layers``.
        """
        x = F.dropout(self.embedding(source), self.rnn.dropout, self.training)
        add_layer(layers, x)
        states, last = self.rnn(x, real, layers)
        return Encoded(states, last[:, -1], real)
