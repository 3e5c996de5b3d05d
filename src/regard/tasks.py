"""Tasks: what a model is trained to do, as data; one literal table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from regard.data.answers import FIRST, IN_PASSAGE, LAST, AnsweredField, AnswerText, windows
from regard.data.batches import IGNORED, Batch
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
from regard.data.flat import Lengths, Rows
from regard.data.images import ClipField, FeatureField, ImageField
from regard.data.joined import PADDING, ChoiceField, ChoiceText, JoinedText
from regard.data.related import SeparateTexts, SimilarityField
from regard.data.streams import MaskedRunningText, RunningText, SpanRunningSource
from regard.data.word_pieces import PieceText, sentence_parts
from regard.data.words import WordText
from regard.objectives import (
    BinaryAnswers,
    Classification,
    ContextSampling,
    Contrastive,
    MaskedTokens,
    NegativeSampling,
    Recall,
    Regression,
    ReplacedTokens,
    SpanAnswers,
    SpanCorruption,
    TeacherForcing,
)

Widths = Callable[[Mapping[str, Lengths]], Mapping[str, Lengths]]
Collate = Callable[[Rows, Mapping[str, int], np.random.Generator], Batch]
# Fields, examples, the data (or None) and the longest text of a model → the pieces of each example.
Pieces = Callable[[Mapping[str, Field], Sequence[Any], Any, int | None], Iterable[list[Any]]]


@dataclass(frozen=True)
class Task:
    """What a model is trained to do, as data. No other code compares the name of a task.

    An example is a row. `widths` gives the length of each axis of a batch from the lengths of the fields, and `collate`
    a batch from rows that are padded to these widths. `pieces` cuts long examples, before they are encoded, into pieces
    that are examples, too.
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
    pieces: Pieces | None = None
    cuts: tuple[str, ...] = ()  # texts that training cuts if they are too long; it leaves out other long examples
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
    return _with_source(rows, "source", widths["source"], next_token(rows, widths, random, "target"))


def captioning(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """Teacher forcing of the caption; the source is an image: pixels (B, H, W, 3), or features or frames (B, cells, D).

    All images have the same size, so only filler rows have padding in the source.
    """
    height = max(int(rows.lengths("image").max()), 1)
    return _with_source(rows, "image", height, next_token(rows, widths, random, "target"))


def _with_source(rows: Rows, name: str, width: int, target: Batch) -> Batch:
    return Batch(
        fields={"source": rows.padded(name, width), **target.fields},
        real={"source": rows.real(name, width), **target.real},
        counts={"source": int(rows.lengths(name).sum()), **target.counts},
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


def answered(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A question with a passage, and the places of the first and the last token of the answer, (B, 2).

    The place 0 is "no answer". `allowed` (B, T) has the places that may be predicted.
    """
    tokens, segments, marks = rows.padded("text", widths["text"]).unbind(-1)  # (B, T) each
    real = rows.real("text", widths["text"])
    allowed = (marks & IN_PASSAGE) > 0
    allowed[:, 0] = True
    targets = torch.stack([((marks & mark) > 0).int().argmax(1) for mark in (FIRST, LAST)], 1)
    filler = torch.from_numpy(rows.lengths("text") == 0)
    return Batch(
        fields={
            "tokens": tokens,
            "segments": segments,
            "allowed": allowed,
            "targets": targets.masked_fill(filler[:, None], IGNORED),
        },
        real={"tokens": real},
        counts={"tokens": int(real.sum()), "targets": int((~filler).sum())},
    )


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


def tagged(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """A text that is read whole, and a tag for each of its words: the target at the first token of the word.

    The other tokens have no target (see `PieceText`). `words` (B, T) has the places of the first tokens.
    """
    numbers, real = rows.padded("text", widths["text"]), rows.real("text", widths["text"])
    first = real & (numbers.view(*real.shape, -1) >= 0).all(-1)  # (B, T)
    tags = rows.padded("tags", widths["text"], IGNORED).gather(1, (first.cumsum(1) - 1).clamp_min(0))
    return Batch(
        fields={
            "tokens": torch.where(numbers < 0, ~numbers, numbers),
            "targets": tags.masked_fill(~first, IGNORED),
            "words": first,
        },
        real={"tokens": real},
        counts={"tokens": int(real.sum()), "targets": int(first.sum())},
    )


def related_texts(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
    """Pairs of texts that are read one by one; the target of a pair is its place in the batch.

    `tokens` (B·C, T) has the C texts of the first pair, then those of the second … Negatives of a pair are the second
    texts of the other pairs and the third texts of all pairs, `negatives` (B, (C−1)·B), but no pair that shares a text
    with this one, and no third text that is one of its own two. The target of a pair without negatives, and of one
    whose texts do not belong together, is IGNORED. Rows of one text alone, (T,), have no targets.
    """
    columns = rows.padded("text", widths["text"], PADDING)  # (B, T, C)
    if columns.dim() == 2:
        return whole_text(rows, widths, random)
    texts = columns.transpose(1, 2).flatten(0, 1)  # (B·C, T)
    count, (number, together) = len(rows), rows.padded("number", 2, math.nan).unbind(1)
    real = texts != PADDING
    _, same = np.unique(texts.numpy(), axis=0, return_inverse=True)  # equal texts have the same number
    first, second, *third = torch.from_numpy(same.reshape(count, -1)).T
    _, there, *given = real.any(1).reshape(count, -1).T
    pairs = [(one, other) for one in (first, second) for other in (first, second)]
    shared = torch.stack([one[:, None] == other for one, other in pairs]).any(0)  # (B, B)
    hard = [there & (one != first[:, None]) & (one != second[:, None]) for one, there in zip(third, given)]
    negatives = torch.cat([there & ~shared, *hard], 1)  # (B, (C−1)·B)
    targets = torch.arange(count).masked_fill(~(negatives.any(1) & (together > 0)), IGNORED)
    return Batch(
        fields={"tokens": texts.masked_fill(~real, 0), "targets": targets, "negatives": negatives, "numbers": number},
        real={"tokens": real},
        counts={"tokens": int(real.sum()), "targets": int((targets != IGNORED).sum())},
    )


def joined(target: str) -> Collate:
    """The function that makes batches of texts of several parts, with segments, and one target for each row.

    A row may have several texts: the tensors are then (B, T, texts), and segments are PADDING where a text has ended.
    """
    whole = labelled("text", target)

    def collated(rows: Rows, widths: Mapping[str, int], random: np.random.Generator) -> Batch:
        batch = whole(rows, widths, random)
        tokens, segments = rows.padded("text", widths["text"], PADDING).unbind(-1)
        segments = segments.clamp_min(0) if segments.dim() == 2 else segments
        return replace(batch, fields={**batch.fields, "tokens": tokens.clamp_min(0), "segments": segments})

    return collated


def _axes(*read: str, predicted: str = "") -> Widths:
    """The axes of a batch: texts that are read whole, and a text that is predicted.

    Teacher forcing needs one place fewer than the predicted text has tokens, special tokens included.
    """
    less = {predicted: 1} if predicted else {}
    return lambda lengths: {name: np.maximum(lengths[name] - less.get(name, 0), 0) for name in (*read, *less)}


TRANSLATE = Task(
    name="translate",
    verb="translate",
    fields={"source": InputText, "target": TargetText},
    widths=_axes("source", predicted="target"),
    collate=translation,
    head="target",
    objective=TeacherForcing,
    metrics=("bleu",),
)
CAPTION = replace(
    TRANSLATE,
    name="caption",
    verb="caption",
    fields={"image": ImageField, "target": TargetText},
    widths=_axes(predicted="target"),
    collate=captioning,
    metrics=("bleu4", "cider"),
)
LANGUAGE = Task(
    name="language",
    verb="generate",
    fields={"text": TargetText},
    widths=_axes(predicted="text"),
    collate=next_token,
    head="next",
    objective=TeacherForcing,
    metrics=("perplexity",),
)
TWO_WAY = replace(LANGUAGE, name="two-way language", verb="fill", head="both")
MASKED = Task(
    name="masked",
    verb="fill",
    fields={"text": MaskedText},
    widths=_axes("text"),
    collate=whole_text,
    head="masked",
    objective=MaskedTokens,
    metrics=("perplexity",),
)
REPLACED = replace(
    MASKED,
    name="replaced",
    verb="score",
    collate=with_draws,
    head="replaced",
    objective=ReplacedTokens,
    metrics=("accuracy", "replaced_precision", "replaced_recall"),
)
INFILL = replace(
    TRANSLATE,
    name="infill",
    verb="fill",
    fields={"source": SpanSource, "target": SpanTarget},
    objective=SpanCorruption,
    metrics=("perplexity",),
    made=("target",),
)
CLASSIFY = Task(
    name="classify",
    verb="classify",
    fields={"text": InputText, "label": LabelField},
    widths=_axes("text"),
    collate=labelled("text", "label"),
    head="class",
    objective=Classification,
    metrics=("accuracy",),
    cuts=("text",),
)
RATE = replace(
    CLASSIFY,
    name="rate",
    fields={"text": InputText, "number": NumberField},
    collate=labelled("text", "number"),
    head="number",
    objective=Regression,
    metrics=("mse", "pearson", "spearman"),
)
RECOGNISE = replace(
    CLASSIFY,
    name="recognise",
    verb="eval",
    fields={"values": NumbersField, "label": LabelField},
    widths=_axes("values"),
    collate=labelled("values", "label"),
    cuts=(),
)
# By name. If a model can do several tasks, `task_of` gives the first one, so their order matters.
TASKS: dict[str, Task] = {
    each.name: each
    for each in (
        TRANSLATE,
        replace(
            TRANSLATE,
            name="aligned",
            fields={**TRANSLATE.fields, "alignment": LinkField},
            collate=aligned_translation,
            metrics=("bleu", "alignment"),
        ),
        CAPTION,
        replace(CAPTION, name="caption-features", fields={"image": FeatureField, "target": TargetText}),
        replace(
            CAPTION,
            name="caption-clip",
            fields={"image": ClipField, "target": TargetText},
            metrics=("exact", "bleu4"),
        ),
        LANGUAGE,
        replace(LANGUAGE, name="running", fields={"text": RunningText}),
        TWO_WAY,
        replace(TWO_WAY, name="two-way running", fields={"text": RunningText}),
        MASKED,
        REPLACED,
        replace(MASKED, name="masked running", fields={"text": MaskedRunningText}),
        replace(REPLACED, name="replaced running", fields={"text": MaskedRunningText}),
        INFILL,
        replace(INFILL, name="infill running", fields={"source": SpanRunningSource, "target": SpanTarget}),
        replace(
            MASKED,
            name="context",
            fields={"text": TargetText},
            collate=words_in_context,
            head="context",
            objective=ContextSampling,
            metrics=(),
        ),
        CLASSIFY,
        replace(CLASSIFY, name="pair", fields={"text": JoinedText, "label": LabelField}, collate=joined("label")),
        replace(
            CLASSIFY,
            name="choice",
            fields={"text": ChoiceText, "label": ChoiceField},
            collate=joined("label"),
            head="choice",
        ),
        replace(
            CLASSIFY,
            name="tag",
            verb="tag",
            fields={"text": PieceText, "tags": EntityTags},
            collate=tagged,
            head="tag",
            metrics=("entity_f1", "accuracy"),
            pieces=sentence_parts,
            cuts=(),
        ),
        replace(
            CLASSIFY,
            name="recall",
            verb="eval",
            fields={"text": InputText, "tags": TagsField},
            collate=labelled("text", "tags", places=True),
            head="tag",
            objective=Recall,
            metrics=("recalled",),
            cuts=(),
        ),
        RECOGNISE,
        replace(
            RECOGNISE,
            name="frames",
            fields={"values": NumbersField, "tags": TagsField},
            collate=labelled("values", "tags", places=True),
            head="tag",
        ),
        replace(
            RECOGNISE,
            name="regress",
            fields={"values": NumbersField, "number": NumberField},
            collate=labelled("values", "number"),
            head="number",
            objective=Regression,
            metrics=("mse",),
        ),
        replace(
            RECOGNISE,
            name="keys",
            fields={"values": NumbersField, "keys": NumbersField},
            collate=labelled("values", "keys", places=True),
            head="keys",
            objective=BinaryAnswers,
            metrics=(),
        ),
        replace(
            CLASSIFY,
            name="labels",
            fields={"text": InputText, "labels": LabelsField},
            collate=labelled("text", "labels"),
            head="labels",
            objective=BinaryAnswers,
            metrics=("f1_micro", "f1_macro"),
        ),
        RATE,
        replace(
            RATE,
            name="similarity",
            verb="similarity",
            fields={"text": JoinedText, "number": NumberField},
            collate=joined("number"),
            metrics=("pearson", "spearman"),
        ),
        replace(
            CLASSIFY,
            name="answer",
            verb="answer",
            fields={"text": AnswerText, "answered": AnsweredField},
            collate=answered,
            head="span",
            objective=SpanAnswers,
            metrics=("em", "answer_f1"),
            pieces=windows,
            cuts=(),
        ),
        replace(
            CLASSIFY,
            name="embed",
            verb="embed",
            fields={"text": SeparateTexts, "number": SimilarityField},
            collate=related_texts,
            head="vector",
            objective=Contrastive,
            metrics=("spearman", "accuracy"),
        ),
        replace(
            MASKED,
            name="words",
            verb="neighbours",
            fields={"text": WordText},
            head="words",
            objective=NegativeSampling,
            metrics=(),
            validates=False,
        ),
    )
}


def reads_inputs(config: Any, task: Task) -> bool:
    """Whether a model of this config can read the inputs of a task.

    Some have numbers in place of tokens. Texts of several parts, or several texts, have no words with characters.
    """
    if config.reads_words and any(issubclass(kind, JoinedText | SeparateTexts) for kind in task.fields.values()):
        return False
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
