"""Structured self-attention (Lin et al. 2017): a sentence is represented by several weighted sums of its states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from regard.attention import Attention, Memory
from regard.data.tokenizers import PAD
from regard.layers.checks import check_config, check_shared_width, resized_directions
from regard.layers.recurrent import KERNELS, Recurrent
from regard.mask import zero_padding
from regard.models.facts import Classifies
from regard.models.layered import ReadsTokensAlone
from regard.scores import Dot
from regard.taps import add_layer


@dataclass(frozen=True)
class StructuredConfig(Classifies):
    """A text classifier: bidirectional recurrent states, pooled by several learned attention queries (hops)."""

    pooling: ClassVar[Literal["mean"]] = "mean"
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("embedding",),
        ("encoder",),
        ("readout_", "hidden", "hops", "key"),
    )

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    labels: int = 0  # number of classes; 0: taken from the data
    width: int = 256  # width of the recurrent states
    embed: int = 128  # width of the token embeddings
    layers: int = 1  # number of recurrent layers
    cell: str = "lstm"  # kind of recurrent cell: rnn, lstm or gru
    hops: int = 4  # number of attention queries (hops)
    attention: int = 64  # width of the queries and keys
    dropout: float = 0.1  # dropout on embeddings, between layers, and before the hidden and the output layer
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "layers", "hops", "attention"), {"cell": KERNELS})
        check_shared_width(self.width)

    @property
    def attention_rows(self) -> tuple[str, ...]:
        return tuple(f"hop {number}" for number in range(1, self.hops + 1))

    def resized(self, width: int) -> Self:
        return resized_directions(self, width)

    def build(self) -> Structured:
        return Structured(self)

    def build_body(self) -> Structured:
        return Structured(self, readout=False)


class Structured(ReadsTokensAlone):
    """A = softmax(W₂ tanh(W₁ Hᵀ)), M = A H (Lin et al. 2017, eq. 6-7). The rows of W₂ are queries, one for each hop.

    Without ``readout`` it is a body: the encoder alone.
    """

    def __init__(self, config: StructuredConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed, padding_idx=PAD)
        self.encoder = Recurrent(
            config.cell, config.embed, config.width, config.layers, directions=2, dropout=config.dropout
        )
        if not readout:
            return
        self.key = nn.Linear(config.width, config.attention, bias=False)
        self.hops = nn.Parameter(torch.randn(config.hops, config.attention) / config.attention**0.5)
        self.attention = Attention(Dot())
        self.hidden = nn.Linear(config.hops * config.width, config.width)
        self.readout_ = nn.Linear(config.width, config.labels)

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states of texts (B, T, width) → logits (B, labels)"""
        features = zero_padding(features, real)
        memory = Memory(torch.tanh(self.key(features)), features, real, finite_padding=True)
        pooled = self.attention(self.hops.expand(len(features), -1, -1), memory)  # M (B, hops, width)
        hidden = torch.relu(self.hidden(self.drop(pooled.flatten(1))))
        return self.readout_(self.drop(hidden))

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The states (B, T, width) of the encoder at tokens (B, T)."""
        x = self.drop(self.embedding(tokens))
        add_layer(x)
        states, _ = self.encoder(x, real)
        return states
