"""Counting: a language model that learns from the counts of its text, without gradients."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import UserError
from regard.objectives.objective import Objective, Rate, Step, Sums
from regard.objectives.sequence import TeacherForcing


class CountedModel(Protocol):
    """A model that counts tokens and their targets, such as `regard.models.Bigram`."""

    def add(self, tokens: Tensor, targets: Tensor) -> None:
        """Count tokens with their targets, of one shape; IGNORED targets do not count."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


class Parts(Protocol):
    """Data that can be read once, in parts."""

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        """The batches of one of so many parts. All parts together have every target once."""
        ...


@dataclass(frozen=True)
class Counting(Objective):
    """Count every pair of adjacent tokens of the training text once; step n of N reads the n-th of N parts of it."""

    heads: ClassVar[tuple[str, ...]] = ("next", "both")
    learns_by: ClassVar[str] = "counts"
    plan_settings: ClassVar[tuple[str, ...]] = ()

    def trainer(self, model: CountedModel, batches: Any, plan: Any, rate: Rate) -> "CountingTrainer":
        return CountingTrainer(model, batches, plan.steps)

    def sums(self, model: Any, batch: Batch) -> Sums:
        """The negative log-likelihood of the targets, as of any language model."""
        return TeacherForcing()(model, batch, step=0)[0]


class CountingTrainer:
    """Counts the training text, part by part. Every rank counts all of it, so that nothing has to be communicated.

    The loss of a step is that of its part under the counts of the parts before it. A short text may have fewer batches
    than there are steps: a step without a batch has the loss of the step before.
    """

    def __init__(self, model: CountedModel, batches: Parts, steps: int) -> None:
        self._model, self._batches, self._steps = model, batches, steps
        self._mean = torch.zeros((), dtype=torch.double)  # the loss of the last step

    @property
    def model(self) -> Any:
        return self._model

    @torch.no_grad()
    def steps(self, start: int) -> Iterator[Step]:
        device = next(self.model.parameters()).device
        for n in range(start, self._steps):
            began, total, count = time.perf_counter(), torch.zeros((), dtype=torch.double, device=device), 0
            part = [batch.to(device) for batch in self._batches.part(n, self._steps)]
            for batch in part:
                total += Counting().sums(self.model, batch)["nll"]
                count += batch.counts["targets"]
            if part:  # at once, since every call sorts all pairs
                tokens, targets = ([batch[name].flatten() for batch in part] for name in ("tokens", "targets"))
                self._model.add(torch.cat(tokens), torch.cat(targets))
            self._mean = total / count if count else self._mean.to(device)
            yield Step(n + 1, count, self._mean[None], self._mean, ("nll",), seconds=time.perf_counter() - began)

    def state(self) -> dict[str, Tensor]:
        """The loss of the last step, for steps without a batch. The counts are the model."""
        return {"loss": self._mean}

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        loss = state.get("loss", self._mean)  # earlier versions did not save it
        if loss.shape != () or loss.dtype != torch.double:
            raise UserError(f"loss: {loss.dtype} of shape {tuple(loss.shape)} instead of one float64")
        self._mean = loss
