"""Text classification: one class per text."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.objectives.loss import cross_entropy
from regard.objectives.objective import Sums, no_corruption, no_modules
from regard.objectives.sequence import check_smoothing
from regard.recording import watch


@dataclass(frozen=True)
class Labelling:
    """Predict the class of a text; a penalty keeps the hops from attending to the same tokens."""

    penalty: float = 0.01  # the weight of ‖A Aᵀ − I‖², for attention A (hops, T) of a text (Lin et al. 2017, eq. 8)
    smoothing: float = 0.0  # label smoothing: the weight that is spread over all classes
    capturable: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("class",)
    needs: ClassVar[tuple[str, ...]] = ()
    modules = staticmethod(no_modules)
    corruption = staticmethod(no_corruption)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not 0 <= self.penalty < float("inf"):
            raise UserError(f"objective.penalty={self.penalty}: give 0 (none) or more, such as 0.01.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "overlap": self.penalty}

    def count(self, batch: Batch) -> dict[str, int]:
        return dict.fromkeys(("nll", "overlap"), batch.counts["targets"])

    def __call__(self, model: nn.Module, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        """The loss of a classifier whose one attention, `model.attention`, has a query for each hop."""
        with watch(model, "attention") as watched:
            logits, targets = model(batch), batch["targets"]  # (B, labels), (B,)
        weights = watched.weights["attention"]  # (B, hops, T)
        shared = weights @ weights.mT  # (B, hops, hops)
        overlap = (shared - torch.eye(shared.shape[-1], device=shared.device)).square().sum(dim=(1, 2))
        return {
            "nll": cross_entropy(logits, targets, self.smoothing),
            "overlap": overlap.masked_fill(targets == IGNORED, 0.0).sum(),
            "right": (logits.argmax(dim=-1) == targets).sum(),
        }
