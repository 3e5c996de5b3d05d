"""What a recipe would cost here, found by running its longest batch once and a few ordinary ones."""

import resource
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.config import Kinds
from regard.data.batches import Batch, Batches
from regard.data.streams import Windows
from regard.data.text_files import Report, TextExamples
from regard.recipes import KINDS, Recipe
from regard.training.loop import train
from regard.training.memory import within_memory
from regard.training.optim import build_optimizer, optimizer_state
from regard.training.prepare import Prepared, prepare
from regard.training.warm_start import WarmStart

ORDINARY = 5  # batches that are timed; the first one, which warms up, is not counted


@dataclass(frozen=True)
class Estimate:
    """The size, memory and time of a run."""

    parameters: int
    shapes: list[tuple[int, ...]]  # of batches: (rows, width of each axis)
    epoch: int  # batches per epoch
    examples: int
    dropped: int  # examples too long for the model or the batch
    device: str
    weights_bytes: int
    optimizer_bytes: int
    activations_bytes: int  # kept for the backward pass of the longest batch
    peak_bytes: int  # together with gradients; on a GPU as measured
    seconds_per_step: float
    seconds: float  # of all steps, without evaluations
    host_bytes: int  # the most memory that this process took, files that it reads included
    text_bytes: int = 0  # of a running text that stays on the disk
    token_bytes: int = 0  # of its token file


@dataclass(frozen=True)
class Chosen:
    """Batches of a corpus by their number, in another order."""

    batches: Batches | Windows
    numbers: list[int]

    def batch(self, step: int) -> Batch:
        return self.batches.batch(self.numbers[step % len(self.numbers)])


def estimate(
    recipe: Recipe, init: WarmStart | None = None, kinds: Kinds = KINDS, report: Report | None = None
) -> Estimate:
    """Prepare everything, make a few updates, keep nothing; `init` is what the run would start from.

    Of a text on the disk that has no token file yet, only a sample is encoded.
    """
    prepared = prepare(recipe, given=init, kinds=kinds, report=report, whole=False)
    with within_memory(recipe.plan, prepared.device):
        return _measured(prepared)


def _measured(prepared: Prepared) -> Estimate:
    loss_module, plan = prepared.build(), prepared.recipe.plan
    optimizer = build_optimizer(loss_module, plan)
    plain = replace(plan, steps=1, accumulate=1, capture=False, compile=False)
    if prepared.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(prepared.device)
    with counted(loss_module) as kept:
        list(train(loss_module, Chosen(prepared.batches, [_longest(prepared.batches)]), plain, optimizer))
    timed = [step.seconds for step in train(loss_module, prepared.batches, replace(plain, steps=ORDINARY), optimizer)]
    per_step = statistics.mean(timed[1:]) * plan.accumulate

    weights = _bytes(list(loss_module.parameters()))
    state = _bytes(list(optimizer_state(optimizer, loss_module).values()))
    peak = weights * 2 + state + kept.bytes  # gradients are as large as the weights
    if prepared.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(prepared.device)
    train_text, token_bytes = prepared.corpus.train, 0
    if isinstance(train_text, TextExamples) and isinstance(prepared.batches, Windows):
        token_bytes = round(prepared.batches.nbytes / prepared.encoded)
    return Estimate(
        parameters=sum(weight.numel() for weight in loss_module.model.parameters()),
        shapes=prepared.batches.shapes,
        epoch=round(len(prepared.batches) / prepared.encoded),
        examples=len(prepared.corpus.train) - prepared.batches.dropped,
        dropped=prepared.batches.dropped,
        device=str(prepared.device),
        weights_bytes=weights,
        optimizer_bytes=state,
        activations_bytes=kept.bytes,
        peak_bytes=peak,
        seconds_per_step=per_step,
        seconds=min(per_step * plan.steps, 60 * plan.minutes if plan.minutes else float("inf")),
        host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        text_bytes=len(train_text.text) if isinstance(train_text, TextExamples) else 0,
        token_bytes=token_bytes,
    )


@dataclass
class Counted:
    """How many bytes a forward pass has kept for the backward one."""

    bytes: int = 0


@contextmanager
def counted(module: nn.Module) -> Iterator[Counted]:
    """Count what autograd keeps inside, each storage once; what is a weight's, as it is or turned, is not counted."""
    total, seen = Counted(), {weight.untyped_storage().data_ptr() for weight in module.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total.bytes += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield total


def _longest(batches: Batches | Windows) -> int:
    """The number of a batch in the first epoch that has the most places."""

    def size(number: int) -> int:
        batch = batches.batch(number)
        return sum(real.numel() for real in batch.real.values())

    return max(range(len(batches) if len(batches.shapes) > 1 else 1), key=size)


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
