"""Reads the files of a run: its recipe, and the fields and weights of a step."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import FORMAT, check_format, format_of, read_step
from regard.config import Kinds, from_json, to_json
from regard.data.fields import Field, LabelField, TextField, in_direction, read_tokenizer
from regard.data.public_tokenizers import read_tokenizers
from regard.data.run_files import RunFiles, files_from_json, files_to_json
from regard.data.spelled import field_kinds
from regard.data.tokenizers import Tokenizer, check_vocab
from regard.errors import UserError
from regard.file_io import RESTORE, check_finite, finite_error, load_tensors, named_path, read_json, read_object
from regard.layers.init import SkipInit, empty_weights
from regard.migrations import IN_STATE, OF_MODEL, Own, migrated, renamed, stored_field
from regard.migrations import MODEL as ROOT
from regard.pretrained import is_public
from regard.pretrained.weight_table import format_shape
from regard.recipes import KINDS, Recipe
from regard.shipped import run_named
from regard.tasks import Task
from regard.version import __version__

# In the directory of a step: the model's config and weights, and the state of its trainer.
MODEL, WEIGHTS, TRAINER = "model.json", "weights.safetensors", "training/trainer.safetensors"
NO_RECIPE = "not a recipe; restore the file or start another run."


@dataclass(frozen=True)
class GivenModel:
    """The model that a run started from (from=DIR). Both are empty for a run that started from random weights."""

    path: str = ""  # as it was given
    sha256: str = ""  # of its weights


@dataclass(frozen=True)
class Stored:
    """What recipe.json says of a run."""

    recipe: Recipe  # what is trained, with what followed from the data and from the model of from=
    files: RunFiles | None  # that the data names; None: an earlier version has not stored them
    given: GivenModel | None  # None: an earlier version has not stored it
    version: str | None  # which wrote it; None: an earlier one, which did not say so


def recipe_json(
    recipe: Recipe,
    kinds: Kinds,
    asked: Recipe | None = None,
    files: RunFiles = {},  # noqa: B006
    given: GivenModel | None = None,
) -> dict[str, Any]:
    """The content of recipe.json."""
    about: dict[str, Any] = {"asked": to_json(asked, kinds)} if asked else {}
    about |= {"from": vars(given)} if given else {}
    return {"format": FORMAT, "version": __version__, **to_json(recipe, kinds), **about, "files": files_to_json(files)}


def stored(run: Path, kinds: Kinds = KINDS) -> Stored:
    """What the recipe.json of a run has."""
    path = run / "recipe.json"
    content, version = recipe_content(run)
    about = {name: content.pop(name, None) for name in ("format", "version", "asked", "from", "files")}
    written_by = None if about["version"] is None else str(about["version"])
    files = None if about["files"] is None else files_from_json(about["files"], path)
    given = None if about["from"] is None else _given_model(about["from"], path)
    return Stored(_recipe_of(content, version, path, kinds), files, given, written_by)


def _given_model(content: Any, path: Path) -> GivenModel:
    names = vars(GivenModel()).keys()
    if not isinstance(content, dict) or content.keys() != names or {*map(type, content.values())} != {str}:
        raise UserError(f"{path}: from: expected the path of a model and the digest of its weights; {RESTORE}.")
    return GivenModel(**content)


def asked_recipe(run: Path, kinds: Kinds = KINDS) -> Recipe | None:
    """The recipe of a run as the command that started it said it; None if an earlier version has not stored it."""
    content, version = recipe_content(run)
    asked = content.get("asked")
    return None if asked is None else _recipe_of(asked, version, run / "recipe.json", kinds)


def _recipe_of(content: Any, version: int, path: Path, kinds: Kinds) -> Recipe:
    content = migrated(content, version, path, _own(kinds))
    try:
        recipe = from_json(content, kinds)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if not isinstance(recipe, Recipe):
        raise UserError(f"{path}: {NO_RECIPE}")
    return recipe


def recipe_content(run: Path) -> tuple[dict[str, Any], int]:
    """The content of the recipe.json of a run, as it is stored, and its format; refuses a file that is no run's."""
    path = run / "recipe.json"
    content = read_json(path)
    version = check_format(path, content.get("format", 1) if isinstance(content, dict) else 1)
    if content.get("kind") != "recipe":
        raise UserError(f"{path}: {NO_RECIPE}")
    return content, version


def _own(kinds: Kinds) -> Own:
    """The names in the tables of kinds that are a user's own; one of ours may have the name too."""
    return {
        table: {name for name, kind in named.items() if kind is not KINDS[table].get(name)}
        for table, named in kinds.items()
    }


def stored_recipe(run: Path, kinds: Kinds = KINDS) -> Recipe:
    """The recipe of a run."""
    return stored(run, kinds).recipe


def stored_config(folder: Path, kinds: Kinds = KINDS) -> Any:
    """The config of the model of a saved step."""
    inner = {name: kinds["node"][name] for name in ("headed", "directions")}  # no setting names them
    models = {**kinds["model"], **inner}
    content = migrated(read_json(folder / MODEL), format_of(folder), folder / MODEL, _own(kinds), ROOT)
    try:
        return from_json(content, {**kinds, "model": models}, "model")
    except UserError as error:
        raise UserError(f"{folder / MODEL}: {error}") from error


def read_fields(folder: Path, task: Task, config: Any) -> dict[str, Field]:
    """The fields of a saved step, of the types that the task names; their sizes must fit the model of `config`."""
    kinds = field_kinds(task.fields, config.reads_words)
    loaded = {name: kind.load(field_path(folder, name)) for name, kind in kinds.items()}
    fields = in_direction(loaded, config.direction)
    body, head = config.split()
    own = {} if head is None else head.sizes  # the sizes of what a head predicts are the head's alone
    sizes = [(body, *names) for names in body.sizes.items() if names[1] not in own.values()]
    sizes += [(head, *names) for names in own.items()]
    for part, setting, name in sizes:
        field, outputs = fields.get(name), getattr(part, setting)
        if isinstance(field, TextField):
            check_vocab(field.tokenizer, outputs, field_path(folder, name))
        elif field is not None and field.size != outputs:
            found = f"its size is {field.size}, but the model has model.{setting}={outputs}"
            if isinstance(field, LabelField):
                found = f"{field.size} class names, but the model has {outputs} outputs"
            raise UserError(f"{field_path(folder, name)}: {found}; {RESTORE}.")
    return fields


def given_tokenizer(path: str) -> Tokenizer:
    """The tokenizer of the text, or of the target, of a run or of a public checkpoint, or of its own file.

    The setting is `data.tokenizer`; a file is what `Tokenizer.save` wrote.
    """
    folder = run_named(named_path(os.path.expanduser(path)))
    if folder.is_file():
        return read_tokenizer(folder)
    if not folder.is_dir():
        raise UserError(f"data.tokenizer={path}: no such directory; give a run, or a public checkpoint.")
    if is_public(folder):
        return read_tokenizers(folder, read_object(folder / "config.json"))[1]

    def read(step: Path) -> Tokenizer:
        texts = [place for name in ("text", "target") if (place := field_path(step, name)).is_file()]
        if not texts:
            raise UserError(f"data.tokenizer={path}: this run has no tokenizer of a text; give another one.")
        return read_tokenizer(texts[0])

    return read_step(folder, read)


def field_path(folder: Path, name: str) -> Path:
    """The path of a field in the directory of a step."""
    return folder / "fields" / f"{stored_field(name, format_of(folder))}.json"


def stored_weights(folder: Path, kinds: Kinds = KINDS) -> dict[str, Tensor]:
    """The weights of the model of a saved step, by their present names."""
    path = folder / WEIGHTS
    return renamed(load_tensors(path), format_of(folder), read_json(folder / MODEL), path, _own(kinds))


def stored_training(folder: Path, objective: Any, kinds: Kinds = KINDS) -> dict[str, Tensor]:
    """The state of the trainer of a saved step, by present names. What an objective of a user's own stores stays."""
    path, ours = folder / TRAINER, type(objective) in KINDS["objective"].values()
    places = IN_STATE if ours else {OF_MODEL: "model"}
    return renamed(load_tensors(path), format_of(folder), read_json(folder / MODEL), path, _own(kinds), places)


def load_model(folder: Path, kinds: Kinds = KINDS) -> Any:
    """The model of a saved step. Settings and weights are compared before memory is allocated for the model."""
    config, tensors, path = stored_config(folder, kinds), stored_weights(folder, kinds), folder / WEIGHTS
    try:
        expected = empty_weights(config, len(tensors))
    except UserError as error:
        raise UserError(f"{folder / MODEL}: {error}; {RESTORE}.") from error
    check_weights(expected, tensors, path)
    with SkipInit():
        module = config.build()
    module.load_state_dict(tensors)
    return module


def load_weights(module: nn.Module, folder: Path, kinds: Kinds = KINDS) -> None:
    """Load the weights of a saved step into a module; the names and shapes must be exactly the module's."""
    tensors = stored_weights(folder, kinds)
    check_weights(module.state_dict(), tensors, folder / WEIGHTS)
    module.load_state_dict(tensors)


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of weights with their names, types and shapes."""
    found = hashlib.sha256()
    for name, tensor in tensors.items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def shape_error(found: Mapping[str, torch.Size], expected: Mapping[str, torch.Size]) -> str | None:
    """The first tensor that is missing, extra or of another shape, as text for an error; None if there is none."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            return f"{name} is {format_shape(found.get(name))}, but the model's is {format_shape(expected.get(name))}"
    return None


def tensor_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """The first tensor that is missing, extra, of another shape or type, or not finite, as text for an error."""
    if wrong := shape_error(_shapes(found), _shapes(expected)):
        return wrong
    for name, wanted in expected.items():
        if found[name].dtype != wanted.dtype:
            return f"{name} {_other_type(found[name], wanted)}"
    return finite_error(found)


def _other_type(found: Tensor, wanted: Tensor) -> str:
    return f"has numbers of type {found.dtype}, but the model's are {wanted.dtype}".replace("torch.", "")


def check_weights(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path) -> None:
    """Raise a UserError unless a file has exactly the expected names and shapes, and finite numbers."""
    if wrong := shape_error(_shapes(found), _shapes(expected)):
        raise UserError(f"{path}: {wrong}; use the model settings of the run that has the weights.")
    for name, wanted in expected.items():
        tensor = found[name]
        if wanted.is_floating_point() != tensor.is_floating_point():
            raise UserError(f"{path}: {name} {_other_type(tensor, wanted)}; {RESTORE}.")
        if not wanted.is_floating_point() and tensor.numel() and int(tensor.min()) < 0:
            raise UserError(f"{path}: {name} has negative counts; {RESTORE}.")
    check_finite(found, path)


def average(run: Path, count: int, kinds: Kinds = KINDS) -> dict[str, Tensor]:
    """The weights of the newest `count` steps of a run, averaged in float32.

    Tensors that are not floats come from the newest step. Step 0 is not used, nor an old step that is kept only because
    it is the best.
    """
    if count < 1:
        raise UserError(f"--average {count}: give 1 or more.")
    keep = stored_recipe(run, kinds).plan.keep
    newest = _newest(run, min(count, keep))
    if len(newest) < count:
        cure = f"average fewer, or train with plan.keep={count}"
        raise UserError(f"{run}: has {len(newest)} of its newest steps (plan.keep={keep}), not {count}; {cure}.")
    total: dict[str, Tensor] = {}
    for step in newest:
        try:
            tensors = read_step(step, partial(stored_weights, kinds=kinds))
        except UserError:
            if _newest(run, min(count, keep)) == newest:
                raise
            return average(run, count, kinds)  # the run is being trained, and has deleted this step
        check_weights(total or tensors, tensors, step / WEIGHTS)
        for weight, tensor in tensors.items():
            if tensor.is_floating_point() and weight in total:
                total[weight] += tensor.float()
            else:
                total[weight] = tensor.float() if tensor.is_floating_point() else tensor
    return {weight: tensor / count if tensor.is_floating_point() else tensor for weight, tensor in total.items()}


def _newest(run: Path, count: int) -> list[Path]:
    steps = [path for path in (run / "steps").glob("*") if path.name.isdecimal() and int(path.name)]
    return sorted(steps, key=lambda path: int(path.name))[-count:]
