"""Classify: the class of each text or pair, its labels, its number, or the right one of several choices."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import collate
from regard.data.fields import LabelField
from regard.errors import UserError
from regard.recording import active_tape, pause_recording
from regard.verbs.embedding import cosines
from regard.verbs.forced import (
    BATCH_TOKENS,
    in_batches,
    joined_axes,
    joined_rows,
    record_forced,
    record_rows,
    text_rows,
)
from regard.verbs.given import part_list, text_list
from regard.verbs.loaded import Loaded

FUNCTIONS = {  # by what a model predicts
    "class": "regard.classify",
    "labels": "regard.verbs.labelling.label_sets",
    "number": "regard.verbs.labelling.rate",
    "choice": "regard.verbs.labelling.choose",
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


@dataclass(frozen=True)
class Chosen:
    """The likeliest of several choices, and the probability of each."""

    number: int  # its place, from 0
    choice: str
    probability: float
    probabilities: list[float]  # of all choices, in their order


def classify(model: Loaded, texts: Iterable[Any], batch_tokens: int = BATCH_TOKENS) -> list[Classified]:
    """The labels of texts, in their order; for a model of pairs, each is a pair (first, second).

    A public classifier reads texts or pairs, as they are given.
    """
    ranked = _ranked(model, texts, "class", batch_tokens)
    return [Classified(*next(iter(labels.items())), labels) for labels in ranked]


def label_sets(model: Loaded, texts: Iterable[Any], batch_tokens: int = BATCH_TOKENS) -> list[LabelSet]:
    """The labels of texts that may have several, in the order of the texts."""
    least = model.module.config.threshold
    ranked = _ranked(model, texts, "labels", batch_tokens)
    return [LabelSet(tuple(name for name, p in labels.items() if p >= least), labels) for labels in ranked]


def rate(model: Loaded, texts: Iterable[Any], batch_tokens: int = BATCH_TOKENS) -> list[Rating]:
    """The numbers that a regression model predicts for texts, or for pairs (first, second), in their order."""
    return [Rating(float(number)) for number in _outputs(model, texts, "number", batch_tokens)]


def similarity(model: Loaded, pairs: Iterable[tuple[str, str]], batch_tokens: int = BATCH_TOKENS) -> list[Rating]:
    """The number that a model of pairs (`regard train similarity`) predicts for each pair (first, second).

    For a model of text vectors (`regard train embed`) it is the cosine of their vectors.
    """
    given = part_list(pairs, "pairs")
    if model.predicts("vector"):
        checked: Any = [checked_parts(model, pair, f"text {number}") for number, pair in enumerate(given, 1)]
        return [Rating(cosine) for cosine in cosines(model, checked, batch_tokens)]
    model = model.of_pairs()
    model.expect("compare two texts", model.joined_text is not None and model.predicts("number"))
    return rate(model, given, batch_tokens)


def choose(model: Loaded, contexts: Iterable[Sequence[str]], batch_tokens: int = BATCH_TOKENS) -> list[Chosen]:
    """The likeliest choice of each context; each is given as (context, choice, choice, …), in any number."""
    found, given = [], part_list(contexts, "contexts")
    for parts, logits in zip(given, _outputs(model, given, "choice", batch_tokens)):
        probabilities = logits.softmax(-1).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        found.append(Chosen(best, parts[1 + best], probabilities[best], probabilities))
    return found


def _ranked(model: Loaded, texts: Iterable[Any], head: str, batch_tokens: int) -> Iterator[dict[str, float]]:
    """The probability of every label of each text, the likeliest first."""
    for logits in _outputs(model, texts, head, batch_tokens):
        probabilities = logits.softmax(-1) if head == "class" else logits.sigmoid()
        names = next(each for each in model.fields.values() if isinstance(each, LabelField)).names
        yield dict(sorted(zip(names, probabilities.tolist()), key=lambda item: -item[1]))


@torch.no_grad()
def _outputs(model: Loaded, texts: Iterable[Any], head: str, batch_tokens: int) -> list[Tensor]:
    """The output of a head for each text, on the CPU."""
    fitting = [name for name in FUNCTIONS if model.predicts(name)]
    model.expect("classify", bool(fitting) and not model.module.config.numbers)
    if head not in fitting:
        raise UserError(f"{model.path}: this is {model.kind}; use: {FUNCTIONS[fitting[0]]}(model, texts).")
    given = part_list(texts)
    if given and not isinstance(given[0], str):
        model = model.of_pairs()
    if model.joined_text is None:
        lines = text_list(given)
        pairs = [(list[int](), tokens) for tokens in model.read(lines)]
        record_forced(model, pairs, batch_tokens)
        inputs = text_rows(model, lines, [tokens for _, tokens in pairs])
        sizes = [len(tokens) for _, tokens in pairs]
    else:
        values = joined_values(model, given)
        arrays = model.read_joined(values)
        inputs = joined_rows(model, arrays)
        if active_tape(model.module) is not None:
            items = [axes for value, array in zip(values, arrays) for axes in joined_axes(model, value, array)]
            record_rows(model, inputs, items, batch_tokens)
        sizes = [array[..., 0].size for array in arrays]

    def read(rows: list[int]) -> Tensor:
        outputs = model.module(collate([inputs[row] for row in rows], model.task).to(model.device))
        return model.check_finite(outputs.float().cpu())

    with pause_recording(model.module), model.autocast():
        return in_batches(sizes, batch_tokens, read)


def joined_values(model: Loaded, texts: Sequence[Any]) -> list[Any]:
    """Texts of several parts as the model's field reads them; other texts are refused."""
    return [model.joined_value(checked_parts(model, parts, f"text {at}")) for at, parts in enumerate(texts, 1)]


def checked_parts(model: Loaded, parts: Sequence[str], place: str) -> list[str]:
    """The parts of a text, without spaces around them; other parts are refused. `place` names the text in an error."""
    chooses, columns = model.predicts("choice"), model.part_columns
    given = (parts,) if isinstance(parts, str) else tuple(parts)
    fits = len(given) > 2 if chooses else len(given) == len(columns)
    if not fits or not all(isinstance(part, str) and part.strip() for part in given):
        expected = "a context and two or more choices" if chooses else " and ".join(columns)
        cure = "; in a line of text, write a tab between them" if len(given) == 1 else ""
        found = ", ".join(f"{part!r:.60}" for part in given[:4]) or "nothing"
        raise UserError(f"{place}: expected {expected}, none of them empty, found {found}{cure}")
    return [part.strip() for part in given]
