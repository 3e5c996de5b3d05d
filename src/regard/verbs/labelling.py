"""Classify: the class of each text, its labels, or its number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.batches import collate
from regard.data.fields import LabelField
from regard.errors import UserError
from regard.recording import pause_recording
from regard.verbs.forced import BATCH_TOKENS, check_is_list, grouped, record_forced, text_rows
from regard.verbs.loaded import Loaded

FUNCTIONS = {  # by what a model predicts
    "class": "regard.classify",
    "labels": "regard.verbs.labelling.label_sets",
    "number": "regard.verbs.labelling.rate",
}


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, and the probability of every label, the likeliest first."""

    label: str
    probability: float
    labels: dict[str, float]


@dataclass(frozen=True)
class LabelSet:
    """The labels of a text whose probability reaches the threshold, and the probability of every label."""

    given: tuple[str, ...]  # the likeliest first; there may be none
    labels: dict[str, float]  # the likeliest first


@dataclass(frozen=True)
class Rating:
    """The number that a model predicts for a text."""

    number: float


def classify(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Classified]:
    """The labels of texts, in their order."""
    ranked = _ranked(model, texts, "class", batch_tokens)
    return [Classified(*next(iter(labels.items())), labels) for labels in ranked]


def label_sets(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[LabelSet]:
    """The labels of texts that may have several, in the order of the texts."""
    least = model.module.config.threshold
    ranked = _ranked(model, texts, "labels", batch_tokens)
    return [LabelSet(tuple(name for name, p in labels.items() if p >= least), labels) for labels in ranked]


def rate(model: Loaded, texts: Sequence[str], batch_tokens: int = BATCH_TOKENS) -> list[Rating]:
    """The numbers that a regression model predicts for texts, in their order."""
    return [Rating(float(number)) for number in _outputs(model, texts, "number", batch_tokens)]


def _ranked(model: Loaded, texts: Sequence[str], head: str, batch_tokens: int) -> Iterator[dict[str, float]]:
    """The probability of every label of each text, the likeliest first."""
    for logits in _outputs(model, texts, head, batch_tokens):
        probabilities = logits.softmax(-1) if head == "class" else logits.sigmoid()
        names = next(each for each in model.fields.values() if isinstance(each, LabelField)).names
        yield dict(sorted(zip(names, probabilities.tolist()), key=lambda item: -item[1]))


@torch.no_grad()
def _outputs(model: Loaded, texts: Sequence[str], head: str, batch_tokens: int) -> list[Tensor]:
    """The output of a head for each text, on the CPU."""
    fitting = [name for name in FUNCTIONS if model.predicts(name)]
    model.expect("classify", bool(fitting) and not model.module.config.numbers)
    if head not in fitting:
        raise UserError(f"{model.path}: this is {model.kind}; use: {FUNCTIONS[fitting[0]]}(model, texts).")
    check_is_list(texts)
    pairs = [(list[int](), tokens) for tokens in model.read(texts)]
    record_forced(model, pairs, batch_tokens)
    inputs = text_rows(model, texts, [tokens for _, tokens in pairs])
    outputs: dict[int, Tensor] = {}
    with pause_recording(model.module), model.autocast():
        for rows in grouped([len(tokens) for _, tokens in pairs], batch_tokens):
            batch = collate([inputs[row] for row in rows], model.task).to(model.device)
            outputs |= zip(rows, model.module(batch).float().cpu())
    return [outputs[row] for row in range(len(texts))]
