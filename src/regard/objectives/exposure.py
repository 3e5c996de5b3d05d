"""Measures exposure bias: the loss of a model at each position when it reads its own tokens, not the true ones."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch
from regard.objectives.objective import CausalModel
from regard.objectives.sequence import forced, mixed


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
