"""Does a head know what "it" means? Whether it looks more at the noun that is meant than at the one that is not.

With many heads one of them is good by chance. So the best is chosen on one half of the sentences and judged on the
other (Clark et al. 2019, §4, look for heads of syntax in this way).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.alignment import merge
from regard.explain.pronouns import Version

Head = tuple[str, int]  # the name of its layer, and its number there


@dataclass(frozen=True)
class Share:
    """So many of so many; a tie is half a hit."""

    hits: float
    count: int

    @property
    def rate(self) -> float:
        return self.hits / self.count if self.count else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true rate lies, with a confidence of 95 % (Wilson 1927): sound near 0 and 1 too."""
        if not self.count:
            return 0.0, 1.0
        z, n = 1.96, self.count
        middle = (self.rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.rate * (1 - self.rate) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Resolver:
    """How one head does on some pairs of sentences. Chance is a half, in both."""

    layer: str
    head: int
    right: Share  # of the sentences: looks more at the right noun
    moved: Share  # of the pairs: when the end changes, its preference moves towards the noun that is then right


@dataclass(frozen=True)
class Resolution:
    """Every head over all pairs; and the best on one half of them, as it does on this half and on the other."""

    heads: list[Resolver]
    chosen: Resolver
    best: Resolver


def lead(weights: Tensor, words: Sequence[int], version: Version, asking: int) -> Tensor:
    """How much more each head looks from the asking word at the right noun than at the wrong: (H, T, T) → (H,)

    ``words`` says for each token which word it is part of: nouns are looked at by all their pieces together.
    """
    merged = torch.from_numpy(merge(weights.double().numpy(), words, words))  # (H, words, words)
    on = merged[:, asking, list(version.nouns)]  # (H, 2)
    return on[:, version.right] - on[:, 1 - version.right]


def resolution(leads: Tensor, names: Sequence[Head]) -> Resolution:
    """Judges heads by their leads (pairs, 2, heads). The pairs at even places choose the best, the others judge it."""
    choosing = _judged(leads[0::2], names)
    best = max(range(len(names)), key=lambda at: (choosing[at].right.hits, choosing[at].moved.hits))
    return Resolution(_judged(leads, names), choosing[best], _judged(leads[1::2], names)[best])


def _judged(leads: Tensor, names: Sequence[Head]) -> list[Resolver]:
    """Both versions of a pair make one preference: the position of a noun, which is the same in both, drops out."""
    right, moved = _hits(leads.flatten(0, 1)), _hits(leads.sum(dim=1))
    pairs = len(leads)
    return [
        Resolver(layer, head, Share(one, 2 * pairs), Share(two, pairs))
        for (layer, head), one, two in zip(names, right, moved)
    ]


def _hits(leads: Tensor) -> list[float]:
    """(N, heads) → for each head, how often it leads."""
    hits: list[float] = ((leads > 0).double() + (leads == 0).double() / 2).sum(dim=0).tolist()
    return hits
