"""Learning to go on: every token of a text from those before it."""

from dataclasses import dataclass

from torch import nn

from regard.data.batches import Batch
from regard.objectives.judged import Speaker, Sums
from regard.objectives.loss import token_loss
from regard.objectives.sequence import check_smoothing, forced


@dataclass(frozen=True)
class NextToken:
    """Predict each token of a line from the ones before it."""

    smoothing: float = 0.0  # the weight that targets give up to the whole vocabulary

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0}

    @property
    def capturable(self) -> bool:
        return True

    def modules(self, model: Speaker) -> nn.Module | None:
        return None

    def count(self, batch: Batch) -> dict[str, int]:
        return {"nll": batch.target_count}

    def __call__(self, model: Speaker, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        return {"nll": token_loss(model, forced(model, batch), batch.targets, batch.real, self.smoothing)}
