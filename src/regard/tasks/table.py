"""The tasks, one literal table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import IGNORED, Batch, Row
from regard.data.fields import InputText, LabelField, MaskedText, TargetText
from regard.data.flat import Lengths, Values, pad, real_places
from regard.data.streams import RunningText
from regard.objectives import Labelling, MaskedTokens, TeacherForcing
from regard.tasks.task import Task


def _padded(items: list[Values], width: int, fill: int = 0) -> Tensor:
    return torch.from_numpy(pad(items, width, fill))


def _real(items: list[Values], width: int) -> Tensor:
    return torch.from_numpy(real_places(np.array([len(item) for item in items]), width))


def next_token(rows: list[Row], widths: Mapping[str, int], random: np.random.Generator, name: str = "text") -> Batch:
    """Teacher forcing: the model reads all tokens of a text but the last and predicts all but the first."""
    inputs, targets = [row[name][:-1] for row in rows], [row[name][1:] for row in rows]
    count = sum(map(len, targets))
    return Batch(
        fields={"tokens": _padded(inputs, widths[name]), "targets": _padded(targets, widths[name], IGNORED)},
        real={"tokens": _real(inputs, widths[name])},
        counts={"tokens": count, "targets": count},
    )


def translation(rows: list[Row], widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """Teacher forcing of the target; the source is read whole."""
    target, sources = next_token(rows, widths, random, "target"), [row["source"] for row in rows]
    return Batch(
        fields={"source": _padded(sources, widths["source"]), **target.fields},
        real={"source": _real(sources, widths["source"]), **target.real},
        counts={"source": sum(map(len, sources)), **target.counts},
    )


def whole_text(rows: list[Row], widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole. A corrupted text has targets; one without them has nothing to predict."""
    texts = [row["text"] for row in rows]
    fields = {"tokens": _padded(texts, widths["text"])}
    counts = {"tokens": sum(map(len, texts)), "targets": 0}
    if "targets" in rows[0]:
        fields["targets"] = _padded([row["targets"] for row in rows], widths["text"], IGNORED)
        counts["targets"] = int((fields["targets"] != IGNORED).sum())
    return Batch(fields, {"tokens": _real(texts, widths["text"])}, counts)


def labelled_text(rows: list[Row], widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole, and its class."""
    text, labels = whole_text(rows, widths, random), [row["label"] for row in rows]
    fields = {**text.fields, "targets": _padded(labels, 1, IGNORED)[:, 0]}
    return Batch(fields, text.real, {**text.counts, "targets": sum(map(len, labels))})


def _one_less(name: str) -> Any:
    """The widths of teacher forcing: one place fewer than the text has tokens, special tokens included."""
    return lambda lengths: {**lengths, name: np.maximum(lengths[name] - 1, 0)}


def _text_only(lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
    return {"text": lengths["text"]}


TASKS: dict[str, Task] = {
    "translate": Task(
        name="translate",
        verb="translate",
        fields={"source": InputText, "target": TargetText},
        widths=_one_less("target"),
        collate=translation,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu",),
    ),
    "language": Task(
        name="language",
        verb="generate",
        fields={"text": TargetText},
        widths=_one_less("text"),
        collate=next_token,
        head="next",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "running": Task(
        name="running",
        verb="generate",
        fields={"text": RunningText},
        widths=_one_less("text"),
        collate=next_token,
        head="next",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "masked": Task(
        name="masked",
        verb="fill",
        fields={"text": MaskedText},
        widths=_text_only,
        collate=whole_text,
        head="masked",
        objective=MaskedTokens,
        metrics=("perplexity",),
    ),
    "classify": Task(
        name="classify",
        verb="classify",
        fields={"text": InputText, "label": LabelField},
        widths=_text_only,
        collate=labelled_text,
        head="class",
        objective=Labelling,
        metrics=("accuracy",),
    ),
}


def task_of(config: Any) -> Task:
    """The first task that a model of this config can do."""
    return next(task for task in TASKS.values() if task.head in config.predicts)
