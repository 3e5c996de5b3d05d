"""Answers that are spans of a passage: the places of their first and last tokens."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.data.batches import Batch
from regard.objectives.loss import cross_entropy
from regard.objectives.objective import Objective, Sums


@dataclass(frozen=True)
class SpanAnswers(Objective):
    """Predict the first and the last token of an answer: the mean of two cross-entropies (Devlin et al. 2019, §4.2).

    Each is over the tokens of the passage and the first token of the input, which stands for "no answer" (§4.3).
    """

    heads: ClassVar[tuple[str, ...]] = ("span",)
    measures: ClassVar[tuple[str, ...]] = ("right",)

    def sums(self, model: Any, batch: Batch) -> Sums:
        logits = model(batch).masked_fill(~batch["allowed"][..., None], -math.inf)  # (B, T, 2)
        targets = batch["targets"]  # (B, 2)
        nll = cross_entropy(logits.mT.flatten(0, 1), targets.flatten()) / 2
        return {"nll": nll, "right": (logits.argmax(1) == targets).all(-1).sum()}
