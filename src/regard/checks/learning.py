"""Checks of training: accumulated gradients, and a run that is resumed."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from regard.checkpoint import load_tensors, save_tensors
from regard.checks.subject import ROWS, Outcome, Subject, Texts, difference, does_not_apply, measured
from regard.errors import UserError
from regard.objectives.objective import Trainer

STEPS = 4  # that are trained; half of them before the interruption


def accumulated(subject: Subject) -> Outcome:
    """Accumulated gradients are those of a large batch.

    Adds the gradients of two parts of a batch, each divided by the count of all, and compares with the whole batch.
    """
    texts = subject.texts(ragged=True)
    parts = [texts.select(rows) for rows in ([0], range(1, ROWS))]
    losses = [_loss(subject, each) for each in (texts, *parts)]
    counts = [count for _, count in losses]
    if not losses[0][0].requires_grad:
        return does_not_apply("the module has no weights that learn by gradients")
    if counts[0] != sum(counts[1:]):
        where = f"the count of the loss: {counts[0]} in the large batch, {sum(counts[1:])} in its parts"
        return measured(abs(counts[0] - sum(counts[1:])), 0.0, where)
    weights = [weight for weight in subject.module.parameters() if weight.requires_grad]
    gradients = [
        torch.autograd.grad(loss / counts[0], weights, allow_unused=True, materialize_grads=True) for loss, _ in losses
    ]
    whole, *of_parts = [torch.cat([each.flatten() for each in gradient]) for gradient in gradients]
    largest = whole.abs().max().clamp(min=torch.finfo(whole.dtype).tiny)
    error = difference(torch.stack(of_parts).sum(0) / largest, whole / largest)
    return measured(error, subject.bound, "the loss: it must return a sum, not a mean, and padding must add nothing")


def _loss(subject: Subject, texts: Texts) -> tuple[Tensor, int]:
    """The loss of the module; if it has none, the sum of the squares of all real outputs."""
    if subject.calls.loss is not None:
        return subject.calls.loss(subject.module, *subject.arguments(texts))
    outputs = subject.logits(texts)
    outputs = outputs if subject.calls.one_per_text else outputs[texts.real]
    return outputs[outputs.isfinite()].square().sum(), len(outputs)


def resumed(subject: Subject) -> Outcome:
    """A resumed run has the weights of an uninterrupted one.

    Trains 4 steps. Trains 2 steps, writes the model and the trainer to files, and continues them in a new trainer.
    The weights and the state of the trainer must be equal to the last bit.
    """
    make = subject.calls.trainer
    if make is None:
        return does_not_apply("no training: `trainer` was not given")
    try:
        whole, half, again = make(), make(), make()
    except (UserError, OSError) as refused:
        return does_not_apply(f"the training data cannot be read: {refused}")
    first = {name: each.clone() for name, each in whole.model.state_dict().items()}
    _train(whole, 0, STEPS)
    _train(half, 0, STEPS // 2)
    with TemporaryDirectory() as folder:
        for name, tensors in (("model", half.model.state_dict()), ("trainer", half.state())):
            save_tensors(Path(folder) / name, tensors)
        again.model.load_state_dict(load_tensors(Path(folder) / "model"))
        again.restore(load_tensors(Path(folder) / "trainer"))
    _train(again, STEPS // 2, STEPS - STEPS // 2)
    if not _apart(whole.model.state_dict(), first):
        return does_not_apply(f"{STEPS} steps of training change no weight")
    error = max(_apart(again.model.state_dict(), whole.model.state_dict()), _apart(again.state(), whole.state()))
    where = "what a step reads beside the model and the trainer's `state`: optimiser, random numbers, order of the data"
    return measured(error, 0.0, where)


def _train(trainer: Trainer, start: int, steps: int) -> None:
    for _ in islice(trainer.steps(start), steps):
        pass


def _apart(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest difference between the tensors of two states."""
    if found.keys() != expected.keys():
        return float("inf")
    return max((difference(found[name].double(), each.double()) for name, each in expected.items()), default=0.0)
