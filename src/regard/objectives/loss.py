"""Sums of cross-entropy: never averaged here, since only the whole step knows how many targets it has."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.objectives.judged import Speaker

LARGEST = 256 * 2**20  # bytes of logits beyond which they are made, and made again going back, a part at a time
IGNORED = -100  # a target that nobody is judged by


def token_loss(model: Speaker, features: Tensor, targets: Tensor, real: Tensor, smoothing: float = 0.0) -> Tensor:
    """The summed negative log-likelihood of the real targets, given features (B, T, W).

    The logits of a large vocabulary would be the largest tensor of the step by far. Beyond `LARGEST` they are computed
    for some positions at a time and thrown away; the backward pass computes them again, with the same dropout.
    """
    features, targets = features.flatten(0, 1), judged_targets(targets, real).flatten()  # (B·T, W), (B·T,)

    def part(some: Tensor, said: Tensor) -> Tensor:
        return cross_entropy(model.readout(some), said, smoothing)

    with torch.no_grad():
        vocab = model.readout(features[:1]).shape[-1]
    positions = max(LARGEST // (4 * vocab), 1)
    # While a GPU records a graph, the state of its random numbers cannot be kept to repeat the dropout.
    if len(features) <= positions or (features.is_cuda and torch.cuda.is_current_stream_capturing()):
        return part(features, targets)
    parts = [
        checkpoint(part, some, said, use_reentrant=False)
        for some, said in zip(features.split(positions), targets.split(positions))
    ]
    return torch.stack(parts).sum()


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Σ −log p(target) over logits (N, V), in float32 or better; a target of `IGNORED` adds nothing.

    Label smoothing (Szegedy et al. 2016, section 7) takes a part of each target's weight and spreads it evenly over the
    vocabulary.
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(precise, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)


def judged_targets(targets: Tensor, real: Tensor) -> Tensor:
    """The targets with `IGNORED` in the place of padding."""
    return targets.masked_fill(~real, IGNORED)
