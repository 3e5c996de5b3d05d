"""Warm start: a run that starts from the weights of another run or of a public checkpoint."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from torch import Tensor

from regard.checkpoint import resolve
from regard.config import Kinds, format_value, override
from regard.data.example import Tokens
from regard.data.fields import Field, TextField, read_tokenizer
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.models import ModelConfig
from regard.recipes import KINDS, Recipe
from regard.recipes.recipe import can_train, models_for, name_of
from regard.stored import field_path
from regard.tasks import Task
from regard.verbs.loaded import load

GIVEN = "from"  # the name of the given model's settings in the table of models


class WarmStart(NamedTuple):
    """An existing model: its settings, its fields, and a function that reads its weights."""

    config: ModelConfig
    tokenizers: Sequence[Tokenizer]  # of its text fields, in order, with all their special tokens
    others: Mapping[str, Field] = {}  # the fields that are not text
    weights: Callable[[], Mapping[str, Tensor]] = dict  # a function, so that the weights are not kept in memory
    data: Any = None  # the data of the run that the model is from; None for a public checkpoint

    def fields_for(self, task: Task, examples: Iterable[Any], data: Any) -> dict[str, Field]:
        """The fields of a task, with the model's tokenizers; a field that the model does not have is fitted."""
        texts, fields = iter(self.tokenizers), dict[str, Field]()
        for name, kind in task.fields.items():
            if issubclass(kind, TextField):
                fields[name] = kind(next(texts))
            else:
                values = (getattr(example, name) for example in examples)
                fields[name] = self.others[name] if name in self.others else kind.fit(values, name, data)
        return fields


def warm_start_from(path: str | Path, kinds: Kinds | None = None) -> WarmStart:
    """The model of a run (its best step), of one step of a run, or of a public checkpoint."""
    model = load(path, "cpu", kinds=kinds)
    texts = {name: each for name, each in model.fields.items() if isinstance(each, TextField)}
    tokenizers = [each.tokenizer for each in texts.values()]
    if model.recipe is not None:  # the field of a running text has no bos and no eos, but its file still has them
        tokenizers = [read_tokenizer(field_path(resolve(Path(path)), name)) for name in texts]
    return WarmStart(
        config=model.module.config,
        tokenizers=tokenizers,
        others={name: each for name, each in model.fields.items() if name not in texts},
        weights=lambda: load(path, "cpu", kinds=kinds).module.state_dict(),
        data=model.recipe.data if model.recipe else None,
    )


def warm_started(
    recipe: Recipe, settings: Sequence[str], given: WarmStart, path: str | Path, kinds: Kinds = KINDS
) -> tuple[Recipe, WarmStart]:
    """A recipe with the given model, changed by settings.

    The settings of the model and its tokenizers must be those of its weights; other values are refused. Dropout may
    change, since no weight depends on it.
    """
    kind = name_of(given.config, kinds["model"])
    changes = [setting for setting in settings if setting != f"model={kind}"]
    stated = dict(setting.partition("=")[::2] for setting in changes)
    _check_fit(kind, recipe, stated, path, kinds)
    if "model" in stated:
        raise UserError(f"model={stated['model']}: the model in {path} is of the kind {kind}; leave it out.")
    models = {**kinds["model"], GIVEN: given.config}
    recipe = override(recipe, [f"model={GIVEN}", *changes], {**kinds, "model": models})
    for name in (field.name for field in fields(given.config) if "dropout" not in field.name):
        was, now = (format_value(getattr(config, name)) for config in (given.config, recipe.model))
        if was != now:
            raise UserError(f"model.{name}={now}: the model in {path} has {was}; leave it out.")
    return replace(recipe, data=_with_tokens(recipe.data, stated, given, path)), given._replace(config=recipe.model)


def _check_fit(kind: str, recipe: Recipe, stated: Mapping[str, str], path: str | Path, kinds: Kinds) -> None:
    """Refuse a model that does not fit the data or the objective."""
    data = stated.get("data", name_of(recipe.data, kinds["data"]))
    objective = stated.get("objective", name_of(recipe.objective, kinds["objective"]))
    if data not in kinds["data"] or objective not in kinds["objective"]:
        return  # the settings raise an error later
    fitting = _fitting_models(data, objective, kinds)
    if not fitting or kind in fitting:
        return
    part, cure = f"data={data}", f"start from one of the kind {' or '.join(fitting)}, or leave from= out"
    if kind in _fitting_models(data, None, kinds):
        part, cure = f"objective={objective}", f"use the recipe {' or '.join(_fitting_recipes(kind, data, kinds))}"
    raise UserError(f"from={path}: a model of the kind {kind} does not fit {part}; {cure}.")


def _fitting_models(data: str, objective: str | None, kinds: Kinds) -> list[str]:
    """The kinds of model that fit a kind of data and an objective (None: any)."""
    tasks = [kinds["task"][name] for name in kinds["data"][data].tasks]
    if objective is not None:
        tasks = [task for task in tasks if can_train(kinds["objective"][objective], task)]
    return models_for(tasks, kinds)


def _fitting_recipes(kind: str, data: str, kinds: Kinds) -> list[str]:
    """The names of recipes that train this kind of model on this kind of data."""
    recipes = {name: recipe() for name, recipe in kinds["recipe"].items()}
    return [
        name
        for name, one in recipes.items()
        if name_of(one.data, kinds["data"]) == data
        and kind in _fitting_models(data, name_of(one.objective, kinds["objective"]), kinds)
    ]


def _with_tokens(data: Any, stated: Mapping[str, str], given: WarmStart, path: str | Path) -> Any:
    """The data with the settings of the given tokenizers; other settings are refused."""
    source, target = given.tokenizers[0], given.tokenizers[-1]
    same = source.pieces(range(source.size)) == target.pieces(range(target.size))
    actual: dict[str, Any] = {
        "tokens": source.kind,
        "source_tokens": source.kind,
        "target_tokens": target.kind,
        "vocab": getattr(given.data, "vocab", max(source.size, target.size)),
        "joint": getattr(given.data, "joint", same),
    }
    actual = {field.name: actual[field.name] for field in fields(data) if field.name in actual}
    for name, was in actual.items():
        now = getattr(data, name)
        if f"data.{name}" in stated and now != was:
            why = f"it is {format_value(was)} for the tokenizers of {path}, which come with its weights"
            raise UserError(f"data.{name}={format_value(now)}: {why}; leave it out.")
    ours = get_args(Tokens)  # the kind of a public tokenizer may not be a valid setting
    return replace(data, **{name: was for name, was in actual.items() if "tokens" not in name or was in ours})
