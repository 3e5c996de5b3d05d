"""Temporal convolutional networks (Bai et al. 2018): causal, dilated convolutions with residual connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.example import Direction
from regard.errors import UserError
from regard.layers.adaptive import Clustered
from regard.layers.checks import check_config, check_vocabulary, resized_embed
from regard.layers.convolution import CausalConvolution
from regard.layers.product import Product
from regard.layers.recurrent import real_first
from regard.layers.vocabulary import embedding_layer, output_layer, output_product
from regard.mask import zero_padding
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.models.facts import TEXT_OR_NUMBERS
from regard.taps import add_layer

FARTHEST = 2**20  # positions of a receptive field; the state of a model has as many inputs of the last layer


@dataclass(frozen=True)
class TcnConfig(Directed):
    """A temporal convolutional network, as a language model or as the body under a head."""

    takes_padding: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    takes_numbers: ClassVar[bool] = True
    carries: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = TEXT_OR_NUMBERS

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    width: int = 256  # channels of each layer
    embed: int = 256  # width of the token embeddings
    layers: int = 4  # number of residual blocks; each doubles the dilation
    kernel: int = 3  # positions that a convolution reads
    tied: bool = False  # the output layer uses the token embeddings as its matrix; needs embed = width
    dropout: float = 0.1  # dropout of whole channels after each convolution
    embedding_dropout: float = 0.1  # dropout on embeddings and before the readout
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from
    numbers: int = 0  # numbers of a step that are read instead of a token; 0: taken from the data
    softmax: str = "plain"  # plain, or adaptive: tokens in clusters from frequent to rare; gives log-probabilities
    cutoffs: tuple[int, ...] = ()  # adaptive: the first token of each cluster after the first
    divide: int = 1  # adaptive: the width of the vectors is divided by this from one cluster to the next
    direction: Direction = "forward"  # how the text is read: forward, backward (from its end), or both by two models

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "layers"), {}, ("embedding_dropout",))
        if self.kernel < 2:
            raise UserError(f"model.kernel={self.kernel}: must be at least 2, else no position sees an earlier one")
        if self.receptive_field > FARTHEST:
            found = f"an output would depend on more than {FARTHEST:,} positions, with model.kernel={self.kernel}"
            raise UserError(f"model.layers={self.layers}: {found}; give fewer layers or a smaller kernel")
        check_vocabulary(self)

    @property
    def receptive_field(self) -> int:
        """The number of positions that an output depends on, its own included: 1 + 2 (kernel − 1) (2^layers − 1)."""
        return 1 + 2 * (self.kernel - 1) * (2**self.layers - 1)

    def resized(self, width: int) -> Self:
        return replace(self, width=width, embed=width if self.tied else resized_embed(self, width))

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), *((f"blocks.{layer}",) for layer in range(self.layers)), ("readout_",))

    def build(self) -> Tcn:
        return Tcn(self)

    def build_body(self) -> Tcn:
        return Tcn(self, readout=False)


@dataclass(frozen=True, eq=False)
class TcnState:
    """The last inputs of every convolution."""

    inputs: tuple[Tensor, ...]  # two of each block: (B, channels, reach)

    def select(self, rows: Tensor) -> TcnState:
        return TcnState(tuple(each[rows] for each in self.inputs))


class TemporalBlock(nn.Module):
    """Two causal convolutions of one dilation, each with ReLU and dropout, and a residual connection (figure 1b)."""

    def __init__(self, inputs: int, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.first = CausalConvolution(inputs, width, kernel, dilation)
        self.second = CausalConvolution(width, width, kernel, dilation)
        self.residual = nn.Conv1d(inputs, width, 1) if inputs != width else None
        self.dropout = dropout
        if self.residual is not None:
            nn.init.normal_(self.residual.weight, std=0.01)

    def forward(
        self, x: Tensor, before: tuple[Tensor, Tensor], lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, inputs, T) after the last inputs of both convolutions → (B, width, T) and their last inputs."""
        y, first = self.first(x, before[0], lengths)
        y, second = self.second(self._drop(torch.relu(y)), before[1], lengths)
        y = self._drop(torch.relu(y))
        return torch.relu(y + (x if self.residual is None else self.residual(x))), (first, second)

    def _drop(self, x: Tensor) -> Tensor:
        """Dropout of whole channels: neighbouring positions are too similar for a dropout of single numbers."""
        return F.dropout1d(x, self.dropout, self.training)


class Tcn(LanguageModel):
    """Embedding, temporal blocks, output layer. Without ``readout`` it is a body: it has no output layer."""

    def __init__(self, config: TcnConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding_layer(config)
        inputs = [config.embed] + [config.width] * (config.layers - 1)
        self.blocks = nn.ModuleList(
            TemporalBlock(size, config.width, config.kernel, 2**level, config.dropout)
            for level, size in enumerate(inputs)
        )
        self.readout_ = output_layer(config) if readout else None

    def initial(self, rows: int, capacity: int | None = None) -> TcnState:
        """The state before the first token: zeros."""
        convolutions = (part for part in self.blocks.modules() if isinstance(part, CausalConvolution))
        return TcnState(tuple(one.zeros(rows) for one in convolutions))

    def advance(self, tokens: Tensor, state: TcnState, real: Tensor | None = None) -> tuple[Tensor, TcnState]:
        """Reads tokens (B, T): features (B, T, width) and the state after them.

        Padding, False in ``real``, may be anywhere: the real tokens are read first, and the state is that after the
        last of them. The states of a block are in the order in which they are read: without padding, that of the text.
        """
        x, lengths, order = self._drop(self.embedding(tokens)), None, None
        add_layer(x)
        if real is not None:
            order, lengths = real_first(real)[..., None], real.sum(1)
            x = zero_padding(x, real).take_along_dim(order, dim=1)
        x, inputs = x.transpose(1, 2), []
        for number, block in enumerate(self.blocks):
            x, after = block(x, state.inputs[2 * number : 2 * number + 2], lengths)
            inputs += after
            add_layer(x.transpose(1, 2))
        features = x.transpose(1, 2)
        if order is not None:
            features = features.take_along_dim(order.argsort(1), dim=1)
        return features, TcnState(tuple(inputs))

    def product(self, features: Tensor) -> Product | Clustered:
        """The logits as uncomputed matrix products."""
        return output_product(self._drop(features), self.readout_, self.embedding)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.embedding_dropout, self.training)
