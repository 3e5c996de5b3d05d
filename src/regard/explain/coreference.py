"""Do heads resolve the pronoun "it"? A head does if it attends more to the noun that "it" means than to the other.

Among many heads, one does well by chance. So the best head is selected on one half of the sentences and tested on the
other half. (Clark et al. 2019, §4, look for heads that follow syntax and coreference.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.alignment import merge
from regard.explain.pronouns import Version

Head = tuple[str, int]  # the name of the layer, and the head's number there


@dataclass(frozen=True)
class Proportion:
    """Successes out of a number of trials; a tie counts as half a success."""

    successes: float
    count: int

    @property
    def rate(self) -> float:
        return self.successes / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the rate (Wilson 1927), which is also valid near 0 and 1."""
        if not self.count:
            return 0.0, 1.0
        z, n = 1.96, self.count
        middle = (self.rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.rate * (1 - self.rate) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class HeadScore:
    """The results of one head on pairs of sentences. Chance is 50 % for both proportions."""

    layer: str
    head: int
    correct: Proportion  # of the sentences: attends more to the correct noun
    shifted: Proportion  # of the pairs: when the ending changes, attention shifts towards the noun that is now correct


@dataclass(frozen=True)
class HeadScores:
    """All heads on all pairs, and the best head: on the pairs that selected it, and on the other pairs."""

    heads: list[HeadScore]
    best_on_selection: HeadScore
    best_on_test: HeadScore


def preference(weights: Tensor, words: Sequence[int], version: Version, query: int) -> Tensor:
    """Each head's attention from the word ``query`` to the correct noun minus that to the wrong one: (H, T, T) → (H,)

    ``words`` has the index of each token's word: the weights on all tokens of a word are added up.
    """
    merged = torch.from_numpy(merge(weights.double().numpy(), words, words))  # (H, words, words)
    nouns = merged[:, query, list(version.nouns)]  # (H, 2)
    return nouns[:, version.correct] - nouns[:, 1 - version.correct]


def score_heads(preferences: Tensor, names: Sequence[Head]) -> HeadScores:
    """Scores heads by their preferences (pairs, 2, heads). Pairs 0, 2, 4 … select the best head, the others test it."""
    selection = _score(preferences[0::2], names)
    best = max(range(len(names)), key=lambda at: (selection[at].correct.successes, selection[at].shifted.successes))
    return HeadScores(_score(preferences, names), selection[best], _score(preferences[1::2], names)[best])


def _score(preferences: Tensor, names: Sequence[Head]) -> list[HeadScore]:
    """Scores all heads. The sum over both versions of a pair cancels a head's preference for a fixed position."""
    correct, shifted = _count_positive(preferences.flatten(0, 1)), _count_positive(preferences.sum(dim=1))
    pairs = len(preferences)
    return [
        HeadScore(layer, head, Proportion(one, 2 * pairs), Proportion(two, pairs))
        for (layer, head), one, two in zip(names, correct, shifted)
    ]


def _count_positive(preferences: Tensor) -> list[float]:
    """(N, heads) → for each head, the number of positive preferences; 0 counts as a half."""
    counts: list[float] = ((preferences > 0).double() + (preferences == 0).double() / 2).sum(dim=0).tolist()
    return counts
