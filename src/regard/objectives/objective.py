"""The protocols of an objective and of a trainer, and the module that computes an objective for a model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.data.batches import Batch, Corruption
from regard.data.fields import Field
from regard.errors import UserError
from regard.layers.adaptive import Clustered
from regard.layers.product import Product
from regard.tensor_tree import tensors, with_tensors


@dataclass(frozen=True, eq=False)
class Step:
    """One update of a model. Its numbers stay on the device: to read them synchronises."""

    n: int  # the number of updates so far, with this one
    tokens: int  # tokens read (words, of word vectors), without padding, on all ranks together
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

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        """Continue from what `state` returned after so many steps; the model has been restored already.

        The tensors come from a file. If they do not fit, raise a UserError that names the tensor.
        """
        ...


@runtime_checkable
class AveragesWeights(Protocol):
    """A trainer that can average weights: the mean is evaluated and saved, and training continues the other weights."""

    def evaluated(self, loss: float) -> None:
        """Take note of the validation loss of the present step."""
        ...

    def averaged(self) -> AbstractContextManager[None]:
        """Inside the block, the model has the averaged weights; `state` always has those that training continues."""
        ...


# The settings of a plan about updates of the weights: those of the learning rate, the optimiser and single layers.
SCHEDULE = ("rate", "schedule", "cut", "ratio", "warmup")
OPTIMIZER = ("optimizer", "trigger", "betas", "epsilon", "decay", "clip", "accumulate")
UPDATES = (*SCHEDULE, *OPTIMIZER, "layer_decay", "freeze", "unfreeze")

Rate = Callable[[float], float]  # the learning rate after so many steps
Sums = dict[str, Tensor]  # a term of the loss → its sum over a batch, not yet divided by its count


class HasReadout(Protocol):
    """A model that turns features into logits."""

    def readout(self, features: Tensor) -> Tensor:
        """The logits (…, V) of features (…, W)."""
        ...


@runtime_checkable
class HasLinearReadout(HasReadout, Protocol):
    """A model whose logits are one matrix product, ``readout(features) == F.linear(*product(features))``, or one per
    cluster of its vocabulary."""

    def product(self, features: Tensor) -> Product | Clustered:
        """The operands of the product that gives the logits of features (…, W)."""
        ...


@runtime_checkable
class HasTargetLogps(HasReadout, Protocol):
    """A model whose log-probability of one target costs much less than those of the whole vocabulary."""

    def target_logps(self, features: Tensor, targets: Tensor) -> Tensor:
        """The log-probabilities of targets (…, n), given features (…, W)."""
        ...


class CausalModel(HasReadout, Protocol):
    """A model that predicts the next token: teacher forcing and decoding use the same method, `advance`."""

    config: Any  # config.width is the width of the features

    def start(
        self,
        source: Tensor | None = None,
        source_real: Tensor | None = None,
        rows: int | None = None,
        capacity: int | None = None,
    ) -> Any:
        """The state before the first token, with as many rows as the source, or with `rows` rows."""
        ...

    def start_segments(self, rows: int) -> Any:
        """The state before the first segment of a text that training reads in segments, if `config.carries`."""
        ...

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens (B, T); return the features of the next tokens, (B, T, W), and the state after the last token."""
        ...


@runtime_checkable
class ReadsBothWays(Protocol):
    """Two causal models, of which one reads a text forward and one backward."""

    def halves(self, batch: Batch) -> list[tuple[Any, Batch]]:
        """Each model with the batch that it reads."""
        ...


@runtime_checkable
class CountsBatches(Protocol):
    """A part of a model that needs statistics of the training data: how often each token occurs, or a mean."""

    def count_batch(self, batch: Batch) -> None:
        """Add a batch. Padding, and targets that are IGNORED or NaN, do not count."""
        ...


@runtime_checkable
class ReadsSpelling(Protocol):
    """A part of a model that needs the spelling of each id of the vocabulary."""

    def set_words(self, words: Sequence[str]) -> None:
        """Spell the ids by these words."""
        ...


class Objective(Protocol):
    """A frozen, callable dataclass that defines the loss: Σ weight · sum / count over its terms.

    Objectives inherit from this class, for the defaults of what few of them change.
    The counts depend only on the batch, so that they can be summed over all batches of a step *before* the first
    forward pass: the mean does not depend on how a step is divided into batches.
    """

    carries: ClassVar[bool] = False  # whether a call starts from the state that the last one returned
    learns_by: ClassVar[str] = "gradients"  # how a model must learn that the objective trains (`Facts.learns_by`)
    measures: ClassVar[tuple[str, ...]] = ()  # sums beside the terms, which some metrics need
    plan_settings: ClassVar[tuple[str, ...]] = UPDATES  # the settings of UPDATES that its trainer reads
    compares_rows: ClassVar[bool] = False  # whether the loss of a row depends on the other rows of its batch
    needs: ClassVar[tuple[str, ...]] = ()  # fields that a task must have beside those that all with such a head have
    makes: ClassVar[tuple[str, ...]] = ()  # fields that its corruption makes of the others
    needs_own: ClassVar[bool] = False  # whether its own module is needed to evaluate a model, too

    @property
    def weights(self) -> Mapping[str, float]:
        """The terms, in order, and the weight of each in the loss."""
        return {"nll": 1.0}

    @property
    def capturable(self) -> bool:
        """Whether the same kernels run at every step, so that they can be captured as a CUDA graph."""
        return True

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads (`Task.head`) that the objective can train."""
        ...

    def modules(self, model: Any, fields: Mapping[str, Field]) -> nn.Module | None:
        """A module that the objective trains beside the model, or None."""
        return None

    def corruption(self, fields: Mapping[str, Field]) -> Corruption | None:
        """What changes the rows of a batch before the model reads them, such as masking; None if nothing does."""
        return None

    def evaluated(self) -> Any:
        """The objective that an evaluation measures in place of the task's own; None: that of the task."""
        return None

    def trainer(self, model: Any, batches: Any, plan: Any, rate: Rate) -> Trainer | None:
        """The objective's own way to train a model, with the settings of `plan`; None: by gradients.

        `rate` is the learning rate that follows from the plan, `plan.minutes` included.
        """
        return None

    def count(self, batch: Batch) -> dict[str, int]:
        """The number of summands of each term."""
        return dict.fromkeys(self.weights, batch.counts["targets"])

    def sums(self, model: Any, batch: Batch) -> Sums:
        """The sum of each term over the batch, of an objective that needs the model and the batch alone."""
        raise UserError(f"{type(self).__name__}: an objective needs sums(model, batch), or a __call__ of its own.")

    def __call__(
        self, model: Any, batch: Batch, step: int, own: nn.Module | None = None, state: Any = None
    ) -> tuple[Sums, Any]:
        """The sum of each term over the batch, and other sums that metrics need; and the carried state after it.

        `own` is the result of `modules`. `state` is what the batch before returned if this batch continues it
        (`Batch.segment`), else None. An objective that carries nothing returns None.
        """
        return self.sums(model, batch), None


class LossModule(nn.Module):
    """A model, its objective and the objective's own module: what training updates. Only the model is loaded later."""

    def __init__(self, model: nn.Module, objective: Objective, fields: Mapping[str, Field] | None = None) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.own = objective.modules(model, fields or {})

    def forward(self, batch: Batch, step: int, state: Any = None) -> tuple[Tensor, Any]:
        """The sums of the objective's terms, (terms,), in the order of its weights, and the carried state."""
        sums, state = self.objective(self.model, batch, step, self.own, state)
        return torch.stack([sums[term] for term in self.objective.weights]), state


def check_weight(name: str, value: float, usual: float) -> None:
    """Refuse a weight of a term that is negative or not finite."""
    if not 0 <= value < float("inf"):
        raise UserError(f"objective.{name}={value}: give 0 (none) or more, such as {usual:g}.")


def carries(model: CausalModel, batch: Batch) -> bool:
    """Whether the state after this batch is carried to the next one."""
    return batch.segment is not None and bool(model.config.carries)


def carried(model: CausalModel, batch: Batch, after: Any) -> Any:
    """The state that the next batch starts from, through which no gradient flows; None if none is carried."""
    return with_tensors(after, (tensor.detach() for tensor in tensors(after))) if carries(model, batch) else None


def both_ways(
    objective: Objective, model: ReadsBothWays, batch: Batch, step: int, state: Any
) -> tuple[Sums, Sums, Any]:
    """The sums of the model that reads forward and of the one that reads backward, and the carried states of both."""
    halves = zip(model.halves(batch), (None, None) if state is None else state)
    (one, ahead), (other, behind) = (objective(half, part, step, None, before) for (half, part), before in halves)
    return one, other, None if ahead is None else (ahead, behind)


def begin(model: CausalModel, batch: Batch) -> Any:
    """The state of a model before the tokens of a batch that continues no other batch."""
    rows, length = batch["tokens"].shape
    if carries(model, batch):
        return model.start_segments(rows)
    source = batch.fields.get("source")
    real = batch.visible("source") if "source" in batch.real else None  # an image has no padding
    return model.start(source, real, rows=rows, capacity=length)
