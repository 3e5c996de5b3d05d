"""What a run starts from: the model of another run or of a public checkpoint, which are alike from here on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from regard.checkpoint import resolve
from regard.config import override, written
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.models import MODELS, ModelConfig
from regard.recipes import KINDS, Recipe
from regard.recipes.recipe import DATA, models_for, name_of
from regard.stored import read_tokenizers
from regard.verbs.loaded import load

GIVEN = "from"  # the name that the settings of the given model have among the kinds of model


class Origin(NamedTuple):
    """A model that exists already: its settings, its tokenizers, and how to read its weights."""

    config: ModelConfig
    source_tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer
    weights: Callable[[], Mapping[str, Tensor]] = dict  # read again when wanted: nobody holds them while a run goes


def origin_of(path: str | Path) -> Origin:
    """The model of a run (its best step), of a step of one, or of a public checkpoint."""
    it = load(path, "cpu")
    # Running text has taken the marks from a run's tokenizer; the file still has them.
    source, target = read_tokenizers(resolve(Path(path))) if it.recipe else (it.source_tokenizer, it.target_tokenizer)
    return Origin(it.module.config, source, target, lambda: load(path, "cpu").module.state_dict())


def begun(recipe: Recipe, settings: Sequence[str], given: Origin, path: str | Path) -> tuple[Recipe, Origin]:
    """A recipe for the model that is given, changed by settings.

    The model's own come with its weights, and one that says otherwise is refused. Dropout is free: no weight knows it.
    """
    kind = name_of(given.config, MODELS)
    changes = [setting for setting in settings if setting != f"model={kind}"]
    said = dict(setting.partition("=")[::2] for setting in changes)
    _check_fit(kind, said.get("data", name_of(recipe.data, DATA)), path)
    _check_tokens(said, given, path)
    if "model" in said:
        raise UserError(f"model={said['model']}: the model in {path} is of the kind {kind}; leave it out.")
    recipe = override(recipe, [f"model={GIVEN}", *changes], {**KINDS, GIVEN: given.config})
    for name in (field.name for field in fields(given.config) if "dropout" not in field.name):
        was, now = (written(getattr(config, name)) for config in (given.config, recipe.model))
        if was != now:
            raise UserError(f"model.{name}={now}: the model in {path} has {was}; leave it out.")
    return recipe, given._replace(config=recipe.model)


def _check_fit(kind: str, data: str, path: str | Path) -> None:
    """Refuse a model that the data is not for."""
    fitting = models_for(data)
    if fitting and kind not in fitting:
        cure = f"start from one of the kind {' or '.join(fitting)}, or leave from= out"
        raise UserError(f"from={path}: a model of the kind {kind} does not fit data={data}; {cure}.")


def _check_tokens(said: Mapping[str, str], given: Origin, path: str | Path) -> None:
    """Refuse to cut texts in another way than the model was taught."""
    source, target = given.source_tokenizer or given.target_tokenizer, given.target_tokenizer
    for name, tokenizer in (("tokens", source), ("source_tokens", source), ("target_tokens", target)):
        if (now := said.get(f"data.{name}", tokenizer.kind)) != tokenizer.kind:
            told = f"the tokenizer in {path} is of the kind {tokenizer.kind}"
            raise UserError(f"data.{name}={now}: {told}; leave it out.")
