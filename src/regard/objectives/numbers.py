"""Objectives for numbers: regression, and independent yes-or-no answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.data.fields import Field
from regard.objectives.auxiliary import check_predicts_next, count_next_tokens, logits_and_language
from regard.objectives.objective import Objective, Sums, check_weight


@dataclass(frozen=True)
class Regression(Objective):
    """Predict a number. The loss is the squared error.

    It is the negative log-likelihood of a normal distribution with variance ½, without its constant.
    """

    language: float = 0.0  # weight of the loss of the next token of the text, for a causal body (Radford et al. 2018)
    heads: ClassVar[tuple[str, ...]] = ("number",)
    measures: ClassVar[tuple[str, ...]] = ("squared",)

    def __post_init__(self) -> None:
        check_weight("language", self.language, 0.5)

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, **({"language": self.language} if self.language else {})}

    def count(self, batch: Batch) -> dict[str, int]:
        return super().count(batch) | ({"language": count_next_tokens(batch)} if self.language else {})

    def modules(self, model: Any, fields: Mapping[str, Field]) -> None:
        if self.language:
            check_predicts_next(model)

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets, sums = batch["targets"], {}  # (B,), NaN: counts for nothing
        if self.language:
            numbers, sums["language"] = logits_and_language(model, batch)
        else:
            numbers = model(batch)
        error = numbers - targets  # in float32 or better, as the targets are
        total = error.masked_fill(targets.isnan(), 0.0).square().sum()
        return {"nll": total, "squared": total.detach(), **sums}


@dataclass(frozen=True)
class BinaryAnswers(Objective):
    """Predict several independent yes-or-no answers: the labels of a text, or at each place the keys of a piano.

    The loss of a text or place is the sum of the binary cross-entropies of its answers, in nats.
    """

    heads: ClassVar[tuple[str, ...]] = ("keys", "labels")

    def sums(self, model: Any, batch: Batch) -> Sums:
        targets = batch["targets"]  # (B, labels) or (B, T, keys) of 0 and 1, NaN: counts for nothing
        padding = targets.isnan()
        logits = model(batch)
        precise = torch.promote_types(logits.dtype, targets.dtype)
        logits, targets = (each.to(precise).masked_fill(padding, 0.0) for each in (logits, targets))
        nll = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return {"nll": torch.sum(nll.masked_fill(padding, 0.0))}
