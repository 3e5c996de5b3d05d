"""Recurrent language models (Mikolov et al. 2010): an embedding, RNN, LSTM or GRU layers, an output layer.

AWD-LSTM (Merity et al. 2018) is an LSTM with other dropout: `weight_drop`, `variational` and `embedding_dropout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from regard.data.example import Direction
from regard.errors import UserError
from regard.layers.adaptive import Clustered
from regard.layers.cells import MEANINGS
from regard.layers.checks import check_config, check_vocabulary, resized_embed
from regard.layers.dropout import drop, embedding_dropout
from regard.layers.product import Product
from regard.layers.recurrent import KERNELS, Recurrent, chrono_start
from regard.layers.vocabulary import embedding_layer, output_layer, output_product
from regard.mask import zero_padding
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.models.facts import TEXT_OR_NUMBERS
from regard.taps import add_layer


@dataclass(frozen=True)
class RecurrentLmConfig(Directed):
    """A recurrent language model without attention; `model=rnn`, `model=lstm` and `model=gru` choose the cell."""

    takes_padding: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True
    carries: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = TEXT_OR_NUMBERS
    first_weights: ClassVar[tuple[str, ...]] = ("chrono",)

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    cell: str = "lstm"  # kind of recurrent cell: rnn, lstm or gru
    width: int = 256  # width of the recurrent states
    embed: int = 256  # width of the token embeddings
    layers: int = 2  # number of recurrent layers
    tied: bool = False  # the output layer uses the token embeddings as its matrix; needs embed = width
    hidden: int = 0  # width of the layers below the last; 0: model.width
    dropout: float = 0.1  # dropout on embeddings, between layers and before the readout
    input_dropout: float | None = None  # dropout on embeddings; none: model.dropout
    hidden_dropout: float | None = None  # dropout between layers; none: model.dropout
    embedding_dropout: float = 0.0  # part of the vocabulary whose embeddings are zero during a training step
    weight_drop: float = 0.0  # dropout on the hidden-to-hidden matrices, drawn once for each training step
    variational: bool = False  # whether a dropout mask is the same at all tokens of a row (Gal & Ghahramani 2016)
    chrono: int = 0  # steps of memory that gates start with (chrono initialisation, Tallec & Ollivier 2018); 0: about 2
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from
    numbers: int = 0  # numbers of a step that are read instead of a token; 0: taken from the data
    softmax: str = "plain"  # plain, or adaptive: tokens in clusters from frequent to rare; gives log-probabilities
    cutoffs: tuple[int, ...] = ()  # adaptive: the first token of each cluster after the first
    divide: int = 1  # adaptive: the width of the vectors is divided by this from one cluster to the next
    direction: Direction = "forward"  # how the text is read: forward, backward (from its end), or both by two models

    def __post_init__(self) -> None:
        dropouts = ("input_dropout", "hidden_dropout", "embedding_dropout", "weight_drop")
        check_config(self, ("width", "embed", "layers"), {"cell": tuple(KERNELS)}, dropouts)
        check_vocabulary(self)
        if self.hidden < 0 or (self.hidden and self.layers == 1):
            raise UserError(f"model.hidden={self.hidden}: the width of the layers below the last; leave it at 0.")
        if self.chrono < 0 or self.chrono == 1:
            raise UserError(f"model.chrono={self.chrono}: must be at least 2, or 0 for the biases of torch")
        if self.chrono and self.cell == "rnn":
            raise UserError(f"model.chrono={self.chrono}: an RNN has no gates; leave it at 0, or set model.cell=lstm.")
        if self.embedding_dropout and self.numbers:
            raise UserError(f"model.embedding_dropout={self.embedding_dropout}: the data has numbers; leave it at 0.")

    def resized(self, width: int) -> Self:
        embed = width if self.tied else resized_embed(self, width)
        return replace(self, width=width, embed=embed, hidden=round(self.hidden * width / self.width))

    @property
    def gates(self) -> Mapping[str, str]:
        return MEANINGS[self.cell]

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), *((f"rnn.onward.{layer}",) for layer in range(self.layers)), ("readout_",))

    def build(self) -> RecurrentLm:
        return RecurrentLm(self)

    def build_body(self) -> RecurrentLm:
        return RecurrentLm(self, readout=False)


@dataclass(frozen=True, eq=False)
class RecurrentLmState:
    """The hidden vectors after the last token."""

    hidden: Tensor  # (B, layers, parts, width)

    def select(self, rows: Tensor) -> RecurrentLmState:
        return RecurrentLmState(self.hidden[rows])


class RecurrentLm(LanguageModel):
    """Embedding, recurrent stack, output layer. Without ``readout`` it is a body: it has no output layer."""

    def __init__(self, config: RecurrentLmConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding_layer(config)
        self.rnn = Recurrent(
            config.cell,
            config.embed,
            config.width,
            config.layers,
            dropout=config.dropout if config.hidden_dropout is None else config.hidden_dropout,
            hidden=config.hidden,
            weight_drop=config.weight_drop,
            variational=config.variational,
        )
        if config.chrono:
            chrono_start(self.rnn, config.chrono)
        self.readout_ = output_layer(config) if readout else None

    def initial(self, rows: int, capacity: int | None = None) -> RecurrentLmState:
        """The state before the first token: zeros."""
        return RecurrentLmState(self.rnn.zeros(rows, next(self.parameters())))

    def advance(
        self, tokens: Tensor, state: RecurrentLmState, real: Tensor | None = None
    ) -> tuple[Tensor, RecurrentLmState]:
        """Reads tokens (B, T): features (B, T, width) and the state after them.

        Padding, False in ``real``, may be anywhere: the state does not change at it. If ``real`` is given, no states of
        layers are added.
        """
        x, hidden = self._embedded(tokens), state.hidden
        if real is None:
            add_layer(x)
            features, hidden = self.rnn.advance(x, hidden)
            return features, RecurrentLmState(hidden)
        outputs, noise = [], self.rnn.noise(len(x), x)
        for t, read in enumerate(zero_padding(x, real).unbind(1)):
            output, after = self.rnn.step(read, hidden, noise)
            hidden = torch.where(real[:, t, None, None, None], after, hidden)
            outputs.append(output)
        return torch.stack(outputs, 1), RecurrentLmState(hidden)

    def trace(self, tokens: Tensor) -> list[dict[str, Tensor]]:
        """What the cells compute when they read tokens (B, T), by their equations: see ``Recurrent.trace``."""
        return self.rnn.trace(self._embedded(tokens), self.start(rows=len(tokens)).hidden)

    def product(self, features: Tensor) -> Product | Clustered:
        """The logits as uncomputed matrix products."""
        features = drop(features, self.config.dropout, self.training, self.config.variational)
        return output_product(features, self.readout_, self.embedding)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """The embeddings of tokens (B, T) with their dropout."""
        config, x = self.config, self.embedding(tokens)
        x = embedding_dropout(x, tokens, config.vocab, config.embedding_dropout, self.training)
        share = config.dropout if config.input_dropout is None else config.input_dropout
        return drop(x, share, self.training, config.variational)
