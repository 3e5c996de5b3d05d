"""What each format of a run changed. By this table, runs of every earlier format open, answer and resume.

A run has its format in recipe.json, and each of its steps has its own in manifest.json. Whoever reads a file gets it as
if the present format had written it; the file stays as it is. Only a run that is resumed rewrites its recipe.json, and
saves its next steps, in the present format, which an older version of regard then refuses.

A change of the format is one more `Migration`, and `checkpoint.FORMAT` raised by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from regard.checkpoint import FORMAT
from regard.errors import UserError
from regard.file_io import RESTORE

T = TypeVar("T")
Node = dict[str, Any]  # a part of a recipe or of a model as JSON: an object with a "kind"
Place = tuple[str, ...]  # of a node: the settings that lead to it, such as ("model", "body"); of a recipe, none
Own = Mapping[str, Collection[str]]  # a table of kinds → the names in it that are kinds of the user's own
MODEL: Place = ("model",)  # the place of the root of model.json

# The last name of a place → the table that the kind of this node is from. A config of a user's own may have others.
TABLES = {"data": "data", "of": "data", "objective": "objective", "head": "head"}
TABLES |= dict.fromkeys(("model", "body", "extractor"), "model") | dict.fromkeys(("", "plan", "one", "two"), "node")
OWN = "own "  # before the kind of a node that is the user's own, so that no migration takes it for one of ours

# What comes before the name of a weight → what the weight is part of: in the file of the weights,
IN_WEIGHTS = {"": "model"}
# and in the state of a trainer: that of an optimiser, the weights beside the model, and the sums of GloVe.
OF_MODEL = "optimizer/model."
IN_STATE = {OF_MODEL: "model", "optimizer/own.": "objective", "objective/": "objective", "squares.": "model"}


@dataclass(frozen=True)
class Migration:
    """How what one format stored becomes what the next format stores. What is left out stays the same.

    Kinds of a user's own are not changed. In what the functions get, `OWN` comes before the names of these kinds.
    """

    # Changes a node at a place, in place; raises a UserError for a setting that the next format cannot have. The nodes
    # inside a node are changed before it, and what it makes of itself is not changed again.
    settings: Callable[[Node, Place], None] | None = None
    # The new name of a weight, given the settings of the model before the change, and what it is part of: "model", or
    # "objective" of the weights that are trained beside the model. None: it is left out. The state of the optimiser has
    # the names of the weights, and gets the same new ones.
    weight: Callable[[str, Node, str], str | None] | None = None
    # The name that this format had for a field, given that of the next format: of the files fields/NAME.json.
    field: Callable[[str], str] | None = None
    # The digest that this format stored for the batches of a run; None if the next format counts it in the same way. A
    # run is resumed if its data still gives this digest. It gets the batches of every kind (`Batches` of examples,
    # those of running text in data/streams.py, `Sentences` of word vectors), so it has to tell them apart.
    digest: Callable[[Any], str | None] | None = None


def _without_memory_zeros(node: Node, place: Place) -> None:
    """Transformer-XL had a setting for its public directories, which are not read or written any more."""
    if node["kind"] == "gpt" and (value := node.pop("memory_zeros", False)) is not False:
        name = ".".join((*place, "memory_zeros"))
        why = "it was dropped with the public directories of Transformer-XL; only transformer-xl-large used it here"
        raise UserError(f"{name}={json.dumps(value):.40}: {why}; train the model again without it.")


# The format that a migration starts from → how it becomes the next one.
MIGRATIONS: dict[int, Migration] = {
    2: Migration(settings=_without_memory_zeros),
}


def migrated(content: Any, version: int, path: Path, own: Own = {}, place: Place = ()) -> Any:  # noqa: B006
    """The JSON of a recipe, or with place=MODEL of a model, as the present format has it; `content` itself changes.

    `path` is its file, for errors. `own` has the names of the kinds that are the user's own.
    """
    if migrations := _since(version):
        with _as_user_error(path, version):
            _mark(content, own, place)
            for migration in migrations:
                _change(content, migration, place)
            for _, node in _nodes(content, place):
                node["kind"] = node["kind"].removeprefix(OWN)
    return content


def renamed(
    tensors: Mapping[str, T],
    version: int,
    model: Node,
    path: Path,
    own: Own = {},  # noqa: B006
    places: Mapping[str, str] = IN_WEIGHTS,
) -> dict[str, T]:
    """The tensors of a file by their present names; `model` is what the model.json of its step stores.

    `places` has what comes before the names of weights: `IN_WEIGHTS`, or `IN_STATE` of the state of a trainer.
    """
    found, before = dict[str, T](), dict[str, str]()
    with _as_user_error(path, version):
        new_name = _renaming(version, model, own)
        for old, tensor in tensors.items():
            name: str | None = old
            if begin := [one for one in places if old.startswith(one)]:
                weight, slash, key = old.removeprefix(begin[0]), "", ""
                if begin[0].startswith("optimizer/"):
                    weight, slash, key = weight.rpartition("/")
                new = new_name(weight, places[begin[0]])
                name = None if new is None else f"{begin[0]}{new}{slash}{key}"
            if name in before:
                raise UserError(f"{before[name]} and {old} are both {name} in the present format; {RESTORE}.")
            if name is not None:
                found[name], before[name] = tensor, old
    return found


def stored_field(name: str, version: int) -> str:
    """The name that a format had for a field."""
    for migration in reversed(_since(version)):
        name = migration.field(name) if migration.field else name
    return name


def stored_digest(batches: Any, version: int) -> str:
    """The digest of the batches of a run as it was counted in a format."""
    counted = (migration.digest(batches) for migration in _since(version) if migration.digest)
    found = next((digest for digest in counted if digest is not None), None)
    return batches.digest if found is None else found


def places(model: Node, begin: str = "") -> Iterator[tuple[str, Node]]:
    """The models in a model as formats 2 and 3 nest them: what the names of its weights begin with, and its settings.

    An outer model comes before those in it, so a weight is of the last model whose beginning its name has.
    """
    yield begin, model
    body, extractor = model.get("body"), model.get("extractor")
    if body is not None and model["kind"] in ("headed", "directions"):
        for part in ("onward.", "returning.") if model["kind"] == "directions" else ("body.",):
            yield from places(body, f"{begin}{part}")
    if extractor is not None and model["kind"] == "bilstm":
        both = extractor.get("direction") == "both"
        inner = {"kind": "directions", "body": extractor} if both else extractor
        yield from places(inner, f"{begin}extractor.body.")


def _since(version: int) -> list[Migration]:
    return [MIGRATIONS[number] for number in range(version, FORMAT)]


@contextmanager
def _as_user_error(path: Path, version: int) -> Iterator[None]:
    """Name the file in errors. What is not as the format writes it, a migration may fail on in any way."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not what format {version} wrote; {RESTORE}.") from error


def _renaming(version: int, model: Node, own: Own) -> Callable[[str, str], str | None]:
    """What a weight is called now, given its name in a format and what it is part of."""
    migrations, changes = _since(version), list[tuple[Callable[[str, Node, str], str | None], Node]]()
    if any(migration.weight for migration in migrations):
        model = deepcopy(model)
        _mark(model, own, MODEL)
        for migration in migrations:
            if migration.weight and not model["kind"].startswith(OWN):
                changes.append((migration.weight, deepcopy(model)))
            _change(model, migration, MODEL)

    def new_name(weight: str, part: str) -> str | None:
        name: str | None = weight
        for change, before in changes:
            name = None if name is None else change(name, before, part)
        return name

    return new_name


def _mark(content: Any, own: Own, place: Place) -> None:
    """Put `OWN` before the kinds that are the user's own."""
    every = {name for names in own.values() for name in names}
    for at, node in _nodes(content, place) if every else ():
        table = TABLES.get(at[-1] if at else "")
        if node["kind"] in (own.get(table, ()) if table else every):
            node["kind"] = OWN + node["kind"]


def _change(content: Any, migration: Migration, place: Place) -> None:
    """Change each node of a JSON tree that is ours, the inner ones first."""
    if change := migration.settings:
        for at, node in reversed(list(_nodes(content, place))):
            if not node["kind"].startswith(OWN):
                change(node, at)


def _nodes(content: Any, place: Place) -> Iterator[tuple[Place, Node]]:
    """The nodes of a JSON tree and their places, an outer one before those in it."""
    waiting = [(place, content)]
    while waiting:
        at, part = waiting.pop()
        if isinstance(part, dict):
            if "kind" in part:
                yield at, part
            waiting += [((*at, name), inner) for name, inner in part.items()]
        elif isinstance(part, list):
            waiting += [(at, inner) for inner in part]
