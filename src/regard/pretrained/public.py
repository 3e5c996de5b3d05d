"""What is known of a type of public checkpoint: its settings and the names of its tensors, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError, nearest
from regard.layers.transformer import Shape
from regard.models import ModelConfig
from regard.pretrained.names import Line

Settings = Mapping[str, Any]  # what a config.json holds
ACTIVATIONS = {  # their name → ours; the first of several is the one that is written
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


@dataclass(frozen=True)
class Public:
    """A type of public checkpoint.

    ``read`` makes our settings of a config.json and of the names of the tensors that are there (a file without a head
    is a model without one); ``write`` makes a config.json of our settings; ``lines`` is the table of names for given
    settings.
    """

    config: type[ModelConfig]
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

    def set_to(self, settings: Settings) -> Public:
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

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(name, "a whole number")
        return value

    def heads(self, name: str, default: int, width: int) -> int:
        """How many heads share out a width."""
        heads = self.whole(name, default)
        if heads == 0 or width % heads:
            raise self.wrong(name, f"a divisor of the width, {width}")
        return heads

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


def their_heads(shape: Shape) -> int:
    """How many heads there are, for a type whose heads share the width out evenly; others are found on reading back."""
    return 1 if shape.width % shape.heads else shape.heads


def their_activation(ours: str) -> str:
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)
