"""What each format of a run changed. By this table, runs of every earlier format open, answer and resume.

A run has its format in recipe.json, and each of its steps has its own in manifest.json. No file is rewritten: it is
read as if the present format had written it, and a resumed run saves its next steps in the present format.

A change of the format is one more `Migration`, and `checkpoint.FORMAT` raised by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from regard.checkpoint import FORMAT
from regard.errors import UserError

T = TypeVar("T")
Node = dict[str, Any]  # a part of a recipe or of a model as JSON: an object with a "kind"
OF_WEIGHTS = "optimizer/model."  # what comes before the name of a weight in the state of a trainer


@dataclass(frozen=True)
class Migration:
    """How what one format stored becomes what the next format stores. What is left out stays the same."""

    # Changes a node, in place; raises a UserError for a setting that the next format cannot have.
    settings: Callable[[Node], None] | None = None
    # The new name of a weight of a model, given the settings of this model before the change; None: it is left out.
    # The state of the optimiser has the names of the weights, and gets the same new ones.
    weight: Callable[[str, Node], str | None] | None = None
    # The digest that this format stored for the batches of a run, for a change of their columns: a run is resumed if
    # its data still gives this digest.
    digest: Callable[[Any], str] | None = None


def _without_memory_zeros(node: Node) -> None:
    """Transformer-XL had a setting that only its public directories used, which are not read or written any more."""
    if node["kind"] == "gpt" and (value := node.pop("memory_zeros", False)) is not False:
        why = "it was dropped with the public directories of Transformer-XL, which alone used it"
        raise UserError(f"model.memory_zeros={json.dumps(value):.40}: {why}; train the model again without it.")


# The format that a migration starts from → how it becomes the next one.
MIGRATIONS: dict[int, Migration] = {
    2: Migration(settings=_without_memory_zeros),
}


def migrated(content: Any, version: int, path: Path) -> Any:
    """The JSON of a recipe or of a model as the present format has it; `path` is its file, for errors."""
    try:
        for migration in _since(version):
            _change(content, migration)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return content


def renamed(tensors: Mapping[str, T], version: int, model: Node) -> dict[str, T]:
    """The weights of a step by their present names; `model` is what its model.json stores."""
    new_name = _renaming(version, model)
    found = {new_name(weight): tensor for weight, tensor in tensors.items()}
    return {name: tensor for name, tensor in found.items() if name is not None}


def renamed_state(state: Mapping[str, T], version: int, model: Node) -> dict[str, T]:
    """The state of the trainer of a step by present names: that of an optimiser is stored by the names of weights."""
    new_name, found = _renaming(version, model), {}
    for place, tensor in state.items():
        if place.startswith(OF_WEIGHTS):
            weight, _, key = place.removeprefix(OF_WEIGHTS).rpartition("/")
            if (name := new_name(weight)) is not None:
                found[f"{OF_WEIGHTS}{name}/{key}"] = tensor
        else:
            found[place] = tensor
    return found


def stored_digest(batches: Any, version: int) -> str:
    """The digest of the batches of a run as it was counted in a format."""
    counted = (migration.digest for migration in _since(version) if migration.digest)
    return next(counted, lambda batches: batches.digest)(batches)


def _since(version: int) -> Iterator[Migration]:
    return (MIGRATIONS[number] for number in range(version, FORMAT))


def _renaming(version: int, model: Node) -> Callable[[str], str | None]:
    """What the weights of a model are called now, by their names in a format."""
    model, changes = deepcopy(model), list[tuple[Callable[[str, Node], str | None], Node]]()
    for migration in _since(version):
        if migration.weight:
            changes.append((migration.weight, deepcopy(model)))
        _change(model, migration)

    def new_name(weight: str) -> str | None:
        name: str | None = weight
        for change, before in changes:
            name = None if name is None else change(name, before)
        return name

    return new_name


def _change(content: Any, migration: Migration) -> None:
    """Change each node of a JSON tree, an outer one before those in it."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if migration.settings and "kind" in part:
                migration.settings(part)
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
