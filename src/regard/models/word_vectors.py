"""Static word vectors, one for each word, whatever its context: CBOW, skip-gram, GloVe, and the vectors of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.facts import Facts
from regard.models.layered import ReadsTokensAlone
from regard.taps import add_layer


@dataclass(frozen=True)
class WordVectorsConfig(Facts):
    """The vectors of a file: one table."""

    causal: ClassVar[bool] = False
    predicts: ClassVar[tuple[str, ...]] = ("words",)
    learns_by: ClassVar[str] = "nothing"
    embedding_width: ClassVar[str] = "width"

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    width: int = 100  # numbers of a vector
    embedding: str = ""  # a file of word vectors to start from; empty: none

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"model.width={self.width}: give 1 or more, such as 100.")

    def build(self) -> WordVectors:
        return WordVectors(self)


@dataclass(frozen=True)
class SkipgramConfig(WordVectorsConfig):
    """Skip-gram (Mikolov et al. 2013): the vector of each context word predicts the word in the middle."""

    learns_by: ClassVar[str] = "pairs"

    def build(self) -> Skipgram:
        return Skipgram(self)


@dataclass(frozen=True)
class CbowConfig(WordVectorsConfig):
    """Continuous bag of words (Mikolov et al. 2013): the mean of the context's vectors predicts the word in the middle.

    As in the published program, each context word gets the whole gradient of the mean, not its share of it.
    """

    learns_by: ClassVar[str] = "pairs"

    def build(self) -> Cbow:
        return Cbow(self)


@dataclass(frozen=True)
class GloveConfig(WordVectorsConfig):
    """GloVe (Pennington et al. 2014): wᵢ · cⱼ + bᵢ + dⱼ is the logarithm of the count of words i and j together.

    The vector of a word is wᵢ + cᵢ.
    """

    learns_by: ClassVar[str] = "cooccurrences"

    def build(self) -> Glove:
        return Glove(self)


class WordVectors(ReadsTokensAlone):
    """A table with a vector for each word. The rows of special tokens are zeros."""

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        nn.init.uniform_(self.embedding.weight, -0.5 / config.width, 0.5 / config.width)

    @property
    def vectors(self) -> Tensor:
        """The vectors of all words (V, width)."""
        return self.embedding.weight

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The vectors (B, T, width) of tokens (B, T), which are the only layer."""
        found = nn.functional.embedding(tokens, self.vectors)
        add_layer(found)
        return found

    def readout(self, features: Tensor) -> Tensor:
        """The products (…, V) of vectors (…, width) with the vectors of all words."""
        return features @ self.vectors.mT


class Skipgram(WordVectors):
    """Skip-gram: `embedding` has the vectors of words in a context, `output` those of predicted words.

    For hierarchical softmax, `output` has the vectors of the inner nodes of the tree.
    """

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__(config)
        self.embedding.weight.data *= 2  # in ±1 / width, as in gensim 4: CBOW learns faster than from word2vec's ±½
        self.output = nn.Parameter(torch.zeros(config.vocab, config.width))

    def pairs(self, near: Tensor) -> tuple[Tensor, Tensor | None]:
        """Which words are predicted from what, and how that is made of the words that are read.

        `near` (B, I, T) is 1 where word i is in the context of the centre t. The result is the pairs (B, X, T), 1 where
        x predicts t, and the weights (B, X, I) of the words that x is a mean of; None: x is word i itself.
        """
        return near, None

    def examples(self, context: Sequence[int]) -> Iterator[Sequence[int]]:
        """The definition of `pairs` for one centre: the groups of context words whose mean predicts it."""
        return ((place,) for place in context)


class Cbow(Skipgram):
    """CBOW: the mean of a context predicts its centre."""

    def pairs(self, near: Tensor) -> tuple[Tensor, Tensor | None]:
        count = near.sum(1)  # (B, T)
        return torch.diag_embed((count > 0).to(near)), (near / count.clamp(min=1)[:, None]).mT

    def examples(self, context: Sequence[int]) -> Iterator[Sequence[int]]:
        return iter([context] if context else [])


class Glove(WordVectors):
    """GloVe: the vectors and biases of words (`embedding`, `bias`) and of context words (`output`, `output_bias`)."""

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__(config)
        self.output = nn.Parameter(torch.empty_like(self.embedding.weight))
        nn.init.uniform_(self.output, -0.5 / config.width, 0.5 / config.width)
        self.bias = nn.Parameter(torch.zeros(config.vocab))
        self.output_bias = nn.Parameter(torch.zeros(config.vocab))

    @property
    def vectors(self) -> Tensor:
        return self.embedding.weight + self.output

    def log_counts(self, words: Tensor, contexts: Tensor) -> Tensor:
        """wᵢ · cⱼ + bᵢ + dⱼ of words i and context words j, each (N,)."""
        product = (self.embedding.weight[words] * self.output[contexts]).sum(-1)
        return product + self.bias[words] + self.output_bias[contexts]
