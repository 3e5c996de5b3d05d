"""Professor forcing: a judge compares how a model behaves when told the truth and when left alone (Lamb et al. 2016).

The judge learns to tell the two apart by the decoder's features; the model learns to say the targets *and* to behave,
left alone, so that the judge takes it for a model that was told. Neither's loss moves the other's weights.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.data.fields import Field, TargetText
from regard.decode import Sampler
from regard.errors import UserError
from regard.objectives.loss import token_loss
from regard.objectives.objective import CausalModel, Sums, begin, no_corruption
from regard.objectives.sequence import check_smoothing, forced

# Lamb et al. 2016: a judge this good learns no more, and one this bad has nothing to teach.
SATED, CLUELESS = 0.99, 0.75


@dataclass(frozen=True)
class ProfessorForcing:
    """Teacher forcing, and beside it: behave alike whether told the truth or not."""

    weight: float = 0.1  # what fooling the judge counts beside the likelihood of the targets
    width: int = 128  # of the judge
    smoothing: float = 0.0  # the weight that targets give up to the whole vocabulary
    capturable: ClassVar[bool] = True
    heads: ClassVar[tuple[str, ...]] = ("target", "next")
    corruption = staticmethod(no_corruption)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not 0 <= self.weight < float("inf"):
            raise UserError(f"objective.weight={self.weight}: give 0 or more, such as 0.1.")
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

    def __call__(self, model: CausalModel, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        assert isinstance(own, Discriminator)
        told = forced(model, batch)  # (B, T, W)
        alone, alone_real = _left_alone(model, batch, own.eos)
        real = batch.real["tokens"]
        there = real.any(dim=1)  # (B,) False for filler rows

        told_logits, alone_logits = own(told.detach(), real), own(alone.detach(), alone_real)
        verdicts = torch.stack([told_logits > 0, alone_logits < 0]) & there  # (2, B) which of them are right
        right = verdicts.sum() / (2 * there.sum())
        told_apart = _bce(told_logits, there, truth=1.0) + _bce(alone_logits, there, truth=0.0)
        with frozen(own):
            fool = _bce(own(alone, alone_real), there, truth=1.0)
        return {
            "nll": token_loss(model, told, batch["targets"], self.smoothing),
            "fool": torch.where(right > CLUELESS, fool, 0.0 * fool),
            "discriminate": torch.where(right < SATED, told_apart, 0.0 * told_apart),
        }


class Discriminator(nn.Module):
    """Was this model told the truth? A GRU in each direction over its features, and a small network on their mean."""

    def __init__(self, features: int, width: int, eos: int = -1) -> None:
        super().__init__()
        self.eos = eos  # the id that ends a text; -1: none does
        self.shrink = nn.Linear(features, width)
        self.forth = nn.GRU(width, width, batch_first=True)
        self.back = nn.GRU(width, width, batch_first=True)
        self.verdict = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        """The logit of "told" for each row, (B,), given features (B, T, W)."""
        shrunk = self.shrink(features).tanh()  # (B, T, D)
        forth, _ = self.forth(shrunk)
        back, _ = self.back(_reversed(shrunk, real))
        both = torch.cat([forth, back], dim=-1) * real[:, :, None]  # (B, T, 2D); the mean does not mind the order
        mean = both.sum(dim=1) / real.sum(dim=1, keepdim=True).clamp_min(1)
        logits: Tensor = self.verdict(mean)[:, 0]
        return logits


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Inside, gradients flow through the module's work but not into its weights."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    try:
        for weight in weights:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def _left_alone(model: CausalModel, batch: Batch, eos: int) -> tuple[Tensor, Tensor]:
    """Features (B, T, W) of a model that reads what it says, drawn at random, and where it had not ended yet (B, T)."""
    tokens, state = batch["tokens"][:, :1], begin(model, batch)
    going = batch.real["tokens"].any(dim=1, keepdim=True)  # (B, 1)
    draw, features, real = Sampler(), [], []
    for _ in range(batch["tokens"].shape[1]):
        feature, state = model.advance(tokens, state)
        features.append(feature)
        real.append(going)
        with torch.no_grad():
            tokens = draw(model.readout(feature)[:, 0])[:, None]
        going = going & (tokens != eos)
    return torch.cat(features, dim=1), torch.cat(real, dim=1)


def _reversed(sequence: Tensor, real: Tensor) -> Tensor:
    """Each row's real part back to front, padding still behind it, (B, T, D)."""
    at = torch.arange(real.shape[1], device=real.device)
    lengths = real.sum(dim=1, keepdim=True)
    index = torch.where(at < lengths, lengths - 1 - at, at)  # (B, T)
    return sequence.gather(1, index[:, :, None].expand_as(sequence))


def _bce(logits: Tensor, there: Tensor, truth: float) -> Tensor:
    """The summed cross-entropy of yes-or-no logits (B,) over the rows that are there."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, truth), there.to(logits), reduction="sum")
