"""Types of public checkpoints: how their settings and the names of their tensors map to ours, in both directions."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from regard.errors import UserError, nearest
from regard.layers.transformer import Shape
from regard.models import BertConfig, GptConfig, HeadedConfig, ModelConfig, TransformerConfig
from regard.pretrained.public_heads import PublicHead
from regard.pretrained.weight_table import WeightEntry

Settings = Mapping[str, Any]  # the content of a config.json
SettingTable = Mapping[str, tuple[str, Any]]  # our setting → their name of it, and its default
ACTIVATIONS = {  # their name → ours; of several names for one of ours, the first is written
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "quick_gelu": "gelu-sigmoid",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


@dataclass(frozen=True)
class CheckpointType:
    """A type of public checkpoint.

    ``settings`` is the table of the settings that differ from ours only in name. ``read_config`` makes our config from
    a config.json and from the names of the tensors (a file without a head is a model without one). ``write_config``
    makes a config.json from our config. ``weight_table`` gives the table of tensor names for a config. All three are of
    the body if the model has one of the ``heads``.
    """

    config: type[ModelConfig]
    settings: SettingTable
    read_config: Callable[[ConfigReader, frozenset[str]], ModelConfig]
    write_config: Callable[[Any], dict[str, Any]]
    weight_table: Callable[[Any], Sequence[WeightEntry]]
    prefix: str = ""  # of the body's tensors; a file that has only the body may leave it out
    head_patterns: tuple[str, ...] = ()  # patterns of the tensors outside the body, which never have the prefix
    ignored: tuple[str, ...] = ()  # patterns of tensors that are not read: constants that old versions saved
    tied_copies: Mapping[str, str] = field(default_factory=dict)  # a tied tensor that files may repeat → its original
    always_tied: Mapping[str, str] = field(default_factory=dict)  # the same, for tensors that no setting can untie
    old_endings: Mapping[str, str] = field(default_factory=dict)  # name endings of older versions → the current ones
    # Constant tensors that it saves, for a config and the names of classes in the original config.json.
    constants: Callable[[Any, Sequence[str]], Mapping[str, Tensor]] = lambda config, classes: {}
    heads: Mapping[str, PublicHead] = field(default_factory=dict)  # by the name of our head
    # Other types of the same model_type, by the names of their classes: those whose models are of another family here.
    variants: Mapping[str, CheckpointType] = field(default_factory=dict)

    def for_classes(self, settings: Settings) -> CheckpointType:
        """The variant whose class a config.json names, or this type."""
        classes = settings.get("architectures")
        named = classes if isinstance(classes, list) else ()  # the heads refuse what is no list
        return next((variant for name, variant in self.variants.items() if name in named), self)

    def for_config(self, config: ModelConfig) -> CheckpointType | None:
        """This type, or the variant, whose models have configs of this class; None: neither."""
        return next((one for one in (self, *self.variants.values()) if type(config) is one.config), None)

    def read_model_config(self, reader: ConfigReader, names: frozenset[str]) -> tuple[ModelConfig, frozenset[str]]:
        """Our config of a checkpoint with these tensors: a body under a head, or a model with its own output layers.

        The names are those of the tensors that the model does not have: a file with a head may still have the output
        layers that its body was pre-trained with, such as BERT's pooler below a tagger.
        """
        head = next((head for head in self.heads.values() if head.is_in(reader.settings, names, reader.path)), None)
        if head is None:
            return self.read_config(reader, names), frozenset()
        found = self.read_config(reader, names - head.names)
        body = without_outputs(found)
        own, used = ({name for one in self.weight_table(config) for name in one.theirs} for config in (found, body))
        return HeadedConfig(body, head.read_config(reader)), frozenset(own - used - head.names)

    def model_weight_table(self, config: ModelConfig) -> list[WeightEntry]:
        """The weight table of a model with or without one of the ``heads``."""
        body, head = config.split()
        if head is None:
            return list(self.weight_table(body))
        entries = (one.with_prefixes("", "body.") for one in self.weight_table(without_outputs(body)))
        return [*entries, *(one.with_prefixes("", "head.") for one in self.heads[head.predicts].weights)]

    def round_trip(self, config: ModelConfig) -> ModelConfig:
        """The config that is read from a checkpoint written with this one. If it differs, the type cannot hold it."""
        names = frozenset(name for one in self.weight_table(config) for name in one.theirs)
        return self.read_config(ConfigReader(Path("config.json"), self.write_config(config)), names)

    def in_file_names(self, error: str) -> str:
        """An error message with the file's names of our settings, cut at the semicolon (without the advice)."""
        problem, _, _ = error.partition(";")
        return re.sub(r"model\.(\w+)", lambda name: self.settings.get(name[1], (name[1], None))[0], problem)

    def with_settings(self, settings: Settings) -> Self:
        """The type with the settings of a config.json applied: if these tie nothing, equal tensors are not copies."""
        return self if settings.get("tie_word_embeddings", True) is not False else replace(self, tied_copies={})

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names of the weight table, for files of every version, without tied copies."""
        found = {}
        for name, tensor in tensors.items():
            for old, new in self.old_endings.items():
                name = name.removesuffix(old) + new if name.endswith(old) else name
            found[name] = tensor
        if self.prefix and not any(name.startswith(self.prefix) for name in found):
            patterns = self.head_patterns
            found = {name if _matches(name, patterns) else self.prefix + name: found[name] for name in found}
        found = {name: tensor for name, tensor in found.items() if not _matches(name, self.ignored)}
        # A tensor that differs from the original is not tied: it stays.
        for copy, original in {**self.tied_copies, **self.always_tied}.items():
            if copy in found and original in found and torch.equal(found[copy], found[original]):
                del found[copy]
        return found


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class ConfigReader:
    """Reads settings of a config.json by name and checks their types; errors name the file and the setting."""

    path: Path
    settings: Settings

    def read_table(self, table: SettingTable) -> dict[str, Any]:
        """Our settings, read by a table. A setting without a default is left out if the file does not have it."""
        found: dict[str, Any] = {}
        for ours, (theirs, default) in table.items():  # a setting has the kind of its default
            if isinstance(default, str):
                found[ours] = self.activation(theirs, default)
            elif isinstance(default, float):
                found[ours] = self.fraction(theirs, default)
            elif default is not None or self.get(theirs) is not None:
                found[ours] = self.size(theirs, default)
        return found

    def size(self, name: str, default: int | None = None, most: float = math.inf) -> int:
        if (value := self.integer(name, default, least=1)) > most:
            raise self.invalid(name, f"at most {most}")
        return value

    def integer(self, name: str, default: int | None = None, least: int = 0) -> int:
        value = self._required(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.invalid(name, f"a whole number of at least {least}")
        return value

    def fraction(self, name: str, default: float) -> float:
        value = self.number(name, default)
        if not 0 <= value < 1:
            raise self.invalid(name, "at least 0 and below 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._required(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or abs(value) > sys.float_info.max:
            raise self.invalid(name, "a finite number")
        return float(value)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self.invalid(name, "true or false")
        return value

    def activation(self, name: str, default: str | None = None) -> str:
        value = self._required(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise UserError(f"{self.path}: {name}={value}: no such activation.{nearest(str(value), ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def expect(self, supported: Mapping[str, object]) -> None:
        """Raise a UserError if a setting has another value than the one that is supported, which is its default."""
        for name, value in supported.items():
            if (found := self.settings.get(name, value)) != value:
                raise UserError(f"{self.path}: {name}={found}: is not supported, only {value} is.")

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def invalid(self, name: str, expected: str) -> UserError:
        found = self.settings.get(name, "missing")
        return UserError(f"{self.path}: {name} should be {expected}, found {found!r:.80}; restore the file.")

    def _required(self, name: str, default: object) -> Any:
        value = self.settings.get(name, default)
        if value is None:
            raise self.invalid(name, "given")
        return value


def without_outputs(config: ModelConfig) -> ModelConfig:
    """The config of a body: its settings of output layers, which it does not have, have their defaults."""
    if isinstance(config, BertConfig):
        return replace(config, outputs=(), tied=True, head_activation="")
    if isinstance(config, TransformerConfig):
        return config.without_readout()
    return replace(config, tied=True) if isinstance(config, GptConfig) else config


def their_settings(config: Any, table: SettingTable) -> dict[str, Any]:
    """Our settings under their names, by a table. Whether the type supports them is found by reading them back."""
    found = {theirs: getattr(config, ours) for ours, (theirs, _) in table.items()}
    found[table["heads"][0]] = config.heads if "head_width" in table else their_heads(config)
    if "activation" in table:
        name = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
        found[table["activation"][0]] = name
    return found


def their_heads(shape: Shape) -> int:
    """The number of heads, for a type that needs width % heads == 0. Otherwise 1, which does not read back the same."""
    return 1 if shape.width % shape.heads else shape.heads
