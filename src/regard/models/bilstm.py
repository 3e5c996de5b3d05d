"""A bidirectional LSTM over words, the body of taggers and classifiers (Lample et al. 2016; Ma & Hovy 2016).

The vector of a word is its embedding, a convolution over its characters, and the states of another model at the word,
the extractor: word vectors, a language model such as ELMo (Peters et al. 2018), or the encoder of a translator (CoVe,
McCann et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import Table
from regard.data.spelled import CHARACTERS
from regard.data.tokenizers import UNK
from regard.errors import UserError
from regard.heads import pooled
from regard.layers.characters import CharacterEncoder
from regard.layers.checks import check_config, check_shared_width, resized_directions
from regard.layers.dropout import variational_dropout
from regard.layers.mix import ScalarMix, equal_width
from regard.layers.recurrent import Recurrent, real_first
from regard.mask import zero_padding
from regard.models.facts import Classifies, GivesLayers
from regard.models.layered import ReadsTokensAlone
from regard.taps import add_layer


@dataclass(frozen=True)
class BiLstmConfig(Classifies):
    """A bidirectional LSTM over words that are read with their characters; a classifier, or the body of a tagger."""

    reads_words: ClassVar[bool] = True
    pooling: ClassVar[Literal["max"]] = "max"
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("extractor",),
        ("embedding", "characters"),
        ("encoder",),
        ("readout_",),
    )

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    labels: int = 0  # number of classes; 0: taken from the data
    width: int = 400  # width of the states, half of it for each direction
    embed: int = 100  # width of the word embeddings
    layers: int = 1  # number of recurrent layers
    filters: int = 60  # number of filters over the characters of a word; 0: characters are not read
    kernel: int = 3  # number of characters that a filter reads
    character_embed: int = 30  # width of the character embeddings
    dropout: float = 0.5  # dropout on the vectors of words and on states, the same for all words of a text
    word_dropout: float = 0.05  # the part of the words that training reads as unknown words
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from
    extractor: Annotated[Any | None, Table("model")] = None  # another model whose states are read: set by from=DIR
    mixed: int = 0  # number of layers of the extractor that are mixed: set by from=DIR
    extracted: int = 0  # width of these layers: set by from=DIR
    before: tuple[int, ...] = ()  # special tokens that the extractor reads before a text: set by from=DIR
    after: tuple[int, ...] = ()  # special tokens that the extractor reads after a text: set by from=DIR
    tune: bool = False  # whether the extractor is trained too; false: it is frozen

    def __post_init__(self) -> None:
        check_config(self, ("width", "embed", "layers", "kernel", "character_embed"), {}, ("word_dropout",))
        check_shared_width(self.width)
        if self.filters < 0:
            raise UserError(f"model.filters={self.filters}: must be at least 0 (characters are not read)")

    def resized(self, width: int) -> Self:
        return resized_directions(self, width)

    def build(self) -> BiLstm:
        return BiLstm(self)

    def build_body(self) -> BiLstm:
        return BiLstm(self, readout=False)


class BiLstm(ReadsTokensAlone):
    """Words, characters and the layers of an extractor → states of both directions. Without ``readout`` it is a body.

    Dropout is variational: a feature that is dropped is dropped at all words of a text (Gal & Ghahramani 2016).
    """

    def __init__(self, config: BiLstmConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed)
        nn.init.uniform_(self.embedding.weight, -((3 / config.embed) ** 0.5), (3 / config.embed) ** 0.5)
        self.characters = None
        if config.filters:
            filters = ((config.kernel, config.filters),)
            self.characters = CharacterEncoder(filters=filters, embed=config.character_embed, highways=0)
        inputs = config.embed + config.filters
        self.extractor = None
        if config.extractor is not None:
            self.extractor = Extractor(config)
            inputs += config.extracted
        self.encoder = Recurrent(
            "lstm", inputs, config.width, config.layers, directions=2, dropout=config.dropout, variational=True
        )
        if readout:
            self.readout_ = nn.Linear(config.width, config.labels)

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The states (B, T, width) at words (B, T, 1 + CHARACTERS + pieces), see `regard.data.spelled.SpelledText`.

        Words may also be their ids alone, (B, T); they then have no characters, and no states of the extractor. The
        first layer of `layers` is the vectors of the words.
        """
        if tokens.dim() == 2:
            others = CHARACTERS + (0 if self.extractor is None else self.extractor.numbers)
            tokens = F.pad(tokens[..., None], (0, others))
        words, characters, pieces = tokens.split([1, CHARACTERS, tokens.shape[2] - 1 - CHARACTERS], dim=2)
        words = words.squeeze(2)
        if self.training and self.config.word_dropout:
            unknown = torch.rand(words.shape, device=words.device) < self.config.word_dropout
            words = words.masked_fill(unknown, UNK)
        parts = [self.embedding(words)]
        if self.characters is not None:
            parts.append(self.characters(characters))
        if self.extractor is not None:
            parts.append(self.extractor(pieces, real))
        x = torch.cat([part.to(parts[0].dtype) for part in parts], -1)
        x = variational_dropout(x, self.config.dropout, self.training)
        add_layer(x)
        states, _ = self.encoder(x, real)
        return variational_dropout(states, self.config.dropout, self.training)

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states of texts (B, T, width) → logits (B, labels)"""
        return self.readout_(pooled(features, real, "max"))


class Extractor(nn.Module):
    """Another model as a source of word vectors: the mean over the tokens of a word of the mix of the model's layers.

    The weights of the mix are trained, and those of the model only with ``config.tune``. A frozen model runs without
    dropout.
    """

    before: Tensor
    after: Tensor

    def __init__(self, config: BiLstmConfig) -> None:
        super().__init__()
        self.config = config
        inner: Any = config.extractor.directed()  # type: ignore[union-attr]
        self.longest: int | None = inner.longest
        self.body = inner.build_body() if inner.takes_head else inner.build()
        self.body.requires_grad_(config.tune)
        self.mix = ScalarMix(config.mixed)
        self.numbers = max(inner.characters, 1)
        for name, ids in (("before", config.before), ("after", config.after)):
            self.register_buffer(name, torch.tensor(ids, dtype=torch.long).reshape(-1, self.numbers), persistent=False)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.body.train(mode and self.config.tune)
        return self

    def forward(self, pieces: Tensor, real: Tensor | None = None) -> Tensor:
        """The vectors (B, T, D) of words that are the ids (B, T, P · N) plus one of P tokens; 0 is no id.

        N is 1, or the ids of the characters of a token. A word without tokens has the vector 0.
        """
        pieces = pieces.unflatten(2, (-1, self.numbers))  # (B, T, P, N)
        there = pieces[..., 0] > 0 if real is None else (pieces[..., 0] > 0) & real[..., None]
        order = real_first(there.flatten(1))
        most = order.shape[1]
        if pieces.device.type == "cpu":  # on a GPU the shapes are those of the batch, whatever it contains
            most = int(there.flatten(1).sum(1).max())
        kept = order[:, :most]
        tokens = (pieces - 1).clamp_min(0).flatten(1, 2).take_along_dim(kept[..., None], dim=1)
        states = self._in_windows(tokens, there.flatten(1).gather(1, kept))
        states = F.pad(states, (0, 0, 0, order.shape[1] - most))
        states = states.take_along_dim(order.argsort(1)[..., None], dim=1).unflatten(1, pieces.shape[1:3])
        return states.sum(2) / there.sum(2, keepdim=True).clamp(min=1).to(states.dtype)

    def _in_windows(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """The states (B, S, D) of tokens (B, S, N) whose padding is last.

        A text that is longer than the model's context is read in windows, which overlap by a quarter. A token has its
        states of the window in which it is farther from an end.
        """
        count = tokens.shape[1]
        ends = len(self.before) + len(self.after)
        room = max(1, count if self.longest is None else min(count, self.longest - ends))
        shared = room // 4
        stride = room - shared
        windows = 1 + max(0, math.ceil((count - room) / stride))
        more = room + stride * (windows - 1) - count
        tokens = F.pad(tokens, (0, 0, 0, more)).unfold(1, room, stride).transpose(2, 3).flatten(0, 1)
        states = self._states(tokens, F.pad(seen, (0, more)).unfold(1, room, stride).flatten(0, 1))
        states = states.unflatten(0, (-1, windows)).flatten(1, 2)  # (B, windows · room, D)
        place = torch.arange(count, device=tokens.device)
        window = ((place - shared // 2) // stride).clamp(0, windows - 1)
        return states[:, place + window * (room - stride)]

    def _states(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """The mixed states (B, S, D) of tokens (B, S, N), read between the special tokens; 0 at padding."""
        before, after = (ids.expand(len(tokens), -1, -1) for ids in (self.before, self.after))
        some = seen.any(1, keepdim=True)
        seen = torch.cat([some.expand(before.shape[:2]), seen, some.expand(after.shape[:2])], 1)
        order = real_first(seen)
        seen = seen.gather(1, order)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.tune):
            tokens = torch.cat([before, tokens, after], 1).take_along_dim(order[..., None], dim=1)
            tokens = tokens if self.numbers > 1 else tokens.squeeze(2)
            layers = equal_width(cast(GivesLayers, self.body).layers(tokens, seen))
        states = zero_padding(self.mix(layers), seen).take_along_dim(order.argsort(1)[..., None], dim=1)
        return states[:, before.shape[1] : states.shape[1] - after.shape[1]]
