"""Why dot products are divided by √width: what a softmax becomes when its logits grow (Vaswani et al. 2017, §3.2.1).

Where the components of q and k are independent, with mean 0 and variance 1, q·k has variance ``width``. Undivided, the
logits of wide heads lie so far apart that the softmax picks one key and is flat everywhere around: nothing to learn
from.
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
class Softness:
    """What a softmax over dot products looks like: means over the queries, but for the gradient."""

    spread: float  # standard deviation of the logits
    entropy: float  # of the weights, in nats: ln(keys) is an even mixture, 0 one key alone
    largest: float  # the largest weight
    gradient: float  # ‖∂weights/∂logits‖ of the median query: the mean would be that of a few lucky ties
    sorted: list[float]  # the weights of one query, the largest first


@dataclass(frozen=True)
class Scaling:
    """The same queries and keys, compared with and without the division."""

    width: int
    plain: Softness  # q·k
    scaled: Softness  # q·k / √width


def scaling(widths: Sequence[int] = WIDTHS, keys: int = 64, queries: int = 256, seed: int = 1) -> list[Scaling]:
    """Random queries and keys of unit variance at every width, and the softmax over their dot products."""
    found = []
    for width in widths:
        generator = torch.Generator().manual_seed(seed)
        q = torch.randn(queries, 1, width, generator=generator, dtype=torch.float64)
        k = torch.randn(queries, keys, width, generator=generator, dtype=torch.float64)  # every query has its own keys
        found.append(Scaling(width, _softness(Dot(), q, k), _softness(ScaledDot(width), q, k)))
    return found


def _softness(score: Score, q: Tensor, k: Tensor) -> Softness:
    at = torch.zeros(1, dtype=torch.long)
    logits = score.logits(q, k, at, torch.arange(k.shape[1]))
    p = weights(score, q, k).squeeze(1)  # (queries, keys)
    entropy = -torch.xlogy(p, p).sum(dim=1)
    return Softness(
        spread=logits.std().item(),
        entropy=entropy.mean().item(),
        largest=p.amax(dim=1).mean().item(),
        gradient=jacobian_norm(p).median().item(),
        sorted=p[0].sort(descending=True).values.tolist(),
    )


def jacobian_norm(p: Tensor) -> Tensor:
    """‖∂p/∂logits‖ of softmax rows p (N, keys): the Frobenius norm of diag(p) − ppᵀ, without writing it out."""
    square = p.square().sum(dim=1)
    return (square - 2 * p.pow(3).sum(dim=1) + square.square()).clamp(min=0).sqrt()


def even(keys: int) -> float:
    """The entropy of an even mixture: as soft as a softmax can be."""
    return math.log(keys)
