"""A bidirectional LSTM that predicts masked tokens: what a recurrent network learns from BERT's task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from regard.layers.checks import check_config, check_shared_width, resized_directions
from regard.layers.product import Product
from regard.layers.recurrent import KERNELS, Recurrent
from regard.mask import zero_padding
from regard.models.facts import Facts
from regard.models.layered import ReadsTokensAlone
from regard.taps import add_layer


@dataclass(frozen=True)
class MaskedLstmConfig(Facts):
    """A recurrent network that reads a text with masks in both directions. The state of a place has read its mask."""

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("masked",)
    takes_head: ClassVar[bool] = True
    tied: ClassVar[bool] = True

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    cell: str = "lstm"  # kind of recurrent cell: rnn, lstm or gru
    width: int = 512  # width of the states, half of it for each direction
    embed: int = 256  # width of the token embeddings, which are also the matrix of the output layer
    layers: int = 2  # number of recurrent layers
    dropout: float = 0.1  # dropout on embeddings, between layers and on states
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "layers"), {"cell": tuple(KERNELS)})
        check_shared_width(self.width)

    @property
    def embedding_scale(self) -> float:
        """As in Vaswani et al. 2017, section 3.4: an embedding that suits the output layer is small for the input."""
        return float(self.embed**0.5)

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), ("encoder",), ("join", "bias"))

    def resized(self, width: int) -> Self:
        return resized_directions(self, width)

    def build(self) -> MaskedLstm:
        return MaskedLstm(self)

    def build_body(self) -> MaskedLstm:
        return MaskedLstm(self, readout=False)


class MaskedLstm(ReadsTokensAlone):
    """Embedding, a recurrent network of two directions, and a projection of its states to the width of embeddings.

    Without ``readout`` it is a body: it has no projection.
    """

    def __init__(self, config: MaskedLstmConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed)
        nn.init.normal_(self.embedding.weight, std=config.embed**-0.5)
        self.encoder = Recurrent(
            config.cell, config.embed, config.width, config.layers, directions=2, dropout=config.dropout
        )
        self.join = nn.Linear(config.width, config.embed) if readout else None
        self.bias = nn.Parameter(torch.zeros(config.vocab)) if readout else None

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The states (B, T, width) at tokens (B, T)."""
        x = zero_padding(self.drop(self.embedding(tokens) * self.config.embedding_scale), real)
        add_layer(x)
        states, _ = self.encoder(x, real)
        return self.drop(states)

    def product(self, features: Tensor) -> Product:
        """The logits of masked tokens as an uncomputed product with the embeddings."""
        assert self.join is not None
        return Product(self.join(features), self.embedding.weight, self.bias)

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, V) of the tokens of places with these features (…, width)."""
        return self.product(features).logits()
