"""The events that a run yields while it trains: plain values that a caller can display, log or ignore."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Started:
    """Preparation is done; the first step comes next, unless a finished run is resumed."""

    path: Path
    step: int  # the step that training starts from; 0 for a new run
    steps: int
    parameters: int
    device: str
    precision: str
    examples: int  # to train on
    dropped: int  # examples too long for the model or the batch
    shapes: int  # the number of different shapes of batches
    epoch: int  # batches per epoch
    stage: str = ""  # of a run with plan.tune_lm: which of its two stages starts
    ranks: int = 1  # processes that train together
    over: str | None = None  # why the resumed run has no step left: see `Finished.reason`
    vectors: float | None = None  # the fraction of the words of the vocabulary that a file of word vectors has
    known: float | None = None  # the fraction of the words of the training texts that the extractor of from=DIR knows
    warnings: tuple[str, ...] = ()  # what is probably a mistake in the data or the plan, with its remedy
    counts: bool = False  # whether the model is trained by counting: its parameters are counted during training


@dataclass(frozen=True)
class Progress:
    """The mean loss and speed of the steps since the last report, and the rate and gradient norm of the last step."""

    step: int
    steps: int
    loss: float
    terms: dict[str, float]
    rate: float | None  # None: a trainer without a learning rate
    norm: float | None  # None: a trainer without gradients
    tokens_per_second: float  # targets without padding, of all ranks together
    seconds: float  # since the run began, the time before a resume included
    unit: str = "tokens"  # what `tokens_per_second` counts: tokens, or words

    @property
    def line(self) -> dict[str, Any]:
        """The event as a line of metrics.jsonl."""
        losses = {"loss": self.loss, **self.terms, "rate": self.rate, "norm": self.norm}
        speed = {"tokens_per_second": round(self.tokens_per_second), "seconds": round(self.seconds, 3)}
        return {"step": self.step, "kind": "train", **losses, **speed}


@dataclass(frozen=True)
class Evaluated:
    """The model was evaluated on the validation examples."""

    step: int
    values: dict[str, float]
    notes: dict[str, str]
    best: bool  # better than at all steps before


@dataclass(frozen=True)
class Saved:
    """A step was written to disk completely."""

    step: int
    path: Path


@dataclass(frozen=True)
class Finished:
    """The run is complete."""

    step: int
    reason: str  # the setting of the plan that ended the run: steps, epochs, minutes or patience
    best_step: int | None
    best: float | None
    seconds: float
    rising: bool = False  # whether the run ended within its warm-up


Event = Started | Progress | Evaluated | Saved | Finished
