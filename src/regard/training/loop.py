"""The training loop, as a generator: the caller runs its own code between two steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from regard.data.batches import Batch
from regard.decode.state import DelayedFlag
from regard.device import autocast, choose_precision, seed_noise
from regard.errors import UserError
from regard.file_io import finite_error
from regard.layers.transformer import Block
from regard.objectives.objective import LossModule, Objective, Step
from regard.pretrained.weight_table import format_shape
from regard.recipes import Plan
from regard.stored import tensor_error
from regard.tensor_tree import tensors, with_tensors
from regard.training.capture import Graphs
from regard.training.optim import (
    TRIGGER,
    AveragedSgd,
    build_optimizer,
    by_first_names,
    empty_state,
    optimizer_state,
    place_in_schedule,
    rate_at,
    restore_optimizer,
    set_rate,
    unfreeze,
)
from regard.training.parallel import ALONE, Ranks


class Diverged(UserError):  # noqa: N818
    """The loss or gradient of a step is not finite; the weights are those before that step."""


OWN = "objective/"  # before the names of the weights that the objective trains beside the model
Passed = Callable[[], float]  # the part of plan.minutes that has passed


class Source(Protocol):
    """A source of batches with random access by step, such as `regard.data.batches.Batches`."""

    def batch(self, step: int) -> Batch: ...


class GradientTrainer:
    """Trains a model by the gradients of its objective: a `regard.objectives.objective.Trainer`."""

    def __init__(
        self, loss_module: LossModule, batches: Source, plan: Plan, ranks: Ranks = ALONE, passed: Passed = lambda: 0.0
    ) -> None:
        self.loss_module, self.optimizer = loss_module, build_optimizer(loss_module, plan)
        self._batches, self._plan, self._ranks, self._passed = batches, plan, ranks, passed
        self._carried: dict[int, Any] = {}  # the state of the model after the last batch, by lane

    @property
    def model(self) -> nn.Module:
        return self.loss_module.model

    def steps(self, start: int) -> Iterator[Step]:
        return train(
            self.loss_module, self._batches, self._plan, self.optimizer, start, self._ranks, self._carried, self._passed
        )

    def evaluated(self, loss: float) -> None:
        """Take note of the validation loss of the present step, which may start the averaging of weights."""
        if isinstance(self.optimizer, AveragedSgd):
            self.optimizer.evaluated(loss)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block, the model has the averaged weights of `plan.optimizer=asgd`; without it, nothing changes.

        `state` is the same inside and outside of the block.
        """
        if isinstance(self.optimizer, AveragedSgd):
            self.optimizer.swap()
        try:
            yield
        finally:
            if isinstance(self.optimizer, AveragedSgd):
                self.optimizer.swap()

    def state(self) -> dict[str, Tensor]:
        """The state of the optimiser, the weights that the objective trains beside the model, and the carried states.

        Each rank has the carried states of its own lanes. The first rank gets those of all lanes.
        """
        own = self.loss_module.own
        lanes = [list(tensors(self._carried[lane])) for lane in sorted(self._carried)]
        every = [self._ranks.gather_tensors(lane) for lane in lanes]  # lane r + N·i is the i-th of rank r
        in_turn = [lane for of_ranks in every for lane in of_ranks]
        return {
            **{f"optimizer/{name}": value for name, value in optimizer_state(self.optimizer, self.loss_module).items()},
            **(self.optimizer.trigger_state() if isinstance(self.optimizer, AveragedSgd) else {}),
            **({} if own is None else {f"{OWN}{name}": value for name, value in own.state_dict().items()}),
            **{f"lanes/{lane}/{at}": value for lane, found in enumerate(in_turn) for at, value in enumerate(found)},
        }

    def restore(self, state: Mapping[str, Tensor], step: int) -> None:
        optimizer, objective, lanes = (
            {name.removeprefix(part): value for name, value in state.items() if name.startswith(part)}
            for part in ("optimizer/", OWN, "lanes/")
        )
        own, optimizer = self.loss_module.own, by_first_names(optimizer, self.loss_module)
        if isinstance(self.optimizer, AveragedSgd):
            self.optimizer.restore_trigger(state)
        empty = empty_state(self.optimizer, self.loss_module, self._plan, step, optimizer)
        expected = {f"optimizer/{name}": value for name, value in empty.items()}
        expected |= {} if own is None else {f"{OWN}{name}": value for name, value in own.state_dict().items()}
        apart = ("optimizer/", "lanes/", f"{TRIGGER}/")
        found = {name: value for name, value in state.items() if not name.startswith(apart)}
        found |= {f"optimizer/{name}": value for name, value in optimizer.items()}
        if wrong := tensor_error(found, expected):
            raise UserError(wrong)
        for name, value in optimizer.items():
            if name.endswith("/step") and not 1 <= float(value) <= step:
                raise UserError(f"optimizer/{name} is {float(value):g}, but the run has {step} steps")
        if own is not None:
            own.load_state_dict(objective)
        restore_optimizer(self.optimizer, self.loss_module, optimizer)
        if step and self._batches.batch(0).segment is not None:
            self._restore_lanes(lanes)

    def _restore_lanes(self, found: Mapping[str, Tensor]) -> None:
        if wrong := finite_error({f"lanes/{name}": value for name, value in found.items()}):
            raise UserError(wrong)
        model: Any = self.model
        empty, device = model.start_segments(1), next(model.parameters()).device
        for lane in self._ranks.lanes(self._plan.accumulate):
            values = []
            for at, like in enumerate(tensors(empty)):
                value = found.get(f"{lane}/{at}")
                if value is None or value.dim() != like.dim() or value.shape[-1] != like.shape[-1]:
                    have = format_shape(None if value is None else value.shape)
                    raise UserError(f"lanes/{lane}/{at} is {have}, but the model carries {format_shape(like.shape)}")
                if value.is_floating_point() != like.is_floating_point():
                    types = f"{value.dtype}, but the model carries {like.dtype}".replace("torch.", "")
                    raise UserError(f"lanes/{lane}/{at} has numbers of type {types}")
                values.append(value.to(device))
            self._carried[lane] = with_tensors(empty, iter(values))


def train(
    loss_module: LossModule,
    batches: Source,
    plan: Plan,
    optimizer: Optimizer | None = None,
    start: int = 0,
    ranks: Ranks = ALONE,
    carried: MutableMapping[int, Any] | None = None,
    passed: Passed = lambda: 0.0,
) -> Iterator[Step]:
    """Train from step `start` to `plan.steps`, on the device that the weights are on.

    The batches and the dropout of a step depend only on the plan's seed and the step: a run that is resumed from saved
    weights and optimiser state gives the same result as an uninterrupted one. An update whose gradient is not finite is
    skipped. Several `ranks` start from the same weights, read different batches and end with the same weights.
    `carried` has the state of the model after the last batch of each lane of contiguous text; each step changes it.
    `passed` returns the part of `plan.minutes` that has passed, the same on all ranks.
    """
    carried = {} if carried is None else carried
    for block in blocks_of(loss_module.model):
        block.recomputes = plan.checkpoint
    if plan.compile:
        compile_blocks(loss_module.model)
    like, width = next(loss_module.parameters()), schedule_width(loss_module.model, plan)
    optimizer = optimizer or build_optimizer(loss_module, plan)
    captured = _can_capture(loss_module, plan)
    unfreeze(optimizer, start)
    forward_backward = _batch_step(loss_module, plan, captured)
    weights = like.new_tensor(list(loss_module.objective.weights.values()))  # (terms,)
    flag, step = DelayedFlag(like.device), None
    loss_module.train()
    for n in range(start, plan.steps):
        began = time.perf_counter()
        if plan.unfreeze and unfreeze(optimizer, n):  # a CUDA graph serves only the weights that were trained before
            forward_backward = _batch_step(loss_module, plan, captured)
        numbers = ranks.numbers(n, plan.accumulate)
        micro = [batches.batch(number) for number in numbers]
        *counts, tokens = ranks.sum(_counts(loss_module.objective, micro))
        share = 1 / like.new_tensor(counts).clamp(min=1)  # (terms,) the weight of each summand
        parts, after = [], dict[int, Any]()
        for lane, number, batch in zip(ranks.lanes(plan.accumulate), numbers, micro):
            before = carried.get(lane) if batch.segment else None
            found, after[lane] = forward_backward(batch, n, number, weights * share, before)
            parts.append(found)
        sums = torch.stack(parts).sum(0)
        if ranks.several:
            ranks.all_reduce([sums, *_gradients(loss_module)])
        previous = step
        rate = rate_at(plan, place_in_schedule(plan, n, passed()), width) * micro[0].scale  # that of all its batches
        length = _clip(loss_module, plan.clip)
        step = Step(
            n=n + 1,
            tokens=int(tokens),
            means=sums * share,
            total=(weights * sums * share).sum(),
            names=tuple(loss_module.objective.weights),
            rate=rate,
            length=length,
        )
        bad = ~(step.total + length).isfinite()
        if flag(bad):  # on a GPU the flag is that of the step before, whose update was skipped on the device
            raise _diverged(previous if flag.behind and previous else step, plan)
        set_rate(optimizer, rate)
        setattr(optimizer, "found_inf", bad.float())  # noqa: B010  torch: a fused optimiser skips the step if it is 1
        optimizer.step()
        optimizer.zero_grad(set_to_none=not captured)
        carried.update({lane: state for lane, state in after.items() if state is not None})
        yield replace(step, seconds=time.perf_counter() - began)
    if step is not None:
        require_finite(step, plan)


def require_finite(step: Step, plan: Plan, most: float = math.inf) -> None:
    """Wait for the device, and raise `Diverged` if the loss or gradient is not finite, or the loss is above `most`.

    A step without a learning rate cannot diverge: the loss of a model that counts is infinite if it excludes a token.
    """
    if step.rate is not None and (step.loss > most or not math.isfinite(step.loss + (step.norm or 0.0))):
        raise _diverged(step, plan)


def _diverged(step: Step, plan: Plan) -> Diverged:
    if step.norm is None:  # a trainer that changes the weights without a gradient of the whole model: word vectors
        return Diverged(
            f"step {step.n}: training diverged: the loss is {step.loss:.4g}; lower plan.rate ({plan.rate:g})."
        )
    found = f"the loss is {step.loss:.4g}, the norm of the gradient {step.norm:.4g}"
    cure = f"lower plan.rate ({plan.rate:g}) or plan.clip ({plan.clip:g}), or raise plan.warmup ({plan.warmup})"
    return Diverged(f"step {step.n}: training diverged: {found}; the weights before it are intact; {cure}.")


def _counts(objective: Objective, micro: list[Batch]) -> list[int]:
    """The count of each term in this rank's batches of a step, then the number of tokens."""
    counts = [objective.count(batch) for batch in micro]
    terms = [sum(count[term] for count in counts) for term in objective.weights]
    return [*terms, sum(batch.counts.get("tokens", batch.counts["targets"]) for batch in micro)]


def _gradients(loss_module: LossModule) -> list[Tensor]:
    """The gradient of every weight; zero where this rank has none, since another rank may have one."""
    weights = [weight for weight in loss_module.parameters() if weight.requires_grad]
    for weight in weights:
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
    return [weight.grad for weight in weights if weight.grad is not None]


def schedule_width(model: Any, plan: Plan) -> int:
    """The width of the model, which only the noam schedule needs."""
    if plan.schedule != "noam":
        return 1
    try:
        return int(model.config.width)
    except AttributeError as error:
        raise UserError(
            "plan.schedule=noam: the model has no config.width, as noam needs; use inverse-sqrt."
        ) from error


def _can_capture(loss_module: LossModule, plan: Plan) -> bool:
    """Whether the steps are captured as CUDA graphs. A block that is computed again restores random numbers, which a
    graph cannot."""
    return (
        plan.capture
        and not plan.checkpoint
        and next(loss_module.parameters()).is_cuda
        and loss_module.objective.capturable
    )


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a Transformer; none of any other model."""
    return [module for module in model.modules() if isinstance(module, Block)]


def compile_blocks(model: nn.Module) -> int:
    """Mark every block of a model for compilation at its first call, in place; return the number of blocks.

    All blocks share one program, which is compiled once and not per layer. The rest of the model, with its search and
    caches, is not compiled. `Module.compile` keeps the names of the weights, which `torch.compile` would change.
    """
    blocks = blocks_of(model)
    for block in blocks:
        block.compile()
    return len(blocks)


def _batch_step(
    loss_module: LossModule, plan: Plan, captured: bool
) -> Callable[[Batch, int, int, Tensor, Any], tuple[Tensor, Any]]:
    """The function (batch, step, batch number, factor of each term, carried state) → sums of the terms and the state
    after the batch, with the backward pass."""
    device = next(loss_module.parameters()).device
    precision = choose_precision(plan.precision, device)

    def run(batch: Batch, step: int, factors: Tensor, state: Any) -> tuple[Tensor, Any]:
        with autocast(precision, device):
            sums, state = loss_module(batch, step, state)
        (sums * factors).sum().backward()
        return sums.detach(), state

    graphs = Graphs(run, list(loss_module.parameters())) if captured else None

    def forward_backward(batch: Batch, step: int, number: int, factors: Tensor, state: Any) -> tuple[Tensor, Any]:
        batch = batch.to(device)
        compute = run if graphs is None else graphs.of(batch, factors, state)  # before seeding: a capture draws numbers
        seed_noise(plan.seed, 0, number)  # by batch: no two ranks read the same batch
        return compute(batch, step, factors, state)

    return forward_backward


def _clip(loss_module: LossModule, max_norm: float) -> Tensor:
    """Clip the norm of the model's gradients, and separately that of the objective's own modules.

    Returns the norm of the model's gradients before clipping; it is not finite if any of the gradients is not.
    """
    modules = [loss_module.model] if loss_module.own is None else [loss_module.model, loss_module.own]
    weights = [parameters for module in modules if (parameters := list(module.parameters()))]
    norms = [clip_grad_norm_(parameters, max_norm or math.inf, foreach=True) for parameters in weights]
    return norms[0] + sum(0 * other for other in norms[1:])
