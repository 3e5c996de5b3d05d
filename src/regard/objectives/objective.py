"""What an objective is, and what it is tied to while a model trains."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.data.batches import Batch, Corruption
from regard.data.fields import Field
from regard.layers.adaptive import Clustered
from regard.layers.product import Product

Sums = dict[str, Tensor]  # a term of the loss → its sum over a batch, not yet divided by how many there are


class HasReadout(Protocol):
    """What turns features into logits."""

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, V) of features (…, W)."""
        ...


@runtime_checkable
class HasLinearReadout(HasReadout, Protocol):
    """A voice whose last act is one matrix product, ``readout(features) == F.linear(*product(features))``, or one for
    every cluster of its vocabulary."""

    def product(self, features: Tensor) -> Product | Clustered:
        """What the logits of features (…, W) are made of, before they are made."""
        ...


class CausalModel(HasReadout, Protocol):
    """A model that says tokens: teacher forcing and stepping are the same method, `advance`."""

    config: Any  # config.width is that of the features

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> Any:
        """The state before the first token, of as many rows as the source has (or as asked for)."""
        ...

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens (B, T); the features of what comes next, (B, T, W), and the state after the last."""
        ...


class Objective(Protocol):
    """A frozen, callable dataclass that says what is minimised: Σ weight · sum / count over its terms.

    The counts come from the batch alone, so that they can be summed over everything that makes up a step *before* the
    first forward pass: however a batch is cut into pieces, its average is the same.
    """

    @property
    def weights(self) -> Mapping[str, float]:
        """The terms, in order, and what each weighs in the loss."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether the same kernels run at every step, so that they can be captured as a CUDA graph."""
        ...

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads (`Task.head`) that the objective can train."""
        ...

    def modules(self, model: Any, fields: Mapping[str, Field]) -> nn.Module | None:
        """Modules that the objective trains beside this model, if any."""
        ...

    def corruption(self, fields: Mapping[str, Field]) -> Corruption | None:
        """What is done to the rows of a batch before the model reads them, if anything."""
        ...

    def count(self, batch: Batch) -> dict[str, int]:
        """How many there are of what each term sums."""
        ...

    def __call__(self, model: Any, batch: Batch, step: int, own: nn.Module | None = None) -> Sums:
        """The sum of each term over the batch, and of anything else that metrics read; `own` is what `modules` made."""
        ...


class LossModule(nn.Module):
    """A model, its objective and what the objective learns: the unit that is trained, never the unit that is saved."""

    def __init__(self, model: nn.Module, objective: Objective, fields: Mapping[str, Field] | None = None) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.own = objective.modules(model, fields or {})

    def forward(self, batch: Batch, step: int) -> Tensor:
        """The sums of the objective's terms, (terms,), in the order of its weights."""
        sums = self.objective(self.model, batch, step, self.own)
        return torch.stack([sums[term] for term in self.objective.weights])


def no_modules(model: Any, fields: Mapping[str, Field]) -> None:
    """`Objective.modules` of an objective that trains the model alone."""


def no_corruption(fields: Mapping[str, Field]) -> None:
    """`Objective.corruption` of an objective that leaves the rows as they are."""


def begin(model: CausalModel, batch: Batch) -> Any:
    """The state from which a model reads a batch's tokens."""
    rows, length = batch["tokens"].shape
    source = batch.fields.get("source")
    real = None if source is None else batch.visible("source")
    return model.start(source, real, rows=rows, capacity=length)
