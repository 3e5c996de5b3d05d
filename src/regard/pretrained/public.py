"""What is known of a type of public checkpoint: its settings and the names of its tensors, both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from regard.errors import UserError, nearest
from regard.layers.transformer import Shape
from regard.models import ModelConfig
from regard.pretrained.names import Line

Settings = Mapping[str, Any]  # what a config.json holds
Table = Mapping[str, tuple[str, Any]]  # our setting → theirs, and what it is where a config.json leaves it out
ACTIVATIONS = {  # their name → ours; the first of several is the one that is written
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
class Public:
    """A type of public checkpoint.

    ``settings`` is the table of those that have another name and nothing more; ``read`` makes our settings of a
    config.json and of the names of the tensors that are there (a file without a head is a model without one); ``write``
    makes a config.json of our settings; ``lines`` is the table of names for given settings.
    """

    config: type[ModelConfig]
    settings: Table
    read: Callable[[Given, frozenset[str]], ModelConfig]
    write: Callable[[Any], dict[str, Any]]
    lines: Callable[[Any], Sequence[Line]]
    prefix: str = ""  # of the body's tensors; files of a body without a head may leave it out
    heads: tuple[str, ...] = ()  # patterns of the tensors that never have the prefix
    ignored: tuple[str, ...] = ()  # patterns of tensors that carry nothing: constants that old versions saved
    copies: Mapping[str, str] = field(default_factory=dict)  # a tied tensor that some files repeat → which it equals
    always: Mapping[str, str] = field(default_factory=dict)  # such copies that the settings cannot untie
    renamed: Mapping[str, str] = field(default_factory=dict)  # endings that older versions used → those of today
    bodies: Mapping[str, Callable[[Any], Mapping[str, Tensor]]] = field(default_factory=dict)  # more of them, by class
    constants: Callable[[Any], Mapping[str, Tensor]] = lambda config: {}  # what it saves though settings say it all

    def back(self, config: ModelConfig) -> ModelConfig:
        """The settings that a checkpoint written with these would be read as; if others, it cannot be written."""
        names = frozenset(name for one in self.lines(config) for name in one.theirs)
        return self.read(Given(Path("config.json"), self.write(config)), names)

    def reworded(self, error: str) -> str:
        """What is wrong with a setting of ours, said of the one of theirs; the cure, to choose another, is left out."""
        wrong, _, _ = error.partition(";")
        return re.sub(r"model\.(\w+)", lambda name: self.settings.get(name[1], (name[1], None))[0], wrong)

    def set_to(self, settings: Settings) -> Self:
        """The type under the settings of a config.json: where they tie nothing, an equal tensor is still no copy."""
        return self if settings.get("tie_word_embeddings", True) is not False else replace(self, copies={})

    def normal(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors under the names of the table, whatever version of their library wrote them."""
        found = {self._today(name): tensor for name, tensor in tensors.items()}
        if self.prefix and not any(name.startswith(self.prefix) for name in found):
            found = {name if self._of_head(name) else self.prefix + name: tensor for name, tensor in found.items()}
        found = {name: tensor for name, tensor in found.items() if not self._ignores(name)}
        # One that differs is a tensor of its own: a head that is not tied.
        for copy, original in {**self.copies, **self.always}.items():
            if copy in found and original in found and torch.equal(found[copy], found[original]):
                del found[copy]
        return found

    def _today(self, name: str) -> str:
        for old, new in self.renamed.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def _of_head(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.heads)

    def _ignores(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.ignored)


@dataclass(frozen=True)
class Given:
    """The settings of a config.json, asked for by name: a wrong or missing one is refused by name."""

    path: Path
    settings: Settings

    def those_of(self, table: Table) -> dict[str, Any]:
        """Our settings by a table; those without a default are there only where the file has them."""
        present = {ours: one for ours, one in table.items() if one[1] is not None or self.get(one[0]) is not None}
        return {ours: self._of_kind(theirs, default) for ours, (theirs, default) in present.items()}

    def _of_kind(self, name: str, default: Any) -> Any:
        """What a default is, the setting has to be: an activation, a fraction or a size."""
        if isinstance(default, str):
            return self.activation(name, default)
        return self.fraction(name, default) if isinstance(default, float) else self.size(name, default)

    def size(self, name: str, default: int | None = None) -> int:
        return self.whole(name, default, least=1)

    def whole(self, name: str, default: int | None = None, least: int = 0) -> int:
        value = self._get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        return value

    def fraction(self, name: str, default: float) -> float:
        value = self.number(name, default)
        if not 0 <= value < 1:
            raise self.wrong(name, "at least 0 and below 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong(name, "a number")
        return float(value)

    def truth(self, name: str, default: bool | None = None) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def activation(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if value not in ACTIVATIONS:
            raise UserError(f"{self.path}: {name}={value}: no such activation.{nearest(str(value), ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def expect(self, name: str, value: object, default: object) -> None:
        """Refuse a setting that would change the computation in a way that is not built here."""
        if (found := self.settings.get(name, default)) != value:
            raise UserError(f"{self.path}: {name}={found}: is not supported, only {value} is.")

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    def wrong(self, name: str, expected: str) -> UserError:
        found = self.settings.get(name, "missing")
        return UserError(f"{self.path}: {name} should be {expected}, found {found!r}; restore the file.")

    def _get(self, name: str, default: object) -> Any:
        value = self.settings.get(name, default)
        if value is None:
            raise self.wrong(name, "given")
        return value


def their_settings(config: Any, table: Table) -> dict[str, Any]:
    """The settings of a table in their words; what a type does not allow is found when they are read back."""
    found = {theirs: getattr(config, ours) for ours, (theirs, _) in table.items()}
    found[table["heads"][0]] = config.heads if "head_width" in table else their_heads(config)
    if "activation" in table:
        found[table["activation"][0]] = their_activation(config.activation)
    return found


def their_heads(shape: Shape) -> int:
    """How many heads there are, for a type whose heads share the width out evenly; others are found on reading back."""
    return 1 if shape.width % shape.heads else shape.heads


def their_activation(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)
