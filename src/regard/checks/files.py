"""Checks of what is stored: the weights, their file, and the tokenizer that belongs to them."""

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.checks.subject import CheckResult, Subject, difference, does_not_apply, measured
from regard.file_io import load_tensors, save_tensors


def weights(subject: Subject) -> CheckResult:
    """All weights are finite.

    Counts the numbers that are NaN or infinite in the parameters and the saved buffers.
    """
    bad = {
        name: int((~each.isfinite()).sum())
        for name, each in subject.original.state_dict().items()
        if each.is_floating_point() and not each.isfinite().all()
    }
    where = f"{', '.join([*bad][:3])}: use an earlier step of the run, and a lower learning rate"
    return measured(sum(bad.values()), 0, where)


def tokenizer(subject: Subject) -> CheckResult:
    """The model has every id of the tokenizer.

    Encodes texts of several scripts, and compares the largest id, special tokens included, with the vocabulary.
    """
    calls = subject.calls
    if not calls.encode:
        return does_not_apply("no tokenizer: `encode` was not given")
    past, where = 0, ""
    for name, encode in calls.encode.items():
        vocab = calls.source_vocab if name == "source" else calls.vocab
        ids = [number for text in calls.texts for number in encode(text)]
        outside = max([max(ids, default=0) - vocab + 1, -min(ids, default=0), 0])
        if outside > past:
            past = outside
            where = f"the tokenizer of `{name}`: ids {min(ids)} to {max(ids)}, but the model has 0 to {vocab - 1}"
    return measured(past, 0, where)


def saved(subject: Subject) -> CheckResult:
    """A saved and loaded module has the same outputs.

    Writes the weights to a file, and reads them into a new module, or into a copy whose weights were changed.
    The outputs must be equal to the last bit.
    """
    build, texts = subject.calls.build, subject.texts()
    other = (deepcopy(subject.module) if build is None else build()).to("cpu", subject.dtype).eval()
    with torch.no_grad(), TemporaryDirectory() as folder:
        for each in other.state_dict().values():
            if each.is_floating_point():
                each.mul_(-0.5).add_(0.1)
        save_tensors(Path(folder) / "weights", subject.module.state_dict())
        other.load_state_dict(load_tensors(Path(folder) / "weights"))
    error = difference(subject.real_logits(texts, other), subject.real_logits(texts))
    where = "tensors that are no parameter and no buffer, and buffers with persistent=False that are not constant"
    return measured(error, 0.0, where)
