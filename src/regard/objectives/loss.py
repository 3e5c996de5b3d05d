"""Sums of cross-entropy: never averaged here, since only the whole step knows how many targets it has."""

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED
from regard.kernels.cross_entropy import linear_cross_entropy
from regard.layers.adaptive import Clustered
from regard.layers.product import Product
from regard.objectives.objective import HasLinearReadout, HasReadout


def token_loss(model: HasReadout, features: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The summed negative log-likelihood of the targets (B, T) that are not IGNORED, given features (B, T, W).

    The logits of a large vocabulary would be the largest tensor of the step by far. Where they are one matrix product,
    it is made and judged a chunk at a time, gradients with it; where they are one for each cluster of the vocabulary,
    see `_by_clusters`. Else they are all made.
    """
    targets = targets.flatten()  # (B·T,)
    match model.product(features) if isinstance(model, HasLinearReadout) else None:
        case Product(x, weight, bias):
            return linear_cross_entropy(x.flatten(0, 1), weight, bias, targets, smoothing)
        case Clustered() as clustered if not smoothing:  # which has every token share in every cluster
            return _by_clusters(clustered, targets)
    return cross_entropy(model.readout(features.flatten(0, 1)), targets, smoothing)


def _by_clusters(said: Clustered, targets: Tensor) -> Tensor:
    """The same by an adaptive softmax (Grave et al. 2017): −log p(cluster) − log p(target | cluster).

    A cluster of rare tokens is asked only about the positions that mean one of them. Which those are is read back from
    the device; while a CUDA graph is captured it cannot be, and all are asked.
    """
    frequent = start = len(said.frequent.weight)
    choice, terms = targets, []
    capturing = targets.is_cuda and torch.cuda.is_current_stream_capturing()
    for number, (x, weight, bias) in enumerate(said.rare):
        inside = (targets >= start) & (targets < start + len(weight))
        choice = torch.where(inside, frequent + number, choice)
        some, meant = x.flatten(0, -2), torch.where(inside, targets - start, IGNORED)
        if not capturing:
            some, meant = some[inside], meant[inside]
        terms.append(linear_cross_entropy(some, weight, bias, meant))
        start += len(weight)
    x, weight, bias = said.head
    return sum(terms, linear_cross_entropy(x.flatten(0, -2), weight, bias, choice))


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """Σ −log p(target) over logits (N, V), in float32 or better; a target of `IGNORED` adds nothing.

    Label smoothing (Szegedy et al. 2016, section 7) takes a part of each target's weight and spreads it evenly over the
    vocabulary.
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(precise, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
