"""Output layers of public checkpoints that are heads of ours, such as those of BertForSequenceClassification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import UserError
from regard.heads import ClassHeadConfig
from regard.pretrained.weight_table import WeightEntry

LABELS, PROBLEM = "id2label", "problem_type"


@dataclass(frozen=True)
class PublicHead:
    """A head of a public type: the class of `transformers` that has it, and how settings and tensors map to ours."""

    architecture: str
    config: ClassHeadConfig  # with the settings that all heads of this class have
    weights: tuple[WeightEntry, ...]  # our names are those inside the head
    dropout: tuple[str, ...] = ()  # their names of the dropout: the first one that a file has counts

    @property
    def names(self) -> frozenset[str]:
        """The names of its tensors."""
        return frozenset(name for entry in self.weights for name in entry.theirs)

    def is_in(self, settings: Mapping[str, Any], names: frozenset[str]) -> bool:
        """Whether a checkpoint with these settings and tensors has this head."""
        classes = settings.get("architectures") or [self.architecture]
        return self.names <= names and self.architecture in classes

    def read_config(self, settings: Mapping[str, Any], path: object) -> ClassHeadConfig:
        """Our settings, from a config.json. A head that does not predict one class per text raises a UserError."""
        if settings.get(PROBLEM) not in (None, "single_label_classification"):
            raise UserError(f"{path}: {PROBLEM}={settings[PROBLEM]}: is not supported, only one label per text is.")
        labels = label_names(settings)
        if len(labels) < 2:
            raise UserError(f"{path}: a head with one label predicts a number, which is not supported.")
        dropout = [settings[name] for name in self.dropout if settings.get(name) is not None]
        return replace(self.config, labels=len(labels), dropout=float(next(iter(dropout), 0.0)))

    def write_config(self, head: ClassHeadConfig) -> dict[str, Any]:
        """Their settings."""
        return {"architectures": [self.architecture], **dict.fromkeys(self.dropout[:1], head.dropout)}

    def unsupported(self, head: ClassHeadConfig) -> list[str]:
        """The settings of a head of ours, as name=value, that this head cannot have."""
        names = ("pool", "hidden", "bias")
        return [
            f"head.{name}={getattr(head, name)}" for name in names if getattr(head, name) != getattr(self.config, name)
        ]


def label_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the classes in a config.json, in the order of their numbers; without any, as `transformers` does."""
    named = settings.get(LABELS)
    if isinstance(named, dict) and named:
        return tuple(str(named[number]) for number in sorted(named, key=int))
    return tuple(f"LABEL_{number}" for number in range(settings.get("num_labels") or 2))


def label_settings(names: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a config.json that name the classes."""
    return {LABELS: {str(at): name for at, name in enumerate(names)}, "label2id": {n: at for at, n in enumerate(names)}}
