"""Objectives for numbers: regression, and independent yes-or-no answers."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.objectives.objective import Objective, Sums


@dataclass(frozen=True)
class Regression(Objective):
    """Predict a number. The loss is the squared error.

    It is the negative log-likelihood of a normal distribution with variance ½, without its constant.
    """

    heads: ClassVar[tuple[str, ...]] = ("number",)
    measures: ClassVar[tuple[str, ...]] = ("squared",)

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        targets = batch["targets"]  # (B,), NaN: counts for nothing
        found = model(batch).float()
        total = (found - targets).where(~targets.isnan(), found.new_zeros(())).square().sum()
        return {"nll": total, "squared": total.detach()}, None


@dataclass(frozen=True)
class BinaryAnswers(Objective):
    """Predict several independent yes-or-no answers: the labels of a text, or at each place the keys of a piano.

    The loss of a text or place is the sum of the binary cross-entropies of its answers, in nats.
    """

    heads: ClassVar[tuple[str, ...]] = ("keys", "labels")

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        targets = batch["targets"]  # (B, labels) or (B, T, keys) of 0 and 1, NaN: counts for nothing
        padding = targets.isnan()
        logits = model(batch).float().masked_fill(padding, 0.0)
        nll = F.binary_cross_entropy_with_logits(logits, targets.masked_fill(padding, 0.0), reduction="none")
        return {"nll": torch.sum(nll.masked_fill(padding, 0.0))}, None
