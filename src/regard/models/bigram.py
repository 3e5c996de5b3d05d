"""The bigram language model: the probability of a token given the token before it, from counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.data.batches import IGNORED
from regard.data.example import Direction
from regard.errors import UserError, nearest
from regard.models.causal import LanguageModel
from regard.models.directions import Directed
from regard.taps import add_layer

SMOOTHINGS = ("add-k", "interpolated")
LARGEST_K = 1e6  # k · V must stay far below the largest float


@dataclass(frozen=True)
class BigramConfig(Directed):
    """P(v | u) for a token v after a token u, from the counts C(u v), C(u) and C(v) in a text of N pairs.

    add-k: (C(u v) + k) / (C(u) + k V), for a vocabulary of V tokens, special tokens included (k = 1: Laplace).
    interpolated (Jelinek & Mercer 1980): weight · C(u v) / C(u) + (1 − weight) · (C(v) + k) / (N + k V); if C(u) = 0,
    the second fraction alone.
    """

    takes_padding: ClassVar[bool] = True
    learns_by: ClassVar[str] = "counts"
    parallel: ClassVar[bool] = True
    width: ClassVar[int] = 1  # the feature of a token is its id

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    smoothing: str = "add-k"  # kind of smoothing: add-k or interpolated
    k: float = 1.0  # added to every count; 0: no smoothing
    weight: float = 0.75  # interpolated: the weight of the bigram, from 0 to 1
    pairs: int = 0  # number of different pairs that were counted; training sets it
    direction: Direction = "forward"  # how the text is read: forward, backward (from its end), or both by two models

    def __post_init__(self) -> None:
        if self.smoothing not in SMOOTHINGS:
            raise UserError(
                f"model.smoothing={self.smoothing}: no such smoothing.{nearest(self.smoothing, SMOOTHINGS)}"
            )
        if not 0 <= self.k <= LARGEST_K:
            raise UserError(f"model.k={self.k}: give 0 (no smoothing) to {LARGEST_K:,.0f}, such as 1.")
        if self.pairs < 0:
            raise UserError(f"model.pairs={self.pairs}: training sets it; leave it at 0.")
        if not 0 <= self.weight <= 1:
            raise UserError(f"model.weight={self.weight}: give a number from 0 to 1.")

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> BigramConfig:
        """The settings of a new model, with the sizes of the fields. It has no counts yet."""
        if self.pairs:
            raise UserError(f"model.pairs={self.pairs}: training sets it; leave it at 0.")
        return super().with_sizes(sizes, padded)

    def resized(self, width: int) -> BigramConfig:
        """The same config: counts have no width."""
        return self

    def build(self) -> Bigram:
        return Bigram(self)


@dataclass(frozen=True)
class NoState:
    """The state of a model that reads one token alone."""

    def select(self, rows: Tensor) -> NoState:
        return self


class Bigram(LanguageModel):
    """The counts of pairs of tokens, sparse: the number of a pair (u, v) is u · V + v, and `numbers` is sorted."""

    def __init__(self, config: BigramConfig) -> None:
        super().__init__()
        self.config = config
        self.numbers = _counts(config.pairs)
        self.counts = _counts(config.pairs)  # C(u v) of each number
        self.first = _counts(config.vocab)  # C(u): how often a token is the first of a pair
        self.second = _counts(config.vocab)  # C(v): how often a token is the second of a pair

    def add(self, tokens: Tensor, targets: Tensor) -> None:
        """Count the pairs of each token and its target; IGNORED targets do not count."""
        there = targets != IGNORED
        u, v = tokens[there], targets[there]
        numbers, where = torch.cat([self.numbers, u * self.config.vocab + v]).unique(return_inverse=True)
        new = torch.cat([self.counts, torch.ones_like(u)])
        counts = torch.zeros_like(numbers).index_add_(0, where, new)
        self.numbers, self.counts = (nn.Parameter(x, requires_grad=False) for x in (numbers, counts))
        self.first.index_add_(0, u, torch.ones_like(u))
        self.second.index_add_(0, v, torch.ones_like(v))
        self.config = replace(self.config, pairs=len(numbers))

    def count(self, u: Tensor, v: Tensor) -> Tensor:
        """C(u v) of pairs of tokens, in the common shape of u and v."""
        wanted = u * self.config.vocab + v
        if not len(self.numbers):
            return torch.zeros_like(wanted)
        place = torch.searchsorted(self.numbers, wanted).clamp(max=len(self.numbers) - 1)
        return torch.where(self.numbers[place] == wanted, self.counts[place], 0)

    def probability(self, u: Tensor, v: Tensor) -> Tensor:
        """P(v | u), in double precision. After a token that was never counted, all tokens are equally likely."""
        k, vocab = self.config.k, self.config.vocab
        pair, first = self.count(u, v).double(), self.first[u].double()
        if self.config.smoothing == "add-k":
            return torch.where(first + k > 0, (pair + k) / (first + k * vocab), 1 / vocab)
        total = self.second.sum().double()
        single = torch.where(total + k > 0, (self.second[v].double() + k) / (total + k * vocab), 1 / vocab)
        weight = self.config.weight * (first > 0).double()  # without a count of u, only the single tokens are left
        return weight * pair / first.clamp(min=1) + (1 - weight) * single

    def formula(self, u: int, v: int) -> str:
        """P(v | u) written with its counts, such as "(2 + 1) / (5 + 1 · 10)"."""
        pair, first = int(self.count(*self.first.new_tensor([u, v]))), int(self.first[u])
        add, below = f" + {self.config.k:g}", f" + {self.config.k:g} · {self.config.vocab}"
        if self.config.smoothing == "add-k":
            return f"({pair}{add}) / ({first}{below})" if first + self.config.k else f"1 / {self.config.vocab}"
        second, total, weight = int(self.second[v]), int(self.second.sum()), self.config.weight
        single = f"({second}{add}) / ({total}{below})" if total + self.config.k else f"1 / {self.config.vocab}"
        return f"{weight:g} · {pair} / {first} + {1 - weight:g} · {single}" if first else single

    def initial(self, rows: int, capacity: int | None = None) -> NoState:
        """The state before the first token: nothing."""
        return NoState()

    def advance(self, tokens: Tensor, state: NoState, real: Tensor | None = None) -> tuple[Tensor, NoState]:
        """The features (B, T, 1) of tokens (B, T) are their ids."""
        features = tokens[..., None].double()
        add_layer(features)
        return features, state

    def readout(self, features: Tensor) -> Tensor:
        """The log-probabilities (…, V) of the next token."""
        return self.target_logps(features, torch.arange(self.config.vocab, device=features.device))

    def target_logps(self, features: Tensor, targets: Tensor) -> Tensor:
        """The log-probabilities of targets (…) or (…, n) alone, given features (…, 1)."""
        return self.probability(features.long(), targets).log()


def _counts(size: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(size, dtype=torch.long), requires_grad=False)
