"""Teacher forcing and scheduled sampling: the objectives that predict the next token.

With teacher forcing a decoder reads the true tokens. It trains fast and in parallel, but reads its own mistakes only
when it is used. With scheduled sampling (Bengio et al. 2015) it reads some of its own tokens during training, and more
of them later. AWD-LSTM adds penalties on the states (Merity et al. 2018, §4.5).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.data.fields import Field
from regard.errors import UserError
from regard.layers.product import Product
from regard.objectives.loss import product_loss, token_loss
from regard.objectives.objective import (
    CausalModel,
    Objective,
    ReadsBothWays,
    Sums,
    begin,
    both_ways,
    carried,
    check_weight,
)
from regard.scores import at_least_float32

Decay = Literal["constant", "linear", "inverse-sigmoid"]


@dataclass(frozen=True)
class TeacherForcing(Objective):
    """Predict each target from the true tokens before it; with a ratio below 1, some are the model's own tokens."""

    ratio: float = 1.0  # the initial probability that the decoder reads the true token
    schedule: Decay = "constant"  # how that probability decays
    floor: float = 0.0  # the lowest probability
    over: int = 1000  # steps of the decay
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    sampled: int = 0  # tokens of a sampled softmax, which training uses for a large vocabulary; 0: the whole softmax
    carries: ClassVar[bool] = True
    measures: ClassVar[tuple[str, ...]] = ("forward", "backward")  # the losses of two directions
    heads: ClassVar[tuple[str, ...]] = ("target", "next", "both")

    def __post_init__(self) -> None:
        check_part("ratio", self.ratio)
        check_smoothing(self.smoothing)
        if not 0 <= self.floor <= self.ratio:
            raise UserError(f"objective.floor={self.floor}: give 0 to objective.ratio ({self.ratio}).")
        if self.sampled < 0 or (self.sampled and self.smoothing):
            cure = "give 0 (the whole softmax) or more, without objective.smoothing"
            raise UserError(f"objective.sampled={self.sampled}: {cure}.")
        if self.over < 1:
            raise UserError(f"objective.over={self.over}: give at least 1 step.")

    def modules(self, model: Any, fields: Mapping[str, Field]) -> None:
        """No modules. Refuses own tokens for a model whose memory moves on after each call: it reads whole segments."""
        if (self.ratio, self.schedule) != (1.0, "constant") and model.config.carries and model.config.parallel:
            stated = f"objective.ratio={self.ratio} objective.schedule={self.schedule}"
            raise UserError(f"{stated}: a model with a segment memory needs a ratio of 1; leave them out.")

    @property
    def capturable(self) -> bool:
        """False with a schedule: a CUDA graph would keep the probability of the step that was captured."""
        return self.schedule == "constant"

    def __call__(
        self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, Any]:
        """The loss of a batch. No gradient flows into the batch before (truncated back-propagation through time).

        Of two directions, it is half the sum of their losses: its mean is that over the targets of both.
        """
        if isinstance(model, ReadsBothWays):
            one, other, after = both_ways(self, model, batch, step, state)
            return {"nll": (one["nll"] + other["nll"]) / 2, "forward": one["nll"], "backward": other["nll"]}, after
        ratio = self.ratio_at(step)
        features, after = forced(model, batch, state) if ratio == 1.0 else mixed(model, batch, ratio, state)
        sampled = self.sampled if features.requires_grad else 0  # an evaluation is exact
        nll = token_loss(model, features, batch["targets"], self.smoothing, sampled)
        return {"nll": nll}, carried(model, batch, after)

    def ratio_at(self, step: int) -> float:
        """The probability of the true token at a step, from `ratio` down to `floor` (Bengio et al. 2015, section 2.4).

        The k of the inverse sigmoid k / (k + exp(i / k)) is such that half of the decay is done after over / 2 steps.
        """
        match self.schedule:
            case "constant":
                left = 1.0
            case "linear":
                left = max(1 - step / self.over, 0.0)
            case "inverse-sigmoid":
                k = _solve_k(self.over / 2)
                left = 1 / (1 + math.exp(min(step / k, 700.0)) / k)
        return left * self.ratio + (1 - left) * self.floor  # exactly `ratio` at step 0


def forced(model: CausalModel, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
    """The features (B, T, W) of a model that reads the true tokens, in one call, and the state after them."""
    return model.advance(batch["tokens"], begin(model, batch) if state is None else state)


def mixed(model: CausalModel, batch: Batch, ratio: float, state: Any = None) -> tuple[Tensor, Any]:
    """The features (B, T, W) of a model that reads each true token with probability `ratio`, else its own token.

    Its own token is the likeliest one; no gradient passes through that choice. The first token is always the true one.
    Also returns the state after the last token.
    """
    tokens, state = batch["tokens"][:, :1], begin(model, batch) if state is None else state
    features: list[Tensor] = []
    for t in range(batch["tokens"].shape[1]):
        if t > 0:
            with torch.no_grad():
                predicted = model.readout(features[-1]).argmax(dim=-1)  # (B, 1)
            use_true = torch.rand(predicted.shape, device=predicted.device) < ratio
            tokens = torch.where(use_true, batch["tokens"][:, t : t + 1], predicted)
        feature, state = model.advance(tokens, state)
        features.append(feature)
    return torch.cat(features, dim=1), state


def check_part(name: str, value: float) -> None:
    """Refuse a fraction that is not between 0 and 1."""
    if not 0 <= value <= 1:
        raise UserError(f"objective.{name}={value}: give a number from 0 to 1.")


def check_smoothing(value: float) -> None:
    """Refuse label smoothing outside [0, 1)."""
    if not 0 <= value < 1:
        raise UserError(f"objective.smoothing={value}: give 0 (none) or more, below 1, such as 0.1.")


def _solve_k(half: float) -> float:
    """The k > 1 with k · ln k = half, by Newton's method."""
    k = 1.0 + half
    for _ in range(30):
        k -= (k * math.log(k) - half) / (math.log(k) + 1)
    return k


@dataclass(frozen=True)
class Exposure:
    """For each position: the mean loss of the true token, and how often it is not the likeliest token."""

    forced_loss: list[float]  # given the true tokens before it
    free_loss: list[float]  # given the model's own tokens before it
    forced_error: list[float]
    free_error: list[float]
    count: list[int]  # the number of targets at the position


@torch.no_grad()
def exposure(model: CausalModel, batches: Iterable[Batch]) -> Exposure:
    """Evaluate a model at every position, once teacher-forced and once free-running; it must be in evaluation mode.

    Free-running, the model reads its own likeliest tokens, which are compared with the targets by position.
    """
    totals: Tensor = torch.zeros(5, 0)
    for batch in batches:
        targets = batch["targets"]
        real = targets != IGNORED
        found = [real.sum(dim=0).float()]
        for features, _ in (forced(model, batch), mixed(model, batch, ratio=0.0)):
            logits = model.readout(features).float()  # (B, T, V)
            loss = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")  # (B, T)
            wrong = logits.argmax(dim=-1) != targets
            found += [loss.sum(dim=0), (wrong & real).sum(dim=0).float()]
        totals = _add_padded(totals, torch.stack(found).cpu())
    count, *sums = totals[:, totals[0] > 0]
    forced_loss, forced_error, free_loss, free_error = ((each / count).tolist() for each in sums)
    return Exposure(forced_loss, free_loss, forced_error, free_error, [int(n) for n in count])


def _add_padded(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tables (5, T) of unequal width."""
    width = max(a.shape[1], b.shape[1])
    return F.pad(a, (0, width - a.shape[1])) + F.pad(b, (0, width - b.shape[1]))


@dataclass(frozen=True)
class RegularisedActivations(Objective):
    """Teacher forcing, with a penalty on large states and on states that differ from one token to the next.

    The states hₜ are those of the last layer. AR is ar · mean (m ⊙ hₜ)², with the dropout mask m of the output layer.
    TAR is tar · mean (hₜ₊₁ − hₜ)².
    """

    ar: float = 2.0  # weight of activation regularisation: the mean square of the states, after dropout
    tar: float = 1.0  # weight of temporal activation regularisation: of the change of the states from token to token
    carries: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("next", "both")

    def __post_init__(self) -> None:
        check_weight("ar", self.ar, 2)
        check_weight("tar", self.tar, 1)

    @property
    def weights(self) -> Mapping[str, float]:
        return {"nll": 1.0, "ar": self.ar, "tar": self.tar}

    def count(self, batch: Batch) -> dict[str, int]:
        real = batch.real["tokens"]
        pairs = int((real[:, 1:] & real[:, :-1]).sum())
        return {"nll": batch.counts["targets"], "ar": int(real.sum()), "tar": pairs}

    def __call__(
        self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, Any]:
        if isinstance(model, ReadsBothWays):
            one, other, after = both_ways(self, model, batch, step, state)
            return {name: (one[name] + other[name]) / 2 for name in self.weights}, after
        features, after = forced(model, batch, state)
        product: Any = model.product(features)  # type: ignore[attr-defined]
        if not isinstance(product, Product):
            raise UserError("objective=regularised: the model has an adaptive softmax; set model.softmax=plain.")
        penalties = regularisation(product.x, features, batch.real["tokens"])
        return {"nll": product_loss(product, batch["targets"]), **penalties}, carried(model, batch, after)


def regularisation(dropped: Tensor, states: Tensor, real: Tensor) -> dict[str, Tensor]:
    """The sums of both penalties over the tokens that are real, (B, T), given states (B, T, width)."""
    dropped, states = at_least_float32(dropped), at_least_float32(states)
    change = (states[:, 1:] - states[:, :-1]).square().mean(-1)
    return {
        "ar": (dropped.square().mean(-1) * real).sum(),
        "tar": (change * (real[:, 1:] & real[:, :-1])).sum(),
    }
