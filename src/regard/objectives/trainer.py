"""The protocol of a trainer: what changes a model, step by step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Step:
    """One update of a model. Its numbers stay on the device: to read them synchronises."""

    n: int  # the number of updates so far, with this one
    tokens: int  # tokens read, without padding, on all ranks together
    means: Tensor  # (terms,) the mean of each term
    total: Tensor  # 0-d, the loss: Σ weight · mean
    names: tuple[str, ...]  # the names of the terms
    rate: float | None = None  # the learning rate; None: there is none
    length: Tensor | None = None  # 0-d, the norm of the model's gradient before clipping; None: there is no gradient
    seconds: float = 0.0  # the time of the step, measured on the CPU

    @property
    def loss(self) -> float:
        return float(self.total)

    @property
    def terms(self) -> dict[str, float]:
        return dict(zip(self.names, self.means.tolist()))

    @property
    def norm(self) -> float | None:
        return None if self.length is None else float(self.length)


class Trainer(Protocol):
    """Changes a model, step by step. `regard.training.loop.GradientTrainer` does so by gradients."""

    @property
    def model(self) -> nn.Module:
        """The model. Its state is saved as the weights of a step, and is what the verbs load."""
        ...

    def steps(self, start: int) -> Iterator[Step]:
        """Train from step `start` on. Each step depends only on the model, `state`, and its number."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs beside the model, such as the state of an optimiser. All ranks call this."""
        ...

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned; the model has been restored already."""
        ...
