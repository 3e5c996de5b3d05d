"""Heads of public checkpoints: the classes of `transformers` that have them; their settings and tensors, and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.entities import names_entities, to_iob2
from regard.errors import UserError
from regard.heads import (
    HEADS,
    ChoiceHeadConfig,
    ClassHeadConfig,
    LabelsHeadConfig,
    NumberHeadConfig,
    SpanHeadConfig,
    TagHeadConfig,
)
from regard.pretrained.weight_table import WeightEntry, entry, weight_and_bias

if TYPE_CHECKING:
    from regard.pretrained.checkpoint_type import ConfigReader

LABELS, LABEL_IDS, PROBLEM, THRESHOLD = "id2label", "label2id", "problem_type", "threshold"
OUR_LABELS = "regard_labels"  # our names of the classes, where id2label has others, which `transformers` needs
TASK = "regard_task"  # our name of the task, where several have the same head: a class of a text, or of a pair
ONE_LABEL, NUMBER, SEVERAL_LABELS = "single_label_classification", "regression", "multi_label_classification"
MOST_LABELS = 1_000_000  # classes whose names are made up; more would take gigabytes before the weights are compared
# The settings of a config.json that belong to a head, and not to the body.
HEAD_SETTINGS = (LABELS, LABEL_IDS, OUR_LABELS, PROBLEM, THRESHOLD, TASK, "num_labels")


@dataclass(frozen=True)
class PublicHead:
    """A head of a public type: the class of `transformers` that has it, and how settings and tensors map to ours."""

    architecture: str
    config: Any  # our head, with the settings that all heads of this class have
    weights: tuple[WeightEntry, ...]  # our names are those inside the head
    dropout: tuple[str, ...] = ()  # their names of the dropout: the first one that a file has counts
    problem: str = ""  # the problem_type, for a class that has one of several heads; empty: it has one head
    outputs: int = 0  # the number of labels, for a class whose head always has so many; 0: any number
    expects: Mapping[str, Any] = field(default_factory=dict)  # settings that change the outputs: the value that is read
    reads_eos: bool = False  # whether it reads the state at eos, which the tokenizer must then add
    prefix: str = ""  # of the body's tensors in files with this head, if other files of the type have none

    @property
    def names(self) -> frozenset[str]:
        """The names of its tensors."""
        return frozenset(name for entry in self.weights for name in entry.theirs)

    def is_in(self, settings: Mapping[str, Any], names: frozenset[str], path: object) -> bool:
        """Whether a checkpoint with these settings and tensors has this head."""
        classes = settings.get("architectures") or [self.architecture]
        if not isinstance(classes, list):
            raise UserError(f'{path}: architectures={classes!s:.60}: give a list, such as ["{self.architecture}"].')
        if not self.names <= names or self.architecture not in classes:
            return False
        return not self.problem or self.problem == problem_type(settings, path)

    def read_config(self, reader: ConfigReader) -> Any:
        """Our settings of the head, from a config.json."""
        for name, value in self.expects.items():
            if (stated := reader.get(name, value)) != value:
                raise UserError(f"{reader.path}: {name}={stated!s:.40}: {self.architecture} is read only with {value}.")
        dropout = next((name for name in self.dropout if reader.get(name) is not None), None)
        found: dict[str, Any] = {"dropout": reader.fraction(dropout, 0.0) if dropout else 0.0}
        if "labels" in _settings(self.config):
            found["labels"] = len(label_names(reader.settings, reader.path))
        if THRESHOLD in _settings(self.config) and reader.get(THRESHOLD) is not None:
            found[THRESHOLD] = reader.number(THRESHOLD)
        return replace(self.config, **found)

    def write_config(self, head: Any, kept: Mapping[str, Any]) -> dict[str, Any]:
        """Their settings. ``kept`` are those of the original checkpoint; its names of labels stay if they fit."""
        if self.reads_eos and kept.get("eos_token_id", 0) is None:
            why = "reads the state at eos, with which this tokenizer ends no text"
            raise UserError(
                f"{self.architecture} {why}; start from a public checkpoint (from=DIR), whose tokenizer does."
            )
        written = {
            "architectures": [self.architecture],
            **dict.fromkeys(self.dropout[:1], head.dropout),
            **self.expects,
        }
        written |= {PROBLEM: self.problem} if self.problem else {}
        written |= {THRESHOLD: head.threshold} if THRESHOLD in _settings(head) else {}
        if self.outputs and len(label_names(kept, "config.json")) != self.outputs:
            written |= label_settings(tuple(f"LABEL_{number}" for number in range(self.outputs)))
        return written

    def in_file(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names that they have in files with this head."""
        return {name if name in self.names else self.prefix + name: tensor for name, tensor in tensors.items()}

    def unsupported(self, head: Any) -> dict[str, str]:
        """The settings of a head of ours, as name=value, that this head cannot have, and those that it has instead."""
        if type(head) is not type(self.config):
            return {f"head={next((name for name, kind in HEADS.items() if kind is type(head)), head.predicts)}": ""}
        differ = [name for name in ("pool", "hidden", "inner", "bias") if name in _settings(head)]
        values = [(name, getattr(head, name), getattr(self.config, name)) for name in differ]
        return {f"head.{name}={ours}": f"head.{name}={theirs}" for name, ours, theirs in values if ours != theirs}


def _settings(head: Any) -> set[str]:
    return {one.name for one in fields(head)}


def text_heads(
    name: str, hidden: str, out: str, activation: str, *dropout: str, pool: str = "first"
) -> dict[str, PublicHead]:
    """The heads of …ForSequenceClassification: classes, labels, or a number.

    `hidden` and `out` are their names of the two layers; without a hidden layer, the other one has no bias.
    """
    if hidden:
        weights = (*weight_and_bias(hidden, "hidden"), *weight_and_bias(out, "out"))
    else:
        weights = (entry(f"{out}.weight", "out.weight"),)
    kinds: dict[str, Any] = {ONE_LABEL: ClassHeadConfig, NUMBER: NumberHeadConfig, SEVERAL_LABELS: LabelsHeadConfig}
    return {
        kind.predicts: PublicHead(
            f"{name}ForSequenceClassification",
            kind(pool=pool, hidden=activation, bias=bool(hidden)),
            weights,
            dropout,
            problem,
            outputs=1 if problem == NUMBER else 0,
        )
        for problem, kind in kinds.items()
    }


def token_heads(name: str, *dropout: str) -> dict[str, PublicHead]:
    """The heads that read every token: …ForTokenClassification and …ForQuestionAnswering."""
    tags, spans = (tuple(weight_and_bias(theirs, "out")) for theirs in ("classifier", "qa_outputs"))
    return {
        "tag": PublicHead(f"{name}ForTokenClassification", TagHeadConfig(), tags, dropout),
        "span": PublicHead(f"{name}ForQuestionAnswering", SpanHeadConfig(), spans, outputs=2),
    }


def choice_head(
    name: str, hidden: str, activation: str, *dropout: str, expects: Mapping[str, Any] = {}
) -> dict[str, PublicHead]:
    """The head of …ForMultipleChoice; `hidden` is their name of the first of its two layers."""
    config: Any = ChoiceHeadConfig
    return {
        "choice": PublicHead(
            f"{name}ForMultipleChoice",
            config(pool="first", hidden=activation, bias=True),
            (*weight_and_bias(hidden, "hidden"), *weight_and_bias("classifier", "out")),
            dropout,
            expects=expects,
        )
    }


def double_heads(name: str) -> dict[str, PublicHead]:
    """The head of …DoubleHeadsModel: a logit for each choice, beside a language model that is the tied embedding."""
    summary = {"type": "cls_index", "use_proj": True, "proj_to_labels": True, "activation": None}
    return {
        "choice": PublicHead(
            f"{name}DoubleHeadsModel",
            ChoiceHeadConfig(pool="last", hidden="none", bias=True),
            tuple(weight_and_bias("multiple_choice_head.summary", "out")),
            ("summary_first_dropout",),
            outputs=1,
            expects={**{f"summary_{part}": value for part, value in summary.items()}, "tie_word_embeddings": True},
        )
    }


def problem_type(settings: Mapping[str, Any], path: object) -> str:
    """What the head of …ForSequenceClassification predicts; if the file does not say, one label is a number."""
    labels = len(label_names(settings, path))
    found = settings.get(PROBLEM)
    if found not in (None, ONE_LABEL, NUMBER, SEVERAL_LABELS):
        known = f"{ONE_LABEL}, {SEVERAL_LABELS} and {NUMBER}"
        raise UserError(f"{path}: {PROBLEM}={found!s:.60}: is not supported, only {known} are.")
    if (found == NUMBER and labels != 1) or (found == ONE_LABEL and labels == 1):
        wanted = "one number per text, so one label" if found == NUMBER else "one of several labels"
        raise UserError(f"{path}: {PROBLEM}={found}, but {LABELS} has {labels}: this predicts {wanted}; correct them.")
    return str(found or (NUMBER if labels == 1 else ONE_LABEL))


def label_names(settings: Mapping[str, Any], path: object) -> tuple[str, ...]:
    """The names of the classes in a config.json, in the order of their numbers; without any, as `transformers` does."""
    named, count = settings.get(LABELS), settings.get("num_labels")
    if _are_iob2(named, ours := settings.get(OUR_LABELS)):
        named = ours
    if named:
        numbers = [str(number) for number in range(len(named))] if isinstance(named, dict) else []
        if not numbers or set(named) != set(numbers):
            raise UserError(f"{path}: {LABELS} has no name for each number from 0 on; number its classes 0, 1, 2 …")
        if not all(isinstance(name, str | int) for name in named.values()):
            raise UserError(f"{path}: {LABELS} has a class name that is no text; give each class a name.")
        return tuple(str(named[number]) for number in numbers)
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_LABELS):
        raise UserError(f"{path}: num_labels={count!s:.20}: give the number of classes, at most {MOST_LABELS:,}.")
    return tuple(f"LABEL_{number}" for number in range(2 if count is None else count))


def label_settings(names: tuple[str, ...], tags: bool = False) -> dict[str, Any]:
    """The settings of a config.json that name the classes.

    `transformers` groups the tags of entities only in IOB2, so classes that are tags of BIOES get the names of IOB2
    there: those of B and S the same name, and those of I and E. The class with the highest logit stays the same.
    """
    shown = [to_iob2(name) for name in names] if tags and names_entities(names) else list(names)
    ids = {name: at for at, name in enumerate(names)}
    settings: dict[str, Any] = {LABELS: _numbered(shown), LABEL_IDS: {name: ids[name] for name in shown}}
    return settings if shown == list(names) else {**settings, OUR_LABELS: _numbered(names)}


def _numbered(names: Iterable[str]) -> dict[str, str]:
    return {str(at): name for at, name in enumerate(names)}


def _are_iob2(named: object, ours: object) -> bool:
    """Whether names of classes are those that `label_settings` writes for these tags: a tool may have changed them."""
    if not isinstance(ours, dict) or not all(isinstance(name, str) for name in ours.values()):
        return False
    return named == {number: to_iob2(name) for number, name in ours.items()}
