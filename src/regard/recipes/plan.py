"""The plan of a run: its length, batches, optimiser, device and evaluation."""

from dataclasses import dataclass
from typing import Literal

from regard.device import check_seed
from regard.errors import UserError

Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "noam"]


@dataclass(frozen=True)
class Plan:
    """The settings of training that belong neither to the model, the data nor the objective."""

    steps: int = 1000  # updates of the weights
    minutes: float | None = None  # stop after this long, evaluations included; the schedule still runs over steps
    batch_tokens: int = 4096  # tokens of a batch, padding included, on its longer side
    accumulate: int = 1  # batches per step, on each rank
    rate: float = 1e-3  # the highest learning rate; for noam a factor, such as 1
    schedule: Schedule = "cosine"  # how the rate decays after the warm-up; noam: 1/√step, divided by √width
    warmup: int = 100  # steps in which the rate rises to its maximum
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"  # sgd has momentum 0.9
    betas: tuple[float, float] = (0.9, 0.999)  # of adam: the decay of its means of gradients and of squared gradients
    epsilon: float = 1e-8  # of adam: added to the root of the mean squared gradient
    decay: float = 0.01  # weight decay of matrices and embeddings; adam has none
    layer_decay: float = 1.0  # each layer's rate is that of the layer above times this (Howard & Ruder 2018, §3.2)
    freeze: int | tuple[str, ...] = 0  # layers whose weights do not change: how many from the input on, or their names
    unfreeze: int = 0  # steps after which the next layer from the top starts to train; 0: all from the first step on
    clip: float = 1.0  # the largest norm of the gradient; 0: no clipping
    seed: int = 1  # of the initial weights, the order of the examples and the dropout
    device: str = "auto"  # auto, cpu, cuda or cuda:N
    precision: Literal["auto", "float32", "bf16"] = "auto"  # of matrix products; auto: bf16 on a GPU
    capture: bool = True  # capture each shape of batch as a CUDA graph; ignored on a CPU
    compile: bool = False  # compile the blocks of a Transformer; ignored for other models
    threads: int = 0  # CPU threads; 0: torch's default
    log: int = 10  # steps between two reports
    evaluate: int = 200  # steps between two evaluations; each evaluation saves the step
    samples: int = 500  # validation examples that are decoded at an evaluation; the loss uses all of them
    patience: int = 0  # stop after this many evaluations without improvement; 0: never
    keep: int = 2  # newest steps that are kept on disk, beside the best one
    select: str = "loss"  # the metric that selects the best step

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log", "evaluate", "keep"):
            self._at_least(name, 1)
        for name in ("warmup", "decay", "clip", "threads", "samples", "patience", "unfreeze"):
            self._at_least(name, 0)
        self._at_least("batch_tokens", 2)
        check_seed(self.seed, "plan.seed")
        if not 0 < self.rate < float("inf"):
            raise UserError(f"plan.rate={self.rate}: give a number above 0, such as 1e-3.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"plan.betas={','.join(map(str, self.betas))}: give two numbers from 0 to below 1.")
        if not self.epsilon > 0:
            raise UserError(f"plan.epsilon={self.epsilon}: give a number above 0, such as 1e-8.")
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"plan.layer_decay={self.layer_decay}: give a number above 0, at most 1 (none).")
        if isinstance(self.freeze, int):
            self._at_least("freeze", 0)
        if self.minutes is not None and not self.minutes > 0:
            raise UserError(f"plan.minutes={self.minutes}: give a number above 0, or none.")

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise UserError(f"plan.{name}={getattr(self, name)}: give {least} or more.")
