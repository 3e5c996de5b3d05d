"""Sums of cross-entropy. They are not averaged here, since the number of targets is that of the whole step."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED
from regard.kernels.cross_entropy import linear_cross_entropy
from regard.layers.adaptive import Clustered
from regard.layers.product import Product
from regard.objectives.objective import HasLinearReadout, HasReadout, HasTargetLogps


def token_loss(
    model: HasReadout, features: Tensor, targets: Tensor, smoothing: float = 0.0, sampled: int = 0
) -> Tensor:
    """The summed negative log-likelihood of the targets (B, T) that are not IGNORED, given features (B, T, W).

    The logits of a large vocabulary would be the largest tensor of the step. If they are one matrix product, logits,
    loss and gradients are computed in chunks; if they are one product per cluster of the vocabulary, see
    `_adaptive_loss`. With ``sampled`` tokens, the normalisation of one product is estimated (`sampled_loss`). A model
    that counts gives the log-probability of a target alone. Else all logits are computed at once.
    """
    targets = targets.flatten()  # (B·T,)
    if isinstance(model, HasTargetLogps):
        logps = model.target_logps(features.flatten(0, 1), targets.clamp_min(0)[:, None])[:, 0]
        return -logps.masked_fill(targets == IGNORED, 0.0).sum()
    match model.product(features) if isinstance(model, HasLinearReadout) else None:
        case Product(x, weight, bias) if 0 < sampled < len(weight):
            return sampled_loss(x.flatten(0, 1), weight, bias, targets, log_uniform(len(weight), sampled, x.device))
        case Product() as product:
            return product_loss(product, targets, smoothing)
        case Clustered() as clustered if not smoothing:  # smoothing needs the logits of all clusters
            return _adaptive_loss(clustered, targets)
    return cross_entropy(model.readout(features.flatten(0, 1)), targets, smoothing)


def product_loss(product: Product, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of logits that are one matrix product; the logits are never in memory all at once."""
    x, weight, bias = product
    return linear_cross_entropy(x.flatten(0, 1), weight, bias, targets.flatten(), smoothing)


def _adaptive_loss(logits: Clustered, targets: Tensor) -> Tensor:
    """The loss of an adaptive softmax (Grave et al. 2017): −log p(cluster) − log p(target | cluster).

    A cluster of rare tokens is computed only at the positions whose targets are in it. That needs a synchronisation,
    which is not possible while a CUDA graph is captured: then every cluster is computed at all positions.
    """
    frequent = start = len(logits.frequent.weight)
    head_targets, terms = targets, []
    capturing = targets.is_cuda and torch.cuda.is_current_stream_capturing()
    for number, (x, weight, bias) in enumerate(logits.rare):
        inside = (targets >= start) & (targets < start + len(weight))
        head_targets = torch.where(inside, frequent + number, head_targets)
        features, labels = x.flatten(0, -2), torch.where(inside, targets - start, IGNORED)
        if not capturing:
            features, labels = features[inside], labels[inside]
        terms.append(linear_cross_entropy(features, weight, bias, labels))
        start += len(weight)
    x, weight, bias = logits.head
    return sum(terms, linear_cross_entropy(x.flatten(0, -2), weight, bias, head_targets))


def log_uniform(vocab: int, count: int, device: torch.device) -> Tensor:
    """Ids (count,) of a vocabulary that is sorted from frequent to rare: P(k) = log((k + 2) / (k + 1)) / log(V + 1).

    This is close to the frequencies of words (Zipf's law). An id may be drawn several times.
    """
    drawn = torch.rand(count, device=device, dtype=torch.float64) * math.log(vocab + 1)
    return (drawn.exp() - 1).long().clamp_max(vocab - 1)


def sampled_loss(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, drawn: Tensor) -> Tensor:
    """Σ −log p(target) with an estimate of the normalisation from ids that `log_uniform` drew (Jean et al. 2015, §3).

    Z = exp(z_target) + Σ exp(z_k) / (count · P(k)) over the drawn ids k that are not the target: on average the whole
    sum. States x (N, W) and targets (N,), of which IGNORED ones are left out.
    """
    kept = targets.clamp_min(0)
    right = (x * weight[kept]).sum(-1).float() + (0.0 if bias is None else bias[kept].float())
    others = F.linear(x, weight[drawn], None if bias is None else bias[drawn]).float()  # (N, count)
    expected = len(drawn) * torch.log((drawn + 2.0) / (drawn + 1.0)) / math.log(len(weight) + 1)
    others = (others - expected.log()).masked_fill(drawn == kept[:, None], -math.inf)
    losses = torch.cat([right[:, None], others], 1).logsumexp(1) - right
    return losses.masked_fill(targets == IGNORED, 0.0).sum()


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
    """Σ −log p(target) over logits (N, V), in float32 or better; `IGNORED` targets are left out.

    Label smoothing (Szegedy et al. 2016, section 7) moves a part of each target's weight to a uniform distribution over
    the vocabulary. `weights` (V,) are the weights of the classes.
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    weights = None if weights is None else weights.to(precise)
    return F.cross_entropy(precise, targets, weights, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
