"""ELMo (Peters et al. 2018): a language model in two directions that reads the characters of words.

``ElmoConfig`` with ``direction=both``, the default, is two such models around one character encoder and one output
layer (``regard.models.directions``). The states of all its layers are the vectors of words in their context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.characters import LONGEST, words_characters
from regard.data.example import Direction
from regard.errors import UserError
from regard.layers.characters import CharacterEncoder
from regard.layers.checks import check_config
from regard.layers.product import Product
from regard.layers.projected import ProjectedLstm
from regard.mask import zero_padding
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.taps import add_layer, collected_layers

ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True)
class ElmoConfig(Directed):
    """A language model over the characters of words: convolutions, highway layers, projected LSTM layers."""

    takes_padding: ClassVar[bool] = True
    takes_head: ClassVar[bool] = True
    carries: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = {"vocab": "text"}

    vocab: int = 0  # size of the vocabulary that is predicted; 0: taken from the tokenizer
    width: int = 128  # width of the word vectors and of the states of a layer in one direction
    cells: int = 512  # number of cells of each LSTM layer, whose output is projected to the width
    layers: int = 2  # number of LSTM layers of each direction
    skip: bool = True  # a layer after the first adds its input to its output
    cell_clip: float = 3.0  # cells are clipped to ± this number; 0: not clipped
    state_clip: float = 3.0  # projected states are clipped to ± this number; 0: not clipped
    characters: int = LONGEST  # ids of a word: its bytes, the marks of its ends and padding
    embed: int = 16  # width of the character vectors
    kernels: tuple[int, ...] = (1, 2, 3, 4, 5)  # numbers of characters that a filter reads
    filters: tuple[int, ...] = (32, 32, 64, 128, 128)  # number of filters of each kernel
    highways: int = 1  # number of highway layers after the filters
    activation: str = "relu"  # function after the filters: relu or tanh
    dropout: float = 0.1  # dropout on word vectors, between layers and before the readout
    output: bool = True  # whether the model has an output layer; the public models have none
    direction: Direction = "both"  # how the text is read: both by two models, forward, or backward (from its end)

    def __post_init__(self) -> None:
        check_config(self, ("width", "cells", "layers", "embed"), {"activation": ACTIVATIONS})
        stated = ",".join(map(str, self.kernels))
        if not self.kernels or min(self.kernels) < 1 or max(self.kernels) > self.characters:
            raise UserError(f"model.kernels={stated}: give numbers from 1 to model.characters={self.characters}")
        if len(self.filters) != len(self.kernels) or min(self.filters) < 1:
            given = ",".join(map(str, self.filters))
            raise UserError(f"model.filters={given}: give a number of filters for each of model.kernels={stated}")
        if self.characters < 3:
            raise UserError(f"model.characters={self.characters}: give at least 3, a byte between two marks")
        for name, value in (("cell_clip", self.cell_clip), ("state_clip", self.state_clip), ("vocab", self.vocab)):
            if not 0 <= value < float("inf"):
                raise UserError(f"model.{name}={value}: must be at least 0")
        if not 0 <= self.highways <= 100:
            raise UserError(f"model.highways={self.highways}: give 0 to 100")
        if self.width > self.cells:
            raise UserError(f"model.width={self.width}: must be at most model.cells={self.cells}")

    @property
    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        return (("embedding",), *((f"lstms.{layer}",) for layer in range(self.layers)), ("readout_",))

    def resized(self, width: int) -> Self:
        return replace(self, width=width, cells=max(width, self.cells * width // self.width))

    def with_output(self, name: str) -> Self:
        return replace(self, output=True)

    def build(self) -> Elmo:
        return Elmo(self)

    def build_body(self) -> Elmo:
        return Elmo(replace(self, output=False))


@dataclass(frozen=True, eq=False)
class ElmoState:
    """The outputs and cells of every layer after the last word."""

    outputs: Tensor  # (B, layers, width)
    cells: Tensor  # (B, layers, cells)

    def select(self, rows: Tensor) -> ElmoState:
        return ElmoState(self.outputs[rows], self.cells[rows])


class SpelledEmbedding(nn.Module):
    """The vectors of words from their characters: of ids (B, T) of a vocabulary, or of character ids (B, T, C).

    Words that are vectors (B, T, width) already are returned as they are. ``spelling`` has the character ids of each
    word of the vocabulary. Until ``set_words``, an id is spelled as a number.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        filters = tuple(zip(config.kernels, config.filters))
        self.encoder = CharacterEncoder(config.width, filters, config.embed, config.highways, config.activation)
        self.register_buffer("spelling", torch.zeros(config.vocab, config.characters, dtype=torch.int16))
        self.spelling: Tensor
        self.set_words([str(number) for number in range(config.vocab)])

    def set_words(self, words: Sequence[str]) -> None:
        """Spell the ids of the vocabulary by these words."""
        found = words_characters(words, self.spelling.shape[1]).astype(np.int16)
        self.spelling.copy_(torch.from_numpy(found))

    def forward(self, tokens: Tensor) -> Tensor:
        """Each different word of a batch is encoded once. A CUDA graph has fixed shapes, so it encodes all words."""
        if tokens.is_floating_point():
            return tokens
        if tokens.is_cuda and torch.cuda.is_current_stream_capturing():
            return self.encoder(tokens if tokens.dim() == 3 else self.spelling[tokens].long())
        if tokens.dim() == 3:
            words, places = tokens.flatten(0, 1).unique(dim=0, return_inverse=True)
            return F.embedding(places.reshape(tokens.shape[:2]), self.encoder(words))
        words, places = tokens.unique(return_inverse=True)
        return F.embedding(places, self.encoder(self.spelling[words].long()))


class Elmo(LanguageModel):
    """Character encoder, projected LSTM layers, output layer, in one direction."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = SpelledEmbedding(config)
        self.lstms = nn.ModuleList(
            ProjectedLstm(config.width, config.cells, config.width, config.cell_clip, config.state_clip)
            for _ in range(config.layers)
        )
        self.readout_ = nn.Linear(config.width, config.vocab) if config.output else None

    def initial(self, rows: int, capacity: int | None = None) -> ElmoState:
        """The state before the first word: zeros."""
        config = self.config
        zeros = next(self.lstms.parameters()).new_zeros(rows, config.layers, config.width + config.cells)
        return ElmoState(zeros[..., : config.width], zeros[..., config.width :])

    def advance(self, tokens: Tensor, state: ElmoState, real: Tensor | None = None) -> tuple[Tensor, ElmoState]:
        """Reads words, ids (B, T), characters (B, T, C) or vectors: features (B, T, width) and the state after them.

        Padding, False in ``real``, may be anywhere: the state does not change at it.
        """
        x = zero_padding(self.drop(self.embedding(tokens)), real)
        add_layer(x)
        after = []
        for depth, lstm in enumerate(self.lstms):
            output, ended = lstm(
                x if depth == 0 else self.drop(x), state.outputs[:, depth], state.cells[:, depth], real
            )
            x = output + x if depth and self.config.skip else output
            after.append(ended)
            add_layer(x)
        outputs, cells = (torch.stack(part, 1) for part in zip(*after))
        return x, ElmoState(outputs, cells)

    def advance_layers(
        self, tokens: Tensor, state: ElmoState, real: Tensor | None = None
    ) -> tuple[tuple[Tensor, ...], ElmoState]:
        """The word vectors and the states of every layer at the next words, and the state after them."""
        with collected_layers() as layers:
            _, after = self.advance(tokens, state, real)
        return tuple(layers), after

    def product(self, features: Tensor) -> Product:
        """The logits as an uncomputed matrix product."""
        if self.readout_ is None:
            raise UserError("this model does not predict words: ELMo in its public form has no output layer")
        return Product(self.drop(features), self.readout_.weight, self.readout_.bias)
