"""Classification: one class per text, or one for each place of it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.objectives.loss import cross_entropy
from regard.objectives.objective import Objective, Sums
from regard.objectives.sequence import check_smoothing
from regard.recording import watch


@dataclass(frozen=True)
class Classification(Objective):
    """Predict the class of a text, or of each place of it.

    If the model has several hops, a penalty makes them attend to different tokens.
    """

    penalty: float = 0.01  # weight of ‖A Aᵀ − I‖², for the attention A (hops, T) of the hops (Lin et al. 2017, eq. 8)
    smoothing: float = 0.0  # label smoothing: the weight that is spread over all classes
    heads: ClassVar[tuple[str, ...]] = ("class", "tag")
    measures: ClassVar[tuple[str, ...]] = ("right",)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not 0 <= self.penalty < float("inf"):
            raise UserError(f"objective.penalty={self.penalty}: give 0 (none) or more, such as 0.01.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "overlap": self.penalty}

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        targets = batch["targets"]
        if model.config.attention_rows:  # hops: the queries of the one attention of the model
            with watch(model) as watched:
                logits = model(batch)  # (B, labels), or (B, T, labels)
            *_, weights = (watched.weights[name] for name in watched.weights)  # (B, hops, T)
            shared = weights @ weights.mT  # (B, hops, hops)
            overlap = (shared - torch.eye(shared.shape[-1], device=shared.device)).square().sum(dim=(1, 2))
        else:
            logits, overlap = model(batch), torch.zeros(targets.shape, device=targets.device)
        sums = {
            "nll": cross_entropy(logits.flatten(0, -2), targets.flatten(), self.smoothing),
            "overlap": overlap.masked_fill(targets == IGNORED, 0.0).sum(),
            "right": (logits.argmax(dim=-1) == targets).sum(),
        }
        return sums, None


@dataclass(frozen=True)
class Recall(Objective):
    """Predict the class of each place, of which most are blank, as in copy memory. The blank class is the first one.

    The loss counts all places. The accuracy of the other places is measured too.
    """

    heads: ClassVar[tuple[str, ...]] = ("tag",)
    measures: ClassVar[tuple[str, ...]] = ("right", "recalled", "recallable")

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        targets = batch["targets"]  # (B, T)
        logits, recallable = model(batch), targets > 0
        right = logits.argmax(dim=-1) == targets
        sums = {
            "nll": cross_entropy(logits.flatten(0, -2), targets.flatten()),
            "right": right.sum(),
            "recalled": (right & recallable).sum(),
            "recallable": recallable.sum(),
        }
        return sums, None
