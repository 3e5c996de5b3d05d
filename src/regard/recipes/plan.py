"""How to train: for how long, how fast, on what, and when to look up."""

from dataclasses import dataclass
from typing import Literal

from regard.device import check_seed
from regard.errors import UserError

Schedule = Literal["constant", "linear", "cosine", "inverse-sqrt", "noam"]


@dataclass(frozen=True)
class Plan:
    """Everything about a training run that is neither model, data nor objective."""

    steps: int = 1000  # updates of the weights
    minutes: float | None = None  # stop after this long, evaluations included; the schedule still runs over steps
    batch_tokens: int = 4096  # padded tokens of a batch, on its longer side
    accumulate: int = 1  # batches that make one step, on each of several ranks
    rate: float = 1e-3  # the learning rate at its highest; with noam a factor, such as 1
    schedule: Schedule = "cosine"  # how the rate falls after the warm-up; noam: 1/√step, and smaller for wide models
    warmup: int = 100  # steps in which the rate rises to its highest
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"  # sgd has momentum 0.9
    betas: tuple[float, float] = (0.9, 0.999)  # of adam: how slowly its means of gradients and of their squares forget
    epsilon: float = 1e-8  # of adam: added to the root of the mean square
    decay: float = 0.01  # of weight matrices: pulled towards zero, in proportion to the rate (adam: not at all)
    clip: float = 1.0  # the longest gradient; 0: any
    seed: int = 1  # of the first weights, the order of the examples and the dropout
    device: str = "auto"  # auto, cpu, cuda or cuda:N
    precision: Literal["auto", "float32", "bf16"] = "auto"  # of matrix products; auto: bf16 on a GPU
    capture: bool = True  # capture each shape of batch as one CUDA graph; means nothing on a CPU
    compile: bool = False  # compile the blocks of a Transformer; other models have none
    threads: int = 0  # of the CPU; 0: as many as torch likes
    log: int = 10  # report every so many steps
    evaluate: int = 200  # judge and save every so many steps
    samples: int = 500  # validation examples that are decoded to judge; the loss is of all of them
    patience: int = 0  # stop after so many evaluations without gain; 0: never
    keep: int = 2  # the newest steps to keep on disk, beside the best one
    select: str = "loss"  # the measure that chooses the best step

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log", "evaluate", "keep"):
            self._at_least(name, 1)
        for name in ("warmup", "decay", "clip", "threads", "samples", "patience"):
            self._at_least(name, 0)
        self._at_least("batch_tokens", 2)
        check_seed(self.seed, "plan.seed")
        if not 0 < self.rate < float("inf"):
            raise UserError(f"plan.rate={self.rate}: give a number above 0, such as 1e-3.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"plan.betas={','.join(map(str, self.betas))}: give two numbers from 0 to below 1.")
        if not self.epsilon > 0:
            raise UserError(f"plan.epsilon={self.epsilon}: give a number above 0, such as 1e-8.")
        if self.minutes is not None and not self.minutes > 0:
            raise UserError(f"plan.minutes={self.minutes}: give a number above 0, or none.")

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise UserError(f"plan.{name}={getattr(self, name)}: give {least} or more.")
