"""The training loop, as a generator: what happens between steps is ordinary code of whoever iterates."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from regard.data.batches import Batch
from regard.decode.state import DelayedFlag
from regard.device import autocast, choose_precision, seed_noise
from regard.errors import UserError
from regard.objectives.objective import LossModule, Objective
from regard.recipes.plan import Plan
from regard.training.capture import Graphs
from regard.training.compiled import compile_blocks
from regard.training.optim import build_optimizer, set_rate
from regard.training.parallel import ALONE, Ranks
from regard.training.schedule import rate_at


class Diverged(UserError):  # noqa: N818  it says what happened
    """Training has come to a loss or gradient that is no number; the weights are those before it."""


class Source(Protocol):
    """Where batches come from: any step's, at any time (`regard.data.batches.Batches`)."""

    def batch(self, step: int) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Step:
    """One update of the weights. Reading its numbers waits for the device; not reading them does not."""

    n: int  # updates so far, this one included
    rate: float
    tokens: int  # that were read, padding apart, on all ranks together
    means: Tensor  # (terms,) the mean of each term
    total: Tensor  # 0-d, the loss: Σ weight · mean
    length: Tensor  # 0-d, of the model's gradient before it was clipped
    names: tuple[str, ...]  # of the terms
    seconds: float = 0.0  # what the step itself took, as the CPU saw it

    @property
    def loss(self) -> float:
        return float(self.total)

    @property
    def terms(self) -> dict[str, float]:
        return dict(zip(self.names, self.means.tolist()))

    @property
    def norm(self) -> float:
        return float(self.length)


def train(
    loss_module: LossModule,
    batches: Source,
    plan: Plan,
    optimizer: Optimizer | None = None,
    start: int = 0,
    ranks: Ranks = ALONE,
) -> Iterator[Step]:
    """Train from step `start` to `plan.steps`, on the device that the weights are on.

    Batches and noise of a step depend on the plan's seed and the step alone: a run that goes on from saved weights and
    optimiser is the run that was never interrupted. An update whose gradient is not finite is never made. Of several
    `ranks`, which start from the same weights, each reads its share of the batches, and all come to the same weights.
    """
    if plan.compile:
        compile_blocks(loss_module.model)
    like, width = next(loss_module.parameters()), _width(loss_module, plan)
    optimizer = optimizer or build_optimizer(loss_module, plan)
    captured = plan.capture and like.is_cuda and loss_module.objective.capturable
    work = _work(loss_module, plan, captured)
    weights = like.new_tensor(list(loss_module.objective.weights.values()))  # (terms,)
    late, step = DelayedFlag(like.device), None
    loss_module.train()
    for n in range(start, plan.steps):
        began = time.perf_counter()
        numbers = ranks.numbers(n, plan.accumulate)
        micro = [batches.batch(number) for number in numbers]
        *counts, tokens = ranks.sum(_counts(loss_module.objective, micro))
        share = 1 / like.new_tensor(counts).clamp(min=1)  # (terms,) what each summand counts
        sums = torch.stack([work(batch, n, number, weights * share) for batch, number in zip(micro, numbers)]).sum(0)
        if ranks.several:
            ranks.add([sums, *_gradients(loss_module)])
        before = step
        step = Step(
            n=n + 1,
            rate=rate_at(plan, n, width),
            tokens=int(tokens),
            means=sums * share,
            total=(weights * sums * share).sum(),
            length=_clip(loss_module, plan.clip),
            names=tuple(loss_module.objective.weights),
        )
        bad = ~(step.total + step.length).isfinite()
        if late(bad):  # a GPU's answer is that of the step before, whose update was called off on the device
            raise _diverged(before if late.behind and before else step, plan)
        set_rate(optimizer, step.rate)
        setattr(optimizer, "found_inf", bad.float())  # noqa: B010  how torch names what calls a fused step off
        optimizer.step()
        optimizer.zero_grad(set_to_none=not captured)
        yield replace(step, seconds=time.perf_counter() - began)
    if step is not None:
        require_finite(step, plan)


def require_finite(step: Step, plan: Plan) -> None:
    """Wait for a step and raise `Diverged` if its loss or gradient was not finite."""
    if not math.isfinite(step.loss + step.norm):
        raise _diverged(step, plan)


def _diverged(step: Step, plan: Plan) -> Diverged:
    found = f"the loss is {step.loss:.4g}, the gradient's length {step.norm:.4g}"
    cure = f"lower plan.rate ({plan.rate:g}) or plan.clip ({plan.clip:g}), or raise plan.warmup ({plan.warmup})"
    return Diverged(f"step {step.n}: training diverged: {found}; the weights before it are intact; {cure}.")


def _counts(objective: Objective, micro: list[Batch]) -> list[int]:
    """How many there are of each term in this rank's part of a step; then, how many targets."""
    counts = [objective.count(batch) for batch in micro]
    terms = [sum(count[term] for count in counts) for term in objective.weights]
    return [*terms, sum(batch.counts.get("tokens", batch.counts["targets"]) for batch in micro)]


def _gradients(loss_module: LossModule) -> list[Tensor]:
    """The gradient of every weight, zero where no batch of this rank has made any: another rank's may have."""
    weights = [weight for weight in loss_module.parameters() if weight.requires_grad]
    for weight in weights:
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
    return [weight.grad for weight in weights if weight.grad is not None]


def _width(loss_module: LossModule, plan: Plan) -> int:
    """The width of the model, for the one schedule that depends on it."""
    if plan.schedule != "noam":
        return 1
    try:
        model: Any = loss_module.model
        return int(model.config.width)
    except AttributeError as error:
        raise UserError("plan.schedule=noam: the model has no config.width to go by; use inverse-sqrt.") from error


def _work(loss_module: LossModule, plan: Plan, captured: bool) -> Callable[[Batch, int, int, Tensor], Tensor]:
    """Forward and backward of one batch, given its step, its number and the factor of each term: the terms' sums."""
    device = next(loss_module.parameters()).device
    precision = choose_precision(plan.precision, device)

    def run(batch: Batch, step: int, factors: Tensor) -> Tensor:
        with autocast(precision, device):
            sums: Tensor = loss_module(batch, step)
        (sums * factors).sum().backward()
        return sums.detach()

    graphs = Graphs(run, list(loss_module.parameters())) if captured else None

    def work(batch: Batch, step: int, number: int, factors: Tensor) -> Tensor:
        batch = batch.to(device)
        chosen = run if graphs is None else graphs.of(batch, factors)  # capturing one disturbs the noise: before it
        seed_noise(plan.seed, 0, number)  # the batch's number is enough: no two ranks read the same batch
        return chosen(batch, step, factors)

    return work


def _clip(loss_module: LossModule, longest: float) -> Tensor:
    """Shorten the gradients of the model, and apart from them those of the objective's own modules.

    Returns the length that the model's had. It is not finite where any of them is not.
    """
    modules = [loss_module.model] if loss_module.own is None else [loss_module.model, loss_module.own]
    lengths = [clip_grad_norm_(module.parameters(), longest or math.inf, foreach=True) for module in modules]
    return lengths[0] + sum(0 * other for other in lengths[1:])
