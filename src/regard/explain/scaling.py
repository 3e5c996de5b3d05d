"""Why dot products are divided by √width: large logits saturate the softmax (Vaswani et al. 2017, §3.2.1).

If the components of q and k are independent, with mean 0 and variance 1, then q·k has variance ``width``. Without the
division, the logits of wide heads are so far apart that the softmax gives almost all weight to one key. There its
gradient is almost 0, so training can hardly change it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import weights
from regard.scores import Dot, ScaledDot, Score

WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class SoftmaxStatistics:
    """Statistics of a softmax over dot products: means over the queries, but for the gradient."""

    spread: float  # standard deviation of the logits
    entropy: float  # of the weights, in nats: from 0 (all weight on one key) to ln(keys) (uniform)
    largest: float  # the largest weight
    gradient: float  # ‖∂weights/∂logits‖, median over queries: a few queries with close logits dominate the mean
    sorted: list[float]  # the weights of one query, in descending order


@dataclass(frozen=True)
class Scaling:
    """Statistics for the same queries and keys, with and without the division."""

    width: int
    unscaled: SoftmaxStatistics  # q·k
    scaled: SoftmaxStatistics  # q·k / √width


def run(widths: Sequence[int] = WIDTHS, keys: int = 64, queries: int = 256, seed: int = 1) -> list[Scaling]:
    """Statistics of the softmax over dot products of random queries and keys with unit variance, for each width."""
    results = []
    for width in widths:
        generator = torch.Generator().manual_seed(seed)
        q = torch.randn(queries, 1, width, generator=generator, dtype=torch.float64)
        k = torch.randn(queries, keys, width, generator=generator, dtype=torch.float64)  # every query has its own keys
        results.append(Scaling(width, _measure(Dot(), q, k), _measure(ScaledDot(width), q, k)))
    return results


def _measure(score: Score, q: Tensor, k: Tensor) -> SoftmaxStatistics:
    q_at, k_at = torch.zeros(1, dtype=torch.long), torch.arange(k.shape[1])
    logits = score.logits(q, k, q_at, k_at)
    p = weights(score, q, k).squeeze(1)  # (queries, keys)
    entropy = -torch.xlogy(p, p).sum(dim=1)
    return SoftmaxStatistics(
        spread=logits.std().item(),
        entropy=entropy.mean().item(),
        largest=p.amax(dim=1).mean().item(),
        gradient=jacobian_norm(p).median().item(),
        sorted=p[0].sort(descending=True).values.tolist(),
    )


def jacobian_norm(p: Tensor) -> Tensor:
    """‖∂p/∂logits‖ for softmax outputs p (N, keys): the Frobenius norm of diag(p) − ppᵀ, without forming the matrix."""
    square = p.square().sum(dim=1)
    return (square - 2 * p.pow(3).sum(dim=1) + square.square()).clamp(min=0).sqrt()


def uniform_entropy(keys: int) -> float:
    """The entropy of uniform weights, the largest possible."""
    return math.log(keys)
