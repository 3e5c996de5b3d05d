"""Why dot products are divided by the square root of the width.

Queries and keys are random; every component has mean 0 and variance 1. Their dot product is a sum over all components,
so its variance is the width. In wide heads the logits are therefore far apart, and the softmax gives almost all weight
to one key. There its gradient is almost 0, so the head can hardly learn to attend to another key. After division by
√width the logits have variance 1 at every width, and the weights stay spread over several keys (Vaswani et al. 2017,
§3.2.1).

Measured for every width, with and without the division: the standard deviation of the logits (spread), the entropy of
the weights in nats, the largest weight, and the size of ∂weights/∂logits for the median query (gradient).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import weights
from regard.explain.options import ScalingOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.report.sections import Curve, Heatmap, Heatmaps, Line, Section, Table
from regard.scores import Dot, ScaledDot, Score

READING = """
For small widths the gradient is larger without the division, because a softmax is most sensitive when a few keys
compete. For larger widths it falls quickly. (The mean over queries would fall more slowly: it is dominated by the few
queries whose two best keys have similar logits.)
"""
STATISTICS = ("spread", "entropy", "largest", "gradient")
SIDES = {"q·k / √width": "scaled", "q·k": "unscaled"}


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


def run(options: ScalingOptions, report: Report = no_report) -> Result:
    """Measures the softmax over dot products of random queries and keys, for each width."""
    found = []
    for width in options.widths:
        generator = torch.Generator().manual_seed(options.seed)
        q = torch.randn(options.queries, 1, width, generator=generator, dtype=torch.float64)
        k = torch.randn(options.queries, options.keys, width, generator=generator, dtype=torch.float64)
        found.append(Scaling(width, _measure(Dot(), q, k), _measure(ScaledDot(width), q, k)))
    first, last = found[0], found[-1]
    verdict = (
        f"Without the division, the largest weight is on average {first.unscaled.largest:.0%} at width {first.width} "
        f"and {last.unscaled.largest:.0%} at width {last.width}. At width {last.width} the gradient is "
        f"{last.unscaled.gradient / last.scaled.gradient:.2g} times the gradient with the division. "
        f"Uniform weights over {options.keys} keys have entropy {math.log(options.keys):.2f}."
    )
    columns = ["width", *(f"{name}\n{score}" for score in ("q·k", "q·k/√d") for name in STATISTICS)]
    sections: list[Section] = [
        prose(__doc__),
        _curve(found, "Entropy of the weights", "entropy", "entropy, nats", log_y=False),
        _curve(found, "Gradient of the softmax", "gradient", "‖∂weights/∂logits‖, median", log_y=True),
        Heatmaps(
            "The weights of one query", [_heatmap(found, "q·k / √width", "scaled"), _heatmap(found, "q·k", "unscaled")]
        ),
        Table(f"Softmax over {options.keys} keys", columns, [_row(one) for one in found], verdict),
        reading(READING, options),
    ]
    data = {"keys": options.keys, "seed": options.seed, "widths": found}
    about = (
        f"No model is trained. For each width, {options.queries} queries with {options.keys} keys each are random "
        f"numbers (seed {options.seed})."
    )
    return Result("Why dot products are divided by √width", about, data, sections)


def _measure(score: Score, q: Tensor, k: Tensor) -> SoftmaxStatistics:
    logits = score.logits(q, k, torch.zeros(1, dtype=torch.long), torch.arange(k.shape[1]))
    p = weights(score, q, k).squeeze(1)  # (queries, keys)
    return SoftmaxStatistics(
        spread=logits.std().item(),
        entropy=-torch.xlogy(p, p).sum(dim=1).mean().item(),
        largest=p.amax(dim=1).mean().item(),
        gradient=jacobian_norm(p).median().item(),
        sorted=p[0].sort(descending=True).values.tolist(),
    )


def jacobian_norm(p: Tensor) -> Tensor:
    """‖∂p/∂logits‖ for softmax outputs p (N, keys): the Frobenius norm of diag(p) − ppᵀ, without forming the matrix."""
    square = p.square().sum(dim=1)
    return (square - 2 * p.pow(3).sum(dim=1) + square.square()).clamp(min=0).sqrt()


def _row(one: Scaling) -> list[str]:
    values = [(name, getattr(side, name)) for side in (one.unscaled, one.scaled) for name in STATISTICS]
    return [str(one.width), *(f"{value:.1e}" if name == "gradient" else f"{value:.2f}" for name, value in values)]


def _curve(found: list[Scaling], title: str, name: str, label: str, log_y: bool) -> Curve:
    widths = [one.width for one in found]
    lines = [Line(side, widths, [getattr(getattr(one, key), name) for one in found]) for side, key in SIDES.items()]
    return Curve(title, "width of queries and keys", label, lines, log_y=log_y, log_x=True)


def _heatmap(found: list[Scaling], title: str, side: str) -> Heatmap:
    values = [getattr(one, side).sorted[:24] for one in found]
    widths, ranks = [str(one.width) for one in found], [str(at + 1) for at in range(len(values[0]))]
    return Heatmap(title, "keys by rank", "width", values, widths, ranks, 14, vmax=1.0)
