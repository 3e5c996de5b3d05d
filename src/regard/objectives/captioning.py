"""The two objectives of Show, Attend and Tell (Xu et al. 2015): doubly stochastic soft attention, and hard attention.

Both are proportional to the paper's loss of a caption: all their terms are divided by the number of targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.data.fields import Field
from regard.errors import UserError
from regard.models.parts import path_of, source_reads
from regard.objectives.loss import token_loss
from regard.objectives.objective import Objective, Sums, check_weight
from regard.objectives.sequence import check_smoothing, forced
from regard.readers import Hard, Mixed, reading
from regard.recording import attentions, watch
from regard.scores import at_least_float32


@dataclass(frozen=True)
class Captioning(Objective):
    """Teacher forcing whose attention reads every cell of an image about once: −log p(y) + λ Σᵢ (1 − Σₜ αₜᵢ)².

    With λ = 0 it is teacher forcing, also of a model without attention.
    """

    doubly: float = 1.0  # λ: the weight of the doubly stochastic term (Xu et al. 2015, §4.2.1)
    smoothing: float = 0.0  # label smoothing: the weight that is spread over the vocabulary
    heads: ClassVar[tuple[str, ...]] = ("target",)

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        check_weight("doubly", self.doubly, 1)

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "doubly": self.doubly}

    def modules(self, model: nn.Module, fields: Mapping[str, Field]) -> None:
        """Adds no modules. Refuses hard attention, and a model without attention if the term needs attention."""
        paths = [path_of(name) for name in source_reads(model)]
        if not paths and self.doubly:
            cure = "set model.decoder=attend, or objective.doubly=0"
            raise UserError(f"objective.doubly={self.doubly}: the model has no attention to a source; {cure}.")
        if any(isinstance(attentions(model)[path].reader, Hard) for path in paths):
            raise UserError(
                "objective=captioning: trains soft attention, and model.attention=hard; set objective=hard."
            )

    def sums(self, model: Any, batch: Batch) -> Sums:
        names = source_reads(model) if self.doubly else []
        with watch(model, [path_of(name) for name in names]) as watched:
            features, _ = forced(model, batch)
        tables = [watched.weights[name] for name in names]  # (B, [H,] T, cells)
        tables = [table.mean(dim=1) if table.dim() == 4 else table for table in tables]
        return {
            "nll": token_loss(model, features, batch["targets"], self.smoothing),
            "doubly": sum(
                (doubly_stochastic(table, batch["targets"] != IGNORED) for table in tables), features.new_zeros(())
            ),
        }


def doubly_stochastic(weights: Tensor, real: Tensor) -> Tensor:
    """Σᵢ (1 − Σₜ αₜᵢ)², summed over the captions of a batch: weights (B, T, cells), steps that are real (B, T)."""
    read = (weights * real[..., None]).sum(dim=1)  # (B, cells)
    return ((1 - read).square().sum(dim=1) * real.any(dim=1)).sum()


@dataclass(frozen=True)
class HardAttention(Objective):
    """Teacher forcing with hard attention, trained by REINFORCE (Xu et al. 2015, §4.1).

    A step t reads one cell sₜ, sampled from the weights α. The gradient of E[log p(y | s)] is estimated by that of
    log p(y | s) + λ Σₜ (Rₜ − b nₜ) log p(sₜ). Rₜ is the log-probability of the nₜ words from step t on: the choice of
    sₜ has no effect on earlier words, which the paper counts too, so this estimate has the same mean and less variance.
    b, the baseline, is the moving average of the log-probability of a word; both are constants in the gradient. The
    entropy of α is added, with a weight. In a half of the captions all steps read the expected value, as soft attention
    does; these have no part in the estimate.
    """

    reinforce: float = 1.0  # λ: the weight of the term for the choice of cells
    entropy: float = 0.01  # the weight of the entropy of the attention weights
    expected: float = 0.5  # the probability that a caption reads the expected value instead of a sampled cell
    decay: float = 0.9  # b ← decay · b + (1 − decay) · the mean log-probability of a word
    heads: ClassVar[tuple[str, ...]] = ("target",)

    def __post_init__(self) -> None:
        check_weight("reinforce", self.reinforce, 1)
        check_weight("entropy", self.entropy, 0.01)
        for name in ("expected", "decay"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"objective.{name}={getattr(self, name)}: give 0 or more, below 1.")

    @property
    def weights(self) -> dict[str, float]:
        return {"nll": 1.0, "reinforce": self.reinforce, "entropy": -self.entropy}

    @property
    def capturable(self) -> bool:
        """False: the runs before a capture would move the baseline."""
        return False

    def modules(self, model: nn.Module, fields: Mapping[str, Field]) -> nn.Module:
        """The baseline. Refuses a model without hard attention."""
        self._path(model)
        return Baseline(self.decay)

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, None]:
        path, targets = self._path(model), batch["targets"]
        real = targets != IGNORED  # (B, T)
        soft = torch.rand(len(targets), device=targets.device) < self.expected  # (B,)
        with reading(model, path, Mixed(soft)), watch(model, path) as watched:
            features, _ = forced(model, batch)
        logits = at_least_float32(model.readout(features))  # (B, T, V)
        logps = -F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")  # (B, T)
        logs = watched.weights[path].clamp_min(torch.finfo(torch.float32).tiny).log()  # (B, T, cells)
        chosen = (watched.read[path] * logs).sum(-1)  # (B, T) log p(sₜ)
        sampled = real & ~soft[:, None]
        baseline = 0.0 if own is None else own(logps.detach(), sampled)
        better = (logps.detach() - baseline) * real  # of each word
        sums = {
            "nll": -logps.sum(),
            "reinforce": -(better.flip(1).cumsum(1).flip(1) * chosen * sampled).sum(),
            "entropy": -((watched.weights[path] * logs).sum(-1) * real).sum(),
        }
        return sums, None

    def _path(self, model: nn.Module) -> str:
        """The path of the hard attention."""
        found = [path for path, attention in attentions(model).items() if isinstance(attention.reader, Hard)]
        if len(found) != 1:
            cure = "set model.attention=hard, or objective=captioning or teacher"
            raise UserError(f"objective=hard: the model has no hard attention; {cure}.")
        return found[0]


class Baseline(nn.Module):
    """The moving average of the log-probability of a word, saved with the run. It starts at the first mean.

    With several ranks each has an average of its own, and that of the first one is saved.
    """

    mean: Tensor
    started: Tensor

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def forward(self, logps: Tensor, counted: Tensor) -> Tensor:
        """The average of earlier words; in training, the `counted` ones of these words then update it."""
        found = (logps * counted).sum() / counted.sum().clamp_min(1)
        before = torch.where(self.started, self.mean, found.to(self.mean.dtype))
        if self.training:
            self.mean.copy_(torch.where(counted.any(), before.lerp(found.to(before.dtype), 1 - self.decay), self.mean))
            self.started.logical_or_(counted.any())
        return before
