"""Learning to say a sequence: how much of the truth the model is told while it speaks.

Told every earlier token (teacher forcing), a decoder trains fast and in parallel, but meets its own mistakes for the
first time when it is used. Scheduled sampling (Bengio et al. 2015) feeds it its own words now and then, later more
often.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import UserError
from regard.objectives.loss import token_loss
from regard.objectives.objective import CausalModel, Sums, begin, no_corruption, no_modules

Decay = Literal["constant", "linear", "inverse-sigmoid"]


@dataclass(frozen=True)
class TeacherForcing:
    """Predict each target from the truth before it, or, below ratio 1, from what the model itself said there."""

    ratio: float = 1.0  # the chance that a decoder is told the true token, at first
    schedule: Decay = "constant"  # how that chance falls
    floor: float = 0.0  # where it falls to
    over: int = 1000  # in so many steps
    smoothing: float = 0.0  # the weight that targets give up to the whole vocabulary
    weights: ClassVar[Mapping[str, float]] = {"nll": 1.0}
    heads: ClassVar[tuple[str, ...]] = ("target", "next")
    modules = staticmethod(no_modules)
    corruption = staticmethod(no_corruption)

    def __post_init__(self) -> None:
        check_part("ratio", self.ratio)
        check_smoothing(self.smoothing)
        if not 0 <= self.floor <= self.ratio:
            raise UserError(f"objective.floor={self.floor}: give 0 to objective.ratio ({self.ratio}).")
        if self.over < 1:
            raise UserError(f"objective.over={self.over}: give at least 1 step.")

    @property
    def capturable(self) -> bool:
        """A probability that changes would be frozen into a captured graph."""
        return self.schedule == "constant"

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.counts["targets"]}

    def __call__(self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        ratio = self.ratio_at(step)
        features = forced(model, batch) if ratio == 1.0 else mixed(model, batch, ratio)
        return {"nll": token_loss(model, features, batch["targets"], self.smoothing)}

    def ratio_at(self, step: int) -> float:
        """The chance of the truth at a step: `ratio` at first, `floor` in the end (Bengio et al. 2015, section 2.4).

        The inverse sigmoid k / (k + exp(i / k)) has k such that half of the way down is done after over / 2 steps.
        """
        match self.schedule:
            case "constant":
                left = 1.0
            case "linear":
                left = max(1 - step / self.over, 0.0)
            case "inverse-sigmoid":
                k = _solve_k(self.over / 2)
                left = 1 / (1 + math.exp(min(step / k, 700.0)) / k)
        return left * self.ratio + (1 - left) * self.floor  # at first `ratio` to the last bit: 1 is one call


def forced(model: CausalModel, batch: Batch) -> Tensor:
    """The features (B, T, W) of a model that reads the truth, in one call."""
    features, _ = model.advance(batch["tokens"], begin(model, batch))
    return features


def mixed(model: CausalModel, batch: Batch, ratio: float) -> Tensor:
    """The features (B, T, W) of a model that reads each token as it is with chance `ratio`, else as it said it.

    What it says is its best guess, and no gradient flows through the choice. The first token is always the truth.
    """
    tokens, state = batch["tokens"][:, :1], begin(model, batch)
    features: list[Tensor] = []
    for t in range(batch["tokens"].shape[1]):
        if t > 0:
            with torch.no_grad():
                said = model.readout(features[-1]).argmax(dim=-1)  # (B, 1)
            told = torch.rand(said.shape, device=said.device) < ratio
            tokens = torch.where(told, batch["tokens"][:, t : t + 1], said)
        feature, state = model.advance(tokens, state)
        features.append(feature)
    return torch.cat(features, dim=1)


def check_part(name: str, value: float) -> None:
    """Refuse a setting that is no part of a whole."""
    if not 0 <= value <= 1:
        raise UserError(f"objective.{name}={value}: give a number from 0 to 1.")


def check_smoothing(value: float) -> None:
    """Refuse label smoothing that leaves the target nothing."""
    if not 0 <= value < 1:
        raise UserError(f"objective.smoothing={value}: give 0 (none) or more, below 1, such as 0.1.")


def _solve_k(half: float) -> float:
    """The k > 1 with k · ln k = half, by Newton's method."""
    k = 1.0 + half
    for _ in range(30):
        k -= (k * math.log(k) - half) / (math.log(k) + 1)
    return k
