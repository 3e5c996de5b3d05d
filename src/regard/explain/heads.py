"""What heads attend to: each head's attention to the previous word, the next, itself and separators; entropy; distance.

These are the statistics of Clark et al. (2019, §3). For comparison they are also computed for uniform attention, which
gives every visible word the same weight.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class HeadStatistics:
    """The statistics of one head: means over all queries."""

    layer: str  # "uniform" for uniform attention
    head: int  # -1 for uniform attention
    previous: float  # weight on the previous word
    next: float
    itself: float
    first: float  # weight on the first position
    separator: float  # total weight on separators and punctuation, without the first position
    entropy: float  # of the weights, in nats
    distance: float  # mean distance to the keys, in words


STATISTICS = tuple(field.name for field in fields(HeadStatistics))[2:]
PATTERNS = STATISTICS[:5]  # those that are a part of the weight
TextWeights = tuple[dict[str, Tensor], Sequence[bool]]  # weights (H, T, T) by layer; which words are separators


def run(texts: Iterable[TextWeights]) -> list[HeadStatistics]:
    """The statistics of all heads, as means over all words of the texts; the last item is uniform attention."""
    sums: dict[tuple[str, int], Tensor] = {}
    words = 0
    for layers, separators in texts:
        words += len(separators)
        for name, weights in layers.items():
            for head, statistics in enumerate(_sum_statistics(weights, separators)):
                sums[name, head] = sums.get((name, head), torch.zeros(())) + statistics
        visible = torch.stack([(weights > 0).any(dim=0) for weights in layers.values()]).any(dim=0)[None]  # to any head
        uniform = visible / visible.sum(dim=-1, keepdim=True)
        sums["uniform", -1] = sums.get(("uniform", -1), torch.zeros(())) + _sum_statistics(uniform, separators)[0]
    sums["uniform", -1] = sums.pop(("uniform", -1))  # moved to the end
    return [HeadStatistics(layer, head, *(total / words).tolist()) for (layer, head), total in sums.items()]


def strongest_heads(found: Sequence[HeadStatistics]) -> dict[str, HeadStatistics]:
    """For each of PATTERNS, the head with the largest weight; uniform attention, the last item, is left out."""
    return {name: max(found[:-1], key=lambda one: getattr(one, name)) for name in PATTERNS}


def _sum_statistics(weights: Tensor, separators: Sequence[bool]) -> Tensor:
    """(H, T, T) → (H, statistics), each summed over the queries."""
    at = torch.arange(len(separators))
    offset = at - at[:, None]  # (T, T) from query to key, positive to the right
    patterns = (
        offset == -1,
        offset == 1,
        offset == 0,
        (at == 0).expand_as(offset),
        (torch.tensor(separators) & (at > 0)).expand_as(offset),
    )
    pattern_weights = [(weights * pattern).sum(dim=(-2, -1)) for pattern in patterns]
    entropy = -torch.xlogy(weights, weights).sum(dim=(-2, -1))
    return torch.stack([*pattern_weights, entropy, (weights * offset.abs()).sum(dim=(-2, -1))], dim=-1)
