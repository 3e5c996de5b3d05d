"""What a run starts from: the model of another run or of a public checkpoint, which are alike from here on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from torch import Tensor

from regard.checkpoint import resolve
from regard.config import format_value, override
from regard.data.example import Tokens
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.models import MODELS, ModelConfig
from regard.recipes import KINDS, RECIPES, Recipe
from regard.recipes.recipe import DATA, OBJECTIVES, Data, models_for, name_of
from regard.stored import read_tokenizers
from regard.verbs.loaded import load

GIVEN = "from"  # the name that the settings of the given model have among the kinds of model


class WarmStart(NamedTuple):
    """A model that exists already: its settings, its tokenizers, and how to read its weights."""

    config: ModelConfig
    source_tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer
    weights: Callable[[], Mapping[str, Tensor]] = dict  # read again when wanted: nobody holds them while a run goes
    data: Data | None = None  # that the tokenizers were learnt from, of a run


def warm_start_from(path: str | Path) -> WarmStart:
    """The model of a run (its best step), of a step of one, or of a public checkpoint."""
    it = load(path, "cpu")
    # Running text has taken the special tokens from a run's tokenizer; the file still has them.
    source, target = read_tokenizers(resolve(Path(path))) if it.recipe else (it.source_tokenizer, it.target_tokenizer)
    data = it.recipe.data if it.recipe else None
    return WarmStart(it.module.config, source, target, lambda: load(path, "cpu").module.state_dict(), data)


def warm_started(
    recipe: Recipe, settings: Sequence[str], given: WarmStart, path: str | Path
) -> tuple[Recipe, WarmStart]:
    """A recipe for the model that is given, changed by settings.

    The model's own come with its weights, as do those of its tokenizers, and one that says otherwise is refused.
    Dropout is free: no weight knows it.
    """
    kind = name_of(given.config, MODELS)
    changes = [setting for setting in settings if setting != f"model={kind}"]
    said = dict(setting.partition("=")[::2] for setting in changes)
    _check_fit(kind, recipe, said, path)
    if "model" in said:
        raise UserError(f"model={said['model']}: the model in {path} is of the kind {kind}; leave it out.")
    recipe = override(recipe, [f"model={GIVEN}", *changes], {**KINDS, GIVEN: given.config})
    for name in (field.name for field in fields(given.config) if "dropout" not in field.name):
        was, now = (format_value(getattr(config, name)) for config in (given.config, recipe.model))
        if was != now:
            raise UserError(f"model.{name}={now}: the model in {path} has {was}; leave it out.")
    return replace(recipe, data=_cut(recipe.data, said, given, path)), given._replace(config=recipe.model)


def _check_fit(kind: str, recipe: Recipe, said: Mapping[str, str], path: str | Path) -> None:
    """Refuse a model that the data or the objective is not for."""
    data = said.get("data", name_of(recipe.data, DATA))
    objective = said.get("objective", name_of(recipe.objective, OBJECTIVES))
    fitting = models_for(data, objective)
    if not fitting or kind in fitting:
        return
    beside, cure = f"data={data}", f"start from one of the kind {' or '.join(fitting)}, or leave from= out"
    if kind in models_for(data):
        beside, cure = f"objective={objective}", f"use the recipe {' or '.join(_recipes(kind, data))}"
    raise UserError(f"from={path}: a model of the kind {kind} does not fit {beside}; {cure}.")


def _recipes(kind: str, data: str) -> list[str]:
    """The recipes that teach this kind of model from this kind of data."""
    made = {name: recipe() for name, recipe in RECIPES.items()}
    fitting = {name: models_for(data, name_of(one.objective, OBJECTIVES)) for name, one in made.items()}
    return [name for name, one in made.items() if name_of(one.data, DATA) == data and kind in fitting[name]]


def _cut(data: Data, said: Mapping[str, str], given: WarmStart, path: str | Path) -> Data:
    """The data with what is true of the given tokenizers; to cut texts in another way than theirs is refused."""
    source, target = given.source_tokenizer or given.target_tokenizer, given.target_tokenizer
    one = source.pieces(range(source.size)) == target.pieces(range(target.size))
    true: dict[str, Any] = {
        "tokens": source.kind,
        "source_tokens": source.kind,
        "target_tokens": target.kind,
        "vocab": getattr(given.data, "vocab", max(source.size, target.size)),
        "joint": getattr(given.data, "joint", one),
    }
    true = {field.name: true[field.name] for field in fields(data) if field.name in true}
    for name, was in true.items():
        now = getattr(data, name)
        if f"data.{name}" in said and now != was:
            told = f"it is {format_value(was)} for the tokenizers of {path}, which come with its weights"
            raise UserError(f"data.{name}={format_value(now)}: {told}; leave it out.")
    ours = get_args(Tokens)  # a public tokenizer may be of a kind that no setting names
    return replace(data, **{name: was for name, was in true.items() if "tokens" not in name or was in ours})
