"""Tasks: what a model is trained to do, as data; one literal table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from regard.data.batches import IGNORED, Batch, one_row
from regard.data.fields import (
    EntityTags,
    Field,
    InputText,
    LabelField,
    LabelsField,
    LinkField,
    MaskedText,
    NumberField,
    NumbersField,
    SpanSource,
    SpanTarget,
    TagsField,
    TargetText,
)
from regard.data.flat import Columns, Lengths, Row, Rows
from regard.data.images import ClipField, FeatureField, ImageField
from regard.data.streams import MaskedRunningText, RunningText, SpanRunningSource
from regard.data.words import WordText
from regard.objectives import (
    BinaryAnswers,
    Classification,
    ContextSampling,
    MaskedTokens,
    NegativeSampling,
    Recall,
    Regression,
    ReplacedTokens,
    SpanCorruption,
    TeacherForcing,
)

Widths = Callable[[Mapping[str, Lengths]], Mapping[str, Lengths]]
Collate = Callable[[Rows, Mapping[str, int], np.random.Generator], Batch]


@dataclass(frozen=True)
class Task:
    """What a model is trained to do, as data. No other code compares the name of a task.

    `rows` gives the rows of an example (mostly one), `widths` the length of each axis of a batch from the lengths of
    the fields, and `collate` a batch from rows that are padded to these widths.
    """

    name: str
    verb: str  # the command that uses a trained model
    fields: Mapping[str, type[Field]]  # the columns that it needs, and what each becomes
    widths: Widths
    collate: Collate
    head: str  # what the model must predict; the configs of models list in `predicts` what they can
    objective: type[Any]  # what is minimised unless a recipe names another objective, and what the loss is measured by
    metrics: tuple[str, ...]  # what is reported beside the loss unless a recipe has others
    made: tuple[str, ...] = ()  # the fields that are made by the corruption of an objective, see `Objective.makes`
    rows: Callable[[Columns, int], list[Row]] = one_row
    validates: bool = True  # whether steps are evaluated on validation examples; if not, the newest step is the best

    def __repr__(self) -> str:
        return f"<Task {self.name}: {', '.join(self.fields)}>"


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


def captioning(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """Teacher forcing of the caption; the source is an image: pixels (B, H, W, 3), or features or frames (B, cells, D).

    All images have the same size, so only filler rows have padding in the source.
    """
    target = next_token(rows, widths, random, "target")
    height = max(int(rows.lengths("image").max()), 1)
    return Batch(
        fields={"source": rows.padded("image", height), **target.fields},
        real={"source": rows.real("image", height), **target.real},
        counts={"source": int(rows.lengths("image").sum()), **target.counts},
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
    """A text that is read whole. A corrupted text has targets; one without them has nothing to predict.

    A text of two parts also has segments, and one target for the question about its parts (`SentencePairs`).
    """
    fields = {"tokens": rows.padded("text", widths["text"])}
    counts = {"tokens": int(rows.lengths("text").sum()), "targets": 0}
    if rows.has("targets"):
        fields["targets"] = rows.padded("targets", widths["text"], IGNORED)
        counts["targets"] = int((fields["targets"] != IGNORED).sum())
    if rows.has("next"):
        fields["segments"] = rows.padded("segments", widths["text"])
        fields["next"] = rows.padded("next", 1, IGNORED)[:, 0]
        counts["next"] = int((fields["next"] != IGNORED).sum())
    return Batch(fields, {"tokens": rows.real("text", widths["text"])}, counts)


def with_draws(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole, and the number by which the token of each masked place is sampled."""
    batch = whole_text(rows, widths, random)
    draws = {"draws": rows.padded("draws", widths["text"])} if rows.has("draws") else {}
    return replace(batch, fields={**batch.fields, **draws})


def words_in_context(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole; the target of each place is its own word, without bos and eos."""
    tokens, real = rows.padded("text", widths["text"]), rows.real("text", widths["text"])
    place, length = torch.arange(widths["text"]), real.sum(1, keepdim=True)
    targets = tokens.masked_fill((place < 1) | (place >= length - 1), IGNORED)
    counts = {"tokens": int(real.sum()), "targets": int((targets != IGNORED).sum())}
    return Batch({"tokens": tokens, "targets": targets}, {"tokens": real}, counts)


def labelled(read: str, target: str, places: bool = False) -> Collate:
    """The function that makes batches of a text or sequence that is read whole, and its target.

    With `places`, there is a target for each place. A target that is IGNORED, or NaN, counts for nothing.
    """

    def collated(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
        inputs, width = rows.padded(read, widths[read]), widths[read] if places else 1
        fill = IGNORED if rows.whole(target) else math.nan
        targets = rows.padded(target, width, fill)
        return Batch(
            fields={"tokens": inputs, "targets": targets if places else targets[:, 0]},
            real={"tokens": rows.real(read, widths[read])},
            counts={"tokens": int(rows.lengths(read).sum()), "targets": int(rows.lengths(target).sum())},
        )

    return collated


def _axes(*read: str, predicted: str = "") -> Widths:
    """The axes of a batch: texts that are read whole, and a text that is predicted.

    Teacher forcing needs one place fewer than the predicted text has tokens, special tokens included.
    """
    less = {predicted: 1} if predicted else {}
    return lambda lengths: {name: np.maximum(lengths[name] - less.get(name, 0), 0) for name in (*read, *less)}


TASKS: dict[str, Task] = {
    "translate": Task(
        name="translate",
        verb="translate",
        fields={"source": InputText, "target": TargetText},
        widths=_axes("source", predicted="target"),
        collate=translation,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu",),
    ),
    "aligned": Task(
        name="aligned",
        verb="translate",
        fields={"source": InputText, "target": TargetText, "alignment": LinkField},
        widths=_axes("source", predicted="target"),
        collate=aligned_translation,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu", "alignment"),
    ),
    "caption": Task(
        name="caption",
        verb="caption",
        fields={"image": ImageField, "target": TargetText},
        widths=_axes(predicted="target"),
        collate=captioning,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu4", "cider"),
    ),
    "caption-features": Task(
        name="caption-features",
        verb="caption",
        fields={"image": FeatureField, "target": TargetText},
        widths=_axes(predicted="target"),
        collate=captioning,
        head="target",
        objective=TeacherForcing,
        metrics=("bleu4", "cider"),
    ),
    "caption-clip": Task(
        name="caption-clip",
        verb="caption",
        fields={"image": ClipField, "target": TargetText},
        widths=_axes(predicted="target"),
        collate=captioning,
        head="target",
        objective=TeacherForcing,
        metrics=("exact", "bleu4"),
    ),
    "language": Task(
        name="language",
        verb="generate",
        fields={"text": TargetText},
        widths=_axes(predicted="text"),
        collate=next_token,
        head="next",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "running": Task(
        name="running",
        verb="generate",
        fields={"text": RunningText},
        widths=_axes(predicted="text"),
        collate=next_token,
        head="next",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "two-way language": Task(
        name="two-way language",
        verb="fill",
        fields={"text": TargetText},
        widths=_axes(predicted="text"),
        collate=next_token,
        head="both",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "two-way running": Task(
        name="two-way running",
        verb="fill",
        fields={"text": RunningText},
        widths=_axes(predicted="text"),
        collate=next_token,
        head="both",
        objective=TeacherForcing,
        metrics=("perplexity",),
    ),
    "masked": Task(
        name="masked",
        verb="fill",
        fields={"text": MaskedText},
        widths=_axes("text"),
        collate=whole_text,
        head="masked",
        objective=MaskedTokens,
        metrics=("perplexity",),
    ),
    "replaced": Task(
        name="replaced",
        verb="score",
        fields={"text": MaskedText},
        widths=_axes("text"),
        collate=with_draws,
        head="replaced",
        objective=ReplacedTokens,
        metrics=("accuracy", "replaced_precision", "replaced_recall"),
    ),
    "masked running": Task(
        name="masked running",
        verb="fill",
        fields={"text": MaskedRunningText},
        widths=_axes("text"),
        collate=whole_text,
        head="masked",
        objective=MaskedTokens,
        metrics=("perplexity",),
    ),
    "replaced running": Task(
        name="replaced running",
        verb="score",
        fields={"text": MaskedRunningText},
        widths=_axes("text"),
        collate=with_draws,
        head="replaced",
        objective=ReplacedTokens,
        metrics=("accuracy", "replaced_precision", "replaced_recall"),
    ),
    "infill": Task(
        name="infill",
        verb="fill",
        fields={"source": SpanSource, "target": SpanTarget},
        widths=_axes("source", predicted="target"),
        collate=translation,
        head="target",
        objective=SpanCorruption,
        metrics=("perplexity",),
        made=("target",),
    ),
    "infill running": Task(
        name="infill running",
        verb="fill",
        fields={"source": SpanRunningSource, "target": SpanTarget},
        widths=_axes("source", predicted="target"),
        collate=translation,
        head="target",
        objective=SpanCorruption,
        metrics=("perplexity",),
        made=("target",),
    ),
    "context": Task(
        name="context",
        verb="fill",
        fields={"text": TargetText},
        widths=_axes("text"),
        collate=words_in_context,
        head="context",
        objective=ContextSampling,
        metrics=(),
    ),
    "classify": Task(
        name="classify",
        verb="classify",
        fields={"text": InputText, "label": LabelField},
        widths=_axes("text"),
        collate=labelled("text", "label"),
        head="class",
        objective=Classification,
        metrics=("accuracy",),
    ),
    "tag": Task(
        name="tag",
        verb="tag",
        fields={"text": InputText, "tags": EntityTags},
        widths=_axes("text"),
        collate=labelled("text", "tags", places=True),
        head="tag",
        objective=Classification,
        metrics=("entity_f1", "accuracy"),
    ),
    "recall": Task(
        name="recall",
        verb="eval",
        fields={"text": InputText, "tags": TagsField},
        widths=_axes("text"),
        collate=labelled("text", "tags", places=True),
        head="tag",
        objective=Recall,
        metrics=("recalled",),
    ),
    "recognise": Task(
        name="recognise",
        verb="eval",
        fields={"values": NumbersField, "label": LabelField},
        widths=_axes("values"),
        collate=labelled("values", "label"),
        head="class",
        objective=Classification,
        metrics=("accuracy",),
    ),
    "frames": Task(
        name="frames",
        verb="eval",
        fields={"values": NumbersField, "tags": TagsField},
        widths=_axes("values"),
        collate=labelled("values", "tags", places=True),
        head="tag",
        objective=Classification,
        metrics=("accuracy",),
    ),
    "regress": Task(
        name="regress",
        verb="eval",
        fields={"values": NumbersField, "number": NumberField},
        widths=_axes("values"),
        collate=labelled("values", "number"),
        head="number",
        objective=Regression,
        metrics=("mse",),
    ),
    "keys": Task(
        name="keys",
        verb="eval",
        fields={"values": NumbersField, "keys": NumbersField},
        widths=_axes("values"),
        collate=labelled("values", "keys", places=True),
        head="keys",
        objective=BinaryAnswers,
        metrics=(),
    ),
    "labels": Task(
        name="labels",
        verb="classify",
        fields={"text": InputText, "labels": LabelsField},
        widths=_axes("text"),
        collate=labelled("text", "labels"),
        head="labels",
        objective=BinaryAnswers,
        metrics=("f1_micro", "f1_macro"),
    ),
    "rate": Task(
        name="rate",
        verb="classify",
        fields={"text": InputText, "number": NumberField},
        widths=_axes("text"),
        collate=labelled("text", "number"),
        head="number",
        objective=Regression,
        metrics=("mse", "pearson", "spearman"),
    ),
    "words": Task(
        name="words",
        verb="neighbours",
        fields={"text": WordText},
        widths=_axes("text"),
        collate=whole_text,
        head="words",
        objective=NegativeSampling,
        metrics=(),
        validates=False,
    ),
}


def reads_inputs(config: Any, task: Task) -> bool:
    """Whether a model of this config can read the inputs of a task: some have numbers in place of tokens."""
    return "values" not in task.fields or bool(config.takes_numbers)


def fits(config: Any, task: Task) -> bool:
    """Whether a model of this config (or of this class of configs) predicts what a task needs, and reads its inputs."""
    return _predicts(config, task) and reads_inputs(config, task)


def _predicts(config: Any, task: Task) -> bool:
    has_source = not config.reads_source or config.source_field in task.fields
    return task.head in config.predicts and has_source


def task_of(config: Any) -> Task:
    """The first task that a model of this config can do; one of numbers, if the model was built to read numbers."""
    of_numbers = bool(config.numbers)
    return next(each for each in TASKS.values() if _predicts(config, each) and ("values" in each.fields) == of_numbers)
