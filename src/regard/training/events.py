"""What a run tells while it goes: plain values, to be drawn, logged or ignored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Started:
    """Everything is ready; the first step comes next, unless a finished run is resumed."""

    path: Path
    step: int  # where it goes on from; 0 is the beginning
    steps: int
    parameters: int
    device: str
    precision: str
    examples: int  # to train on
    dropped: int  # examples too long for the model or the batch
    shapes: int  # of batches
    epoch: int  # batches per epoch
    ranks: int = 1  # processes that train together
    over: str | None = None  # why no step is left: steps, minutes or patience


@dataclass(frozen=True)
class Progress:
    """Some steps are done: their mean loss and speed, and the last one's rate and gradient."""

    step: int
    steps: int
    loss: float
    terms: dict[str, float]
    rate: float
    norm: float
    tokens_per_second: float  # real targets, of all ranks together
    seconds: float  # since the run began, earlier sittings included

    @property
    def line(self) -> dict[str, Any]:
        """As metrics.jsonl holds it."""
        told = {"loss": self.loss, **self.terms, "rate": self.rate, "norm": self.norm}
        speed = {"tokens_per_second": round(self.tokens_per_second), "seconds": round(self.seconds, 3)}
        return {"step": self.step, "kind": "train", **told, **speed}


@dataclass(frozen=True)
class Evaluated:
    """The validation examples were judged."""

    step: int
    values: dict[str, float]
    notes: dict[str, str]
    best: bool  # better than all before


@dataclass(frozen=True)
class Saved:
    """A step is whole on the disk."""

    step: int
    path: Path


@dataclass(frozen=True)
class Finished:
    """Nothing more to do."""

    step: int
    reason: str  # steps, minutes or patience
    best_step: int | None
    best: float | None
    seconds: float


Event = Started | Progress | Evaluated | Saved | Finished
