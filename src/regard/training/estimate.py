"""Estimates the memory and time of a recipe on this machine, from its longest batch and a few ordinary batches."""

import resource
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Kinds, format_value, tree
from regard.data.batches import Batch, Batches
from regard.data.streams import Windows
from regard.data.text_files import Report
from regard.data.token_files import CACHE_BYTES
from regard.data.words import Sentences
from regard.objectives.objective import LossModule
from regard.recipes import KINDS, Plan, Recipe
from regard.tensor_tree import signature
from regard.training.evaluate import check_evaluation
from regard.training.extractor import Start
from regard.training.loop import GradientTrainer, blocks_of, train
from regard.training.prepare import Prepared, prepare
from regard.training.tuning import tuning_recipe
from regard.training.warm_start import WarmStart

FILLING = 64  # the most batches that are read to fill a memory
TIMED = 5  # batches that are timed; the first is a warm-up and is not counted
SLOW = 10.0  # seconds of a step after which no further one is timed
# On a CPU, from so many weights × places of a batch on, some rows of a batch are measured: a step would take about ten
# seconds on two cores.
LARGE = 5e10
PART = 8  # one row, and this part of the rows (at least two), are measured then


@dataclass(frozen=True)
class Estimate:
    """The size, memory and time of a run."""

    parameters: int
    shapes: list[tuple[int, ...]]  # the shapes of batches: (rows, width of each axis)
    epoch: int  # batches per epoch
    examples: int
    dropped: int  # examples too long for the model or the batch
    device: str
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int  # kept for the backward pass of the longest batch
    peak_bytes: int  # weights, gradients, optimiser state and activations; on a GPU, the measured peak
    steps: int  # of the run: plan.steps, those of plan.epochs, or as many as fit into plan.minutes
    ends_by: str  # the setting of the plan that ends the run first: steps, epochs or minutes
    seconds_per_step: float
    seconds: float  # the time of all steps, without evaluations
    host_bytes: int  # the peak memory of preparing the run and of a few steps, mapped files included
    text_bytes: int = 0  # the size of a running text that stays on disk
    token_bytes: int = 0  # the size of its token file
    counts: bool = False  # whether the model is trained by counting, without gradients
    warnings: tuple[str, ...] = ()  # what is probably a mistake in the data or the plan, with its remedy
    tuning_steps: int = 0  # of the language model of plan.tune_lm, which comes first
    tuning_seconds: float = 0.0  # the time of its steps
    head: str = ""  # the settings of the head above the model's body; empty: the output layers are the model's own
    extrapolated: bool = False  # whether the time and the activations follow from a few rows of a batch


@dataclass(frozen=True)
class SelectedBatches:
    """Some batches of a corpus, selected by their numbers."""

    batches: Batches | Windows | Sentences
    numbers: list[int]

    def batch(self, step: int) -> Batch:
        return self.batches.batch(self.numbers[step % len(self.numbers)])


@dataclass(frozen=True)
class OneBatch:
    """The same batch at every step."""

    always: Batch

    def batch(self, step: int) -> Batch:
        return self.always


def estimate(
    recipe: Recipe,
    init: Start | None = None,
    kinds: Kinds = KINDS,
    report: Report | None = None,
    ranks: int = 1,
) -> Estimate:
    """Prepare the recipe and run a few updates, without writing a run; `init` is the warm start of the run, if any.

    If a text on disk has no token file yet, only a sample of it is encoded.
    """
    tuning, plan = None, recipe.plan
    if plan.tune_lm:
        first = tuning_recipe(recipe, init if isinstance(init, WarmStart) else None, kinds)
        tuning = estimate(first, init, kinds, report, ranks)
        if plan.minutes is not None:
            left = max(plan.minutes - tuning.seconds / 60, plan.minutes / 2)
            recipe = replace(recipe, plan=replace(plan, minutes=left))
    prepared = prepare(recipe, given=init, kinds=kinds, report=report, whole=False, ranks=ranks)
    check_evaluation(prepared.recipe, prepared.task, prepared.corpus, kinds["metric"])
    with prepared.within_memory():
        found = _measure(prepared)
    if tuning is None:
        return found
    return replace(
        found,
        peak_bytes=max(tuning.peak_bytes, found.peak_bytes),
        tuning_steps=tuning.steps,
        tuning_seconds=tuning.seconds,
        warnings=tuple(dict.fromkeys((*tuning.warnings, *found.warnings))),
    )


def _measure(prepared: Prepared) -> Estimate:
    # All layers train at the end of gradual unfreezing, which takes the most memory and time.
    plan = replace(prepared.recipe.plan, unfreeze=0)
    trainer = replace(prepared, recipe=replace(prepared.recipe, plan=plan)).trainer()
    if prepared.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(prepared.device)
    extrapolated, beyond = False, 0  # the bytes of activations that were not there
    if isinstance(trainer, GradientTrainer):
        extrapolated = _is_large(prepared, trainer)
        if extrapolated:
            per_step, activations, beyond = _try_rows(prepared, trainer, plan)
        else:
            per_step, activations = _try_steps(prepared, trainer, plan)
    else:
        per_step, activations = statistics.mean(step.seconds for step in islice(trainer.steps(0), TIMED)), 0
    weights = sum(weight.nbytes for weight in trainer.model.parameters())
    state = sum(tensor.nbytes for tensor in trainer.state().values())
    gradients = weights if isinstance(trainer, GradientTrainer) else 0
    peak = weights + gradients + state + activations
    if prepared.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(prepared.device)
    token_bytes, (_, head) = 0, prepared.config.split()
    if prepared.text_bytes and isinstance(prepared.batches, Windows):
        token_bytes = round(prepared.batches.nbytes / prepared.encoded)
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    length, ends_by = plan.steps, "steps" if plan.epochs is None else "epochs"
    if plan.minutes is not None and 60 * plan.minutes < per_step * length:
        length, ends_by = max(1, round(60 * plan.minutes / per_step)), "minutes"
    return Estimate(
        parameters=sum(weight.numel() for weight in trainer.model.parameters()),
        shapes=prepared.batches.shapes,
        epoch=round(len(prepared.batches) / prepared.encoded),
        examples=prepared.examples - prepared.batches.dropped,
        dropped=prepared.batches.dropped,
        device=str(prepared.device),
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=state,
        activations_bytes=activations,
        peak_bytes=peak,
        steps=length,
        ends_by=ends_by,
        seconds_per_step=per_step,
        seconds=per_step * length,
        # If only a part is encoded, the whole text is still to be encoded.
        host_bytes=host + beyond + (CACHE_BYTES if prepared.encoded < 1 else 0),
        text_bytes=prepared.text_bytes,
        token_bytes=token_bytes,
        counts=prepared.recipe.objective.learns_by == "counts",
        warnings=prepared.warnings,
        head="" if head is None else " ".join(f"{each.name}={format_value(each.value)}" for each in tree(head)),
        extrapolated=extrapolated,
    )


def _is_large(prepared: Prepared, trainer: GradientTrainer) -> bool:
    """Whether a step takes too long for an estimate, and a few rows of a batch tell about all of its rows."""
    batch = prepared.batches.batch(0)
    rows = len(next(iter(batch.real.values())))
    by_row = all(len(each) == rows for part in (batch.fields, batch.real) for each in part.values())
    weights = sum(weight.numel() for weight in trainer.model.parameters())
    work = weights * max(real.numel() for real in batch.real.values())
    return prepared.device.type == "cpu" and batch.segment is None and by_row and rows > 2 and work > LARGE


def _try_rows(prepared: Prepared, trainer: GradientTrainer, plan: Plan) -> tuple[float, int, int]:
    """Run updates on a few rows. Returns the seconds of a step, the bytes of the activations of the longest batch, and
    how many more these are than were measured. Both are taken to grow with the rows by the same amount for each row.
    """
    plain = replace(plan, steps=1, accumulate=1, capture=False, compile=False)

    def measured(number: int, rows: int) -> tuple[float, int]:
        """The seconds and the bytes of the first rows of a batch."""
        some = OneBatch(first_rows(prepared.batches.batch(number), rows))
        with _saved_bytes(trainer.loss_module, plan) as saved:
            (step,) = train(trainer.loss_module, some, plain, trainer.optimizer)
        return step.seconds, saved.bytes

    def extended(number: int) -> tuple[float, int, int]:
        """The seconds and the bytes of a batch, and the bytes that were measured."""
        rows = len(prepared.batches.batch(number).rows)
        some = max(2, rows // PART)
        _, (first, one), (second, more) = (measured(number, few) for few in (some, 1, some))  # the first is a warm-up
        times = (rows - 1) / (some - 1)
        return max(first + times * (second - first), second), round(one + times * (more - one)), more

    longest, (per_step, activations, there) = _longest(prepared), extended(0)
    if longest:
        _, activations, there = extended(longest)
    return per_step * plan.accumulate, activations, activations - there


def first_rows(batch: Batch, count: int) -> Batch:
    """The first rows of a batch whose tensors have its rows as the first dimension."""
    fields, real = ({name: each[:count] for name, each in part.items()} for part in (batch.fields, batch.real))
    counts = {name: max(1, number * count // len(batch.rows)) for name, number in batch.counts.items()}
    counts |= {name: int(each.sum()) for name, each in real.items() if name in counts}
    return replace(batch, fields=fields, real=real, counts=counts, rows=batch.rows[:count])


def _try_steps(prepared: Prepared, trainer: GradientTrainer, plan: Plan) -> tuple[float, int]:
    """Run a few updates. Returns the seconds of a step, and the bytes of the activations of the longest batch."""
    loss_module, optimizer = trainer.loss_module, trainer.optimizer
    plain = replace(plan, steps=1, accumulate=1, capture=False, compile=False)
    # Contiguous text: the batches of one lane, so that the longest batch is read with a carried state.
    numbers, carried = [number * plan.accumulate for number in range(TIMED)], dict[int, Any]()
    some = SelectedBatches(prepared.batches, numbers)
    steps = train(loss_module, some, replace(plain, steps=TIMED), optimizer, carried=carried)
    timed = list[float]()
    for step in steps:
        timed.append(step.seconds)
        if step.seconds > SLOW:  # a large model on a CPU: one step is enough to tell
            break
    per_step = statistics.mean(timed[1:] or timed) * plan.accumulate
    while carried and len(numbers) < FILLING:  # until a memory is full, and the shapes of the carried state stay
        before = signature(list(carried.values()))
        numbers.append(len(numbers) * plan.accumulate)
        list(train(loss_module, SelectedBatches(prepared.batches, numbers[-1:]), plain, optimizer, carried=carried))
        if signature(list(carried.values())) == before:
            break
    number = _longest(prepared) if len(prepared.batches.shapes) > 1 else numbers[-1]
    with _saved_bytes(loss_module, plan) as saved:
        list(train(loss_module, SelectedBatches(prepared.batches, [number]), plain, optimizer, carried=carried))
    return per_step, saved.bytes


def _longest(prepared: Prepared) -> int:
    """The number of the batch of the first epoch that has the most positions, with padding."""
    if len(prepared.batches.shapes) == 1:
        return 0
    batches = map(prepared.batches.batch, range(len(prepared.batches)))
    sizes = [sum(real.numel() for real in batch.real.values()) for batch in batches]
    return sizes.index(max(sizes))


@contextmanager
def _saved_bytes(loss_module: LossModule, plan: Plan) -> Iterator["SavedBytes"]:
    """Counts the bytes that are kept for the backward pass inside the block."""
    saved = SavedBytes(loss_module)
    # With plan.checkpoint, autograd does not save the inputs of blocks: they are kept as arguments.
    blocks = blocks_of(loss_module) if plan.checkpoint else ()
    hooks = [block.register_forward_pre_hook(saved.count_input) for block in blocks]
    with saved:
        yield saved
    for hook in hooks:
        hook.remove()


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that autograd saves inside the block, each storage once, without weights and their views."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(self.count, lambda tensor: tensor)
        self.bytes, self._seen = 0, {weight.untyped_storage().data_ptr() for weight in module.parameters()}

    def count(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor

    def count_input(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Count the first input of a module, as a hook."""
        self.count(inputs[0])
