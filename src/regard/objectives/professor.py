"""Professor forcing (Lamb et al. 2016): a discriminator compares teacher-forced and free-running features of a decoder.

The discriminator learns to classify the features; the model learns to predict the targets *and* to have free-running
features that the discriminator takes for teacher-forced ones. The loss of each does not change the other's weights.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.data.fields import Field, TargetText
from regard.decode import Sampler
from regard.errors import UserError
from regard.layers.recurrent import last_first
from regard.objectives.loss import token_loss
from regard.objectives.objective import CausalModel, Objective, Sums, begin, check_weight
from regard.objectives.sequence import check_smoothing, forced

# Lamb et al. 2016: above the first accuracy the discriminator is not trained; below the second the model ignores it.
MAX_ACCURACY, MIN_ACCURACY = 0.99, 0.75


@dataclass(frozen=True)
class ProfessorForcing(Objective):
    """Teacher forcing with an adversarial term that makes free-running features like teacher-forced ones."""

    weight: float = 0.1  # the weight of the adversarial term
    width: int = 128  # the width of the discriminator
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    heads: ClassVar[tuple[str, ...]] = ("target", "next")

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        check_weight("weight", self.weight, 0.1)
        if self.width < 1:
            raise UserError(f"objective.width={self.width}: give at least 1.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "fool": self.weight, "discriminate": 1.0}

    def modules(self, model: CausalModel, fields: Mapping[str, Field]) -> nn.Module:
        texts = [field for field in fields.values() if isinstance(field, TargetText)]
        eos = texts[0].tokenizer.special_tokens.eos if texts else None
        return Discriminator(model.config.width, self.width, -1 if eos is None else eos)

    def count(self, batch: Batch) -> dict[str, int]:
        rows = sum(row >= 0 for row in batch.rows)
        return {"nll": batch.counts["targets"], "fool": rows, "discriminate": 2 * rows}

    def __call__(
        self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        assert isinstance(own, Discriminator)
        teacher_forced, _ = forced(model, batch)  # (B, T, W)
        free, free_real = _free_running(model, batch, own.eos)
        real = batch.real["tokens"]
        row_real = real.any(dim=1)  # (B,) False for filler rows

        forced_logits, free_logits = own(teacher_forced.detach(), real), own(free.detach(), free_real)
        correct = torch.stack([forced_logits > 0, free_logits < 0]) & row_real  # (2, B)
        accuracy = correct.sum() / (2 * row_real.sum())
        discriminate = _bce(forced_logits, row_real, label=1.0) + _bce(free_logits, row_real, label=0.0)
        with frozen(own):
            fool = _bce(own(free, free_real), row_real, label=1.0)
        sums = {
            "nll": token_loss(model, teacher_forced, batch["targets"], self.smoothing),
            "fool": torch.where(accuracy > MIN_ACCURACY, fool, 0.0 * fool),
            "discriminate": torch.where(accuracy < MAX_ACCURACY, discriminate, 0.0 * discriminate),
        }
        return sums, None


class Discriminator(nn.Module):
    """Classifies features as teacher-forced or free-running: a GRU in each direction, and an MLP on their mean."""

    def __init__(self, features: int, width: int, eos: int = -1) -> None:
        super().__init__()
        self.eos = eos  # the id that ends a text; -1: none does
        self.shrink = nn.Linear(features, width)
        self.forth = nn.GRU(width, width, batch_first=True)
        self.back = nn.GRU(width, width, batch_first=True)
        self.verdict = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        """The logit of "teacher-forced" for each row, (B,), given features (B, T, W)."""
        shrunk = self.shrink(features).tanh()  # (B, T, D)
        forth, _ = self.forth(shrunk)
        back, _ = self.back(shrunk.take_along_dim(last_first(real)[..., None], dim=1))  # from the end of each row
        both = torch.cat([forth, back], dim=-1) * real[:, :, None]  # (B, T, 2D); the mean does not depend on the order
        mean = both.sum(dim=1) / real.sum(dim=1, keepdim=True).clamp_min(1)
        return self.verdict(mean)[:, 0]


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Inside the block, gradients pass through the module but are not computed for its weights."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    try:
        for weight in weights:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _free_running(model: CausalModel, batch: Batch, eos: int) -> tuple[Tensor, Tensor]:
    """Features (B, T, W) of a model that reads tokens sampled from itself, and which come before eos (B, T)."""
    tokens, state = batch["tokens"][:, :1], begin(model, batch)
    unfinished = batch.real["tokens"].any(dim=1, keepdim=True)  # (B, 1)
    sample, features, real = Sampler(), [], []
    for _ in range(batch["tokens"].shape[1]):
        feature, state = model.advance(tokens, state)
        features.append(feature)
        real.append(unfinished)
        with torch.no_grad():
            tokens = sample(model.readout(feature)[:, 0])[:, None]
        unfinished = unfinished & (tokens != eos)
    return torch.cat(features, dim=1), torch.cat(real, dim=1)


def _bce(logits: Tensor, real: Tensor, label: float) -> Tensor:
    """The sum of the binary cross-entropy of logits (B,) over the rows that are real."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label), real.to(logits), reduction="sum")
