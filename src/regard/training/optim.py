"""The learning rate of each step, the optimisers, and their state by the name of each weight."""

import math
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from regard.config import format_value
from regard.errors import UserError, nearest
from regard.recipes import Plan

STATE = {  # the tensors that an optimiser has for each weight that it has changed
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "adam": ("step", "exp_avg", "exp_avg_sq"),
    "sgd": ("momentum_buffer",),
    "asgd": (),  # after the trigger, it has TRAINED and MEAN for all weights
}
TRAINED, MEAN = "weight", "mean"  # asgd: the weight that training continues, and the mean of its values
TRIGGER = "trigger"  # before the names of the numbers that asgd has once, not for each weight
UNUSED = "unused"  # an empty tensor in the place of the state of a weight that never had a gradient


def depends_on_steps(plan: Plan) -> bool:
    """Whether the rates depend on `plan.steps`: the schedule ends with the run, or the warm-up is a part of it."""
    return plan.schedule not in ("constant", "inverse-sqrt", "noam") or 0 < plan.warmup < 1


def place_in_schedule(plan: Plan, step: float, passed: float = 0.0) -> float:
    """The place of step 0, 1, … in the schedule, in steps: its number, unless `plan.minutes` ends the run earlier.

    `passed` is the part of `plan.minutes` that has passed. Rates that depend on the length of the run advance by
    the number of steps or by the time, whichever is further, so that the warm-up and the decay end in time.
    """
    return max(step, min(passed, 1.0) * plan.steps) if depends_on_steps(plan) else step


def rate_at(plan: Plan, step: float, width: int) -> float:
    """The learning rate of step 0, 1, …: a linear warm-up to `plan.rate`, then the decay that `plan.schedule` names.

    The triangle rises from rate / ratio in the first `plan.cut` of the steps and falls back to it at the last step.

    `step` is a `place_in_schedule`; `width` is the model's. Only noam uses the width: rate · width^-½ · min(n^-½, n ·
    warmup^-1½) for n = step + 1 (Vaswani et al. 2017, eq. 3). Noam has the form of inverse-sqrt, with another maximum.
    """
    warmup = plan.warmup_steps
    if plan.schedule == "noam":
        n = step + 1
        return plan.rate * width**-0.5 * min(n**-0.5, n * max(warmup, 1) ** -1.5)
    if plan.schedule == "triangular":  # Howard & Ruder 2018, eq. 3
        cut = plan.cut * plan.steps
        height = step / cut if step < cut else max(1 - (step - cut) / (plan.steps - cut), 0.0)  # 0 … 1
        return plan.rate * (1 + height * (plan.ratio - 1)) / plan.ratio
    if step < warmup:
        return plan.rate * (step + 1) / warmup
    done = (step - warmup) / max(plan.steps - warmup, 1)  # 0 … 1 over the steps after the warm-up
    match plan.schedule:
        case "constant":
            return plan.rate
        case "linear":
            return plan.rate * max(1 - done, 0.0)
        case "cosine":
            return plan.rate * (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case "inverse-sqrt":  # Vaswani et al. 2017, section 5.3
            return plan.rate * math.sqrt(max(warmup, 1) / (step + 1))


def build_optimizer(module: nn.Module, plan: Plan) -> Optimizer:
    """The plan's optimiser. Weight decay applies only to weights of two or more dimensions, not to biases and gains.

    All optimisers are fused: for speed on a GPU, and because a fused step can be skipped by a flag on the device
    (`found_inf`), which protects the weights from a gradient that is not finite without a synchronisation. Frozen
    weights are not among its weights and get no gradient. Its groups have two more entries: `factor` of the learning
    rate, and `start`, the first step that trains them.
    """
    groups: list[dict[str, Any]] = []
    for layer in layers_of(module, plan):
        if layer.start is None:
            for weight in layer.weights:
                weight.requires_grad_(False)
            continue
        decay = 0.0 if plan.optimizer == "adam" else plan.decay
        matrices = [weight for weight in layer.weights if weight.dim() >= 2]
        vectors = [weight for weight in layer.weights if weight.dim() < 2]
        for weights, each in ((matrices, decay), (vectors, 0.0)):
            groups.append({"params": weights, "weight_decay": each, "factor": layer.factor, "start": layer.start})
    match plan.optimizer:
        case "adamw":
            return AdamW(groups, lr=plan.rate, betas=plan.betas, eps=plan.epsilon, fused=True)
        case "adam":
            return Adam(groups, lr=plan.rate, betas=plan.betas, eps=plan.epsilon, fused=True)
        case "sgd":
            return SGD(groups, lr=plan.rate, momentum=0.9, fused=True)
        case "asgd":
            return AveragedSgd(groups, plan.rate, plan.trigger)


class AveragedSgd(SGD):
    """SGD without momentum, whose weights are averaged from a trigger on: NT-ASGD (Merity et al. 2018, algorithm 1).

    The trigger is an evaluation whose loss is above the lowest of the losses before the last `trigger` evaluations. The
    mean is over the weights at the trigger and after each later step. It is computed after the update, outside of any
    CUDA graph of the forward and backward pass.
    """

    def __init__(self, groups: list[dict[str, Any]], rate: float, trigger: int) -> None:
        super().__init__(groups, lr=rate, fused=True)
        self.trigger = trigger
        self.losses: list[float] = []  # of the evaluations before the trigger
        self.averaged = 0  # weights in the mean; 0: before the trigger
        self._swapped = False  # whether the model has the mean, and the state has the weights that training continues

    @property
    def weights(self) -> list[Tensor]:
        return [weight for group in self.param_groups for weight in group["params"]]

    def evaluated(self, loss: float) -> None:
        """Start to average if the loss of this evaluation is the trigger."""
        if self.averaged:
            return
        earlier = self.losses[: len(self.losses) - self.trigger] if len(self.losses) > self.trigger else []
        self.losses.append(loss)
        if earlier and loss > min(earlier):
            self.averaged = 1
            for weight in self.weights:
                self.state[weight][MEAN] = weight.detach().clone()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = super().step(closure)
        if self.averaged:
            self.averaged += 1
            for weight in self.weights:
                self.state[weight][MEAN].lerp_(weight, 1 / self.averaged)
        return loss

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights and their mean, in place, so that CUDA graphs stay valid."""
        for weight in self.weights if self.averaged else ():
            mean = self.state[weight][MEAN]
            before = weight.clone()
            weight.copy_(mean)
            mean.copy_(before)
        self._swapped = not self._swapped

    def values_of(self, weight: Tensor) -> dict[str, Tensor]:
        """The value that training continues and the mean, exchanged or not; neither before the trigger."""
        if MEAN not in self.state.get(weight, {}):
            return {}
        names = (MEAN, TRAINED) if self._swapped else (TRAINED, MEAN)
        return dict(zip(names, (weight.detach(), self.state[weight][MEAN])))

    def trigger_state(self) -> dict[str, Tensor]:
        """The losses before the trigger, and how many weights the mean has."""
        numbers = {"losses": torch.tensor(self.losses, dtype=torch.double), "averaged": torch.tensor(self.averaged)}
        return {f"{TRIGGER}/{name}": value for name, value in numbers.items()}

    def restore_trigger(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `trigger_state` returned."""
        found = {name: state.get(f"{TRIGGER}/{name}") for name in ("losses", "averaged")}
        losses, averaged = found["losses"], found["averaged"]
        if losses is None or losses.dtype != torch.double or losses.dim() != 1:
            raise UserError(f"{TRIGGER}/losses: not the state of plan.optimizer=asgd")
        if averaged is None or averaged.dtype != torch.long or averaged.dim() or averaged < 0:
            raise UserError(f"{TRIGGER}/averaged: not the state of plan.optimizer=asgd")
        self.losses, self.averaged = losses.tolist(), int(averaged)


class LayerWeights(NamedTuple):
    """The weights of one layer of a model, and how they are trained."""

    name: str
    weights: list[nn.Parameter]
    factor: float = 1.0  # of the learning rate
    start: int | None = 0  # the first step that changes them; None: they are frozen


def layers_of(module: nn.Module, plan: Plan) -> list[LayerWeights]:
    """The weights that can be trained, by layer from the input to the output; all in one if the plan treats all alike.

    The layers are those of `Facts.training_groups`. Weights outside of them, such as the objective's own, belong to the
    last.
    """
    named = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if plan.layer_decay == 1 and not plan.freeze and not plan.unfreeze:
        return [LayerWeights("model", list(named.values()))]
    model: Any = module.get_submodule("model")
    paths = model.config.training_groups or (("model",),)
    layers: dict[str, list[nn.Parameter]] = {group[0]: [] for group in paths}
    for name, weight in named.items():
        inside = (group[0] for group in paths if any(f"{name}.".startswith(f"model.{path}.") for path in group))
        layers[next(inside, paths[-1][0])].append(weight)
    names = [name for name, weights in layers.items() if weights]
    frozen = names[: plan.freeze] if isinstance(plan.freeze, int) else list(plan.freeze)
    for name in frozen:
        if name not in names:
            raise UserError(f"plan.freeze={','.join(frozen)}: the model has no layer {name}.{nearest(name, names)}")
    if len(set(frozen)) == len(names):
        raise UserError(f"plan.freeze={format_value(plan.freeze)}: all {len(names)} layers are frozen; give fewer.")
    assert plan.unfreeze != "epoch", "`prepare` makes it a number of steps"
    trained = [name for name in reversed(names) if name not in frozen]
    return [
        LayerWeights(
            name,
            layers[name],
            factor=plan.layer_decay ** (len(names) - 1 - at),
            start=None if name in frozen else trained.index(name) * plan.unfreeze,
        )
        for at, name in enumerate(names)
    ]


def unfreeze(optimizer: Optimizer, step: int) -> bool:
    """Give gradients to the weights that the step trains, and only to these; return whether that is a change."""
    changed = False
    for group in optimizer.param_groups:
        trains = step >= group.get("start", 0)
        for weight in group["params"] if "start" in group else ():  # not of an optimiser of the caller's own
            changed |= weight.requires_grad != trains
            weight.requires_grad_(trains)
    return changed


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the last layer; those of other layers are in proportion."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def optimizer_state(optimizer: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """The state of the optimiser as one mapping: `weight name/state name` → tensor."""
    weights = dict(module.named_parameters())
    state_of = optimizer.values_of if isinstance(optimizer, AveragedSgd) else lambda one: optimizer.state.get(one, {})
    state = {name: state_of(weight) for name, weight in weights.items()}
    found = {f"{name}/{key}": it for name in state for key, it in state[name].items() if isinstance(it, Tensor)}
    unused = [name for name, weight in weights.items() if found and weight.requires_grad and not state[name]]
    return found | {f"{name}/{UNUSED}": torch.empty(0) for name in unused}


def empty_state(
    optimizer: Optimizer, module: nn.Module, plan: Plan, step: int, found: Container[str]
) -> dict[str, Tensor]:
    """The tensors of `optimizer_state` after `step` steps, without their numbers: they are on torch's device `meta`.

    `found` may name weights that are unused.
    """
    groups = (group for group in optimizer.param_groups if group["start"] < step)
    changed = {weight for group in groups for weight in group["params"]}
    state: dict[str, Tensor] = {}
    if isinstance(optimizer, AveragedSgd):
        averaged = set(optimizer.weights if optimizer.averaged else ())
        named = [(name, weight.to("meta")) for name, weight in module.named_parameters() if weight in averaged]
        return {f"{name}/{key}": empty for name, empty in named for key in (TRAINED, MEAN)}
    for name, weight in module.named_parameters():
        if weight in changed and f"{name}/{UNUSED}" in found:
            state[f"{name}/{UNUSED}"] = torch.empty(0, device="meta")
        elif weight in changed:
            for key in STATE[plan.optimizer]:
                state[f"{name}/{key}"] = torch.empty((), device="meta") if key == "step" else weight.to("meta")
    return state


def by_first_names(state: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """What `optimizer_state` returned, with each weight by the first of its names.

    A weight that two layers share has two names. Which one is the first depends on the order of the layers, and was the
    other one if that order has changed.
    """
    first = {weight: name for name, weight in module.named_parameters()}
    names = {name: first[weight] for name, weight in module.named_parameters(remove_duplicate=False)}
    parts = {place: place.rpartition("/") for place in state}
    now = {place: f"{names.get(name, name)}/{key}" for place, (name, _, key) in parts.items()}
    return {place if now[place] in state else now[place]: value for place, value in state.items()}


def restore_optimizer(optimizer: Optimizer, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Restore the state that `optimizer_state` returned, on the device of the weights."""
    weights = dict(module.named_parameters())
    for place, value in state.items():
        name, _, key = place.rpartition("/")
        if key == TRAINED:
            weights[name].detach().copy_(value)
        elif key != UNUSED:
            optimizer.state[weights[name]][key] = value.to(weights[name].device)
