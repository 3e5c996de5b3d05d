"""Checks of training: padding in the loss, accumulated gradients, and a run that is resumed."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from regard.checks.subject import PADDING, ROWS, CheckResult, Subject, Texts, difference, does_not_apply, measured
from regard.errors import UserError
from regard.file_io import load_tensors, save_tensors
from regard.objectives.objective import Trainer

STEPS = 4  # that are trained; half of them before the interruption


def counted(subject: Subject) -> CheckResult:
    """Padding changes no loss.

    Adds padding to texts of several lengths, and changes the ids in it. The sum of the loss and its count must stay.
    """
    if subject.calls.loss is None:
        return does_not_apply("no loss: `loss` was not given")
    texts, worst = subject.texts(ragged=True), 0.0
    outputs, (expected, count) = subject.real_logits(texts), _loss(subject, texts)
    for case in (texts.fill(int(subject.ids(4)[0])), texts.pad(0, PADDING, subject.filler)):
        if difference(subject.real_logits(case), outputs) > subject.bound:
            return does_not_apply("padding changes the outputs, and so the loss, see `padding`")
        found, counted = _loss(subject, case)
        if counted != count:
            return measured(abs(counted - count), 0, f"the count of the loss: {count}, and {counted} with more padding")
        worst = max(worst, difference(found.detach(), expected.detach()))
    return measured(worst, subject.bound, "the sum of the loss: leave out the places where `real` is False")


def accumulated(subject: Subject) -> CheckResult:
    """Accumulated gradients are those of a large batch.

    Adds the gradients of two parts of a batch, each divided by the count of all, and compares with the whole batch.
    """
    texts = subject.texts(ragged=True)
    parts = [texts.select(rows) for rows in ([0], range(1, ROWS))]
    loss, count = _loss(subject, texts)
    if not loss.requires_grad:
        return does_not_apply("the module has no weights that learn by gradients")
    weights = [weight for weight in subject.module.parameters() if weight.requires_grad]
    whole = torch.autograd.grad(loss / count, weights, allow_unused=True, materialize_grads=True)
    largest = max(float(gradient.abs().max()) for gradient in whole)
    missing, rest = count, list(whole)  # what the parts have not added yet
    for part in parts:
        loss, counted = _loss(subject, part)
        gradients = torch.autograd.grad(loss / count, weights, allow_unused=True, materialize_grads=True)
        missing, rest = missing - counted, [each - gradient for each, gradient in zip(rest, gradients)]
    if missing:
        return measured(abs(missing), 0, f"the count of the loss: {count} in the batch, {count - missing} in its parts")
    error = max(difference(each / largest, torch.zeros_like(each)) for each in rest) if largest else 0.0
    return measured(error, subject.bound, "the loss: it must return a sum, not a mean, and padding must add nothing")


def _loss(subject: Subject, texts: Texts) -> tuple[Tensor, int]:
    """The loss of the module; if it has none, the sum of the squares of all real outputs."""
    if subject.calls.loss is not None:
        return subject.calls.loss(subject.module, *subject.arguments(texts))
    outputs = subject.logits(texts)
    outputs = outputs if subject.calls.one_per_text else outputs[texts.real]
    return outputs[outputs.isfinite()].square().sum(), len(outputs)


def resumed(subject: Subject) -> CheckResult:
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
        return does_not_apply(f"cannot train here: {refused}")
    first = {name: each.clone() for name, each in whole.model.state_dict().items()}
    _train(whole, 0, STEPS)
    _train(half, 0, STEPS // 2)
    with TemporaryDirectory() as folder:
        for name, tensors in (("model", half.model.state_dict()), ("trainer", half.state())):
            save_tensors(Path(folder) / name, tensors)
        again.model.load_state_dict(load_tensors(Path(folder) / "model"))
        again.restore(load_tensors(Path(folder) / "trainer"), STEPS // 2)
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
