"""The tasks, one literal table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from regard.data.batches import IGNORED, Batch
from regard.data.fields import InputText, LabelField, LinkField, MaskedText, TargetText
from regard.data.flat import Lengths, Rows
from regard.data.streams import RunningText
from regard.objectives import Classification, MaskedTokens, TeacherForcing
from regard.tasks.task import Task


def next_token(rows: Rows, widths: Mapping[str, int], random: np.random.Generator, name: str = "text") -> Batch:
    """Teacher forcing: the model reads all tokens of a text but the last and predicts all but the first."""
    count = int((rows.lengths(name) - 1).clip(0).sum())
    return Batch(
        fields={
            "tokens": rows.padded(name, widths[name], last=1),
            "targets": rows.padded(name, widths[name], IGNORED, first=1),
        },
        real={"tokens": rows.real(name, widths[name], last=1)},
        counts={"tokens": count, "targets": count},
    )


def translation(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """Teacher forcing of the target; the source is read whole."""
    target = next_token(rows, widths, random, "target")
    return Batch(
        fields={"source": rows.padded("source", widths["source"]), **target.fields},
        real={"source": rows.real("source", widths["source"]), **target.real},
        counts={"source": int(rows.lengths("source").sum()), **target.counts},
    )


def aligned_translation(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A translation, and gold links: how the attention of each predicted token should spread over the source.

    Rows without links between tokens (``TokenLinks``) give a translation alone.
    """
    batch = translation(rows, widths, random)
    if not rows.has("token_links"):
        return batch
    row = np.repeat(np.arange(len(rows)), rows.lengths("token_links") // 2)
    target, source = torch.from_numpy(rows.flat("token_links")).reshape(-1, 2).unbind(1)
    gold = torch.zeros(len(rows), widths["target"], widths["source"])
    gold[torch.from_numpy(row), target, source] = 1.0
    total = gold.sum(-1, keepdim=True)  # (B, T, 1)
    fields = {**batch.fields, "alignment": gold / total.clamp_min(1)}
    return Batch(fields, batch.real, {**batch.counts, "alignment": int((total > 0).sum())})


def whole_text(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole. A corrupted text has targets; one without them has nothing to predict."""
    fields = {"tokens": rows.padded("text", widths["text"])}
    counts = {"tokens": int(rows.lengths("text").sum()), "targets": 0}
    if rows.has("targets"):
        fields["targets"] = rows.padded("targets", widths["text"], IGNORED)
        counts["targets"] = int((fields["targets"] != IGNORED).sum())
    return Batch(fields, {"tokens": rows.real("text", widths["text"])}, counts)


def labelled_text(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole, and its class."""
    text = whole_text(rows, widths, random)
    fields = {**text.fields, "targets": rows.padded("label", 1, IGNORED)[:, 0]}
    return Batch(fields, text.real, {**text.counts, "targets": int(rows.lengths("label").sum())})


def _one_less(name: str) -> Any:
    """The widths of teacher forcing: one place fewer than the text has tokens, special tokens included."""
    return lambda lengths: {**lengths, name: np.maximum(lengths[name] - 1, 0)}


def _two_texts(lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
    return {"source": lengths["source"], "target": np.maximum(lengths["target"] - 1, 0)}


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
    "aligned": Task(
        name="aligned",
        verb="translate",
        fields={"source": InputText, "target": TargetText, "alignment": LinkField},
        widths=_two_texts,
        collate=aligned_translation,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu", "alignment"),
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
        objective=Classification,
        metrics=("accuracy",),
    ),
}


def task_of(config: Any) -> Task:
    """The first task that a model of this config can do."""
    return next(task for task in TASKS.values() if task.head in config.predicts)
