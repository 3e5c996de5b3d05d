"""Recipes, one function per experiment, and the tables of names that a recipe may use."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from regard.config import Kinds
from regard.errors import UserError, nearest
from regard.heads import HEADS
from regard.metrics import METRICS
from regard.models import CELLS, MODELS, SIZES, HeadedConfig, ModelConfig
from regard.recipes.made import dates, sounds
from regard.recipes.plan import Plan
from regard.recipes.plays import shakespeare, shakespeare_cpu
from regard.recipes.recipe import DATA, OBJECTIVES, Recipe, change, find_task, model_config
from regard.recipes.texts import bigram, classify, masked, text
from regard.recipes.translation import greek, multi30k, multi30k_de_en, translate, wmt14, wmt14_big
from regard.tasks import TASKS

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dates": dates,
    "sounds": sounds,
    "translate": translate,
    "multi30k": multi30k,
    "multi30k-de-en": multi30k_de_en,
    "wmt14": wmt14,
    "wmt14-big": wmt14_big,
    "greek": greek,
    "text": text,
    "bigram": bigram,
    "shakespeare": shakespeare,
    "shakespeare-cpu": shakespeare_cpu,
    "masked": masked,
    "classify": classify,
}

VOCABULARIES = ("vocab", "source_vocab", "target_vocab")


def without_vocabularies(config: ModelConfig) -> ModelConfig:
    """The config with vocabulary sizes of 0, so that they are set from the data."""
    sizes: dict[str, Any] = {field.name: 0 for field in fields(config) if field.name in VOCABULARIES}
    return replace(config, **sizes)


# The names that settings, recipe.json and the command line use: one table per part of a recipe.
KINDS: Kinds = {
    "recipe": RECIPES,
    "data": DATA,
    "model": {**MODELS, **CELLS, **{name: without_vocabularies(config) for name, config in SIZES.items()}},
    "head": HEADS,
    "objective": OBJECTIVES,
    "task": TASKS,
    "metric": METRICS,
    "node": {"plan": Plan, "recipe": Recipe, "headed": HeadedConfig},
}


def with_kinds(more: Kinds | None) -> Kinds:
    """KINDS with a user's own entries, which take precedence if a name is in both."""
    if not more or more is KINDS:
        return KINDS
    for name in more:
        if name not in KINDS:
            raise UserError(f'kinds: there is no table "{name}".{nearest(name, KINDS)}')
    return {name: {**table, **more.get(name, {})} for name, table in KINDS.items()}


def find_recipe(name: str, kinds: Kinds = KINDS) -> Recipe:
    """The recipe of this name."""
    if name not in kinds["recipe"]:
        raise UserError(f'"{name}" is no recipe.{nearest(name, kinds["recipe"])}')
    recipe: Recipe = kinds["recipe"][name]()
    return recipe


__all__ = [
    "KINDS",
    "RECIPES",
    "Plan",
    "Recipe",
    "change",
    "find_recipe",
    "find_task",
    "model_config",
    "with_kinds",
    "without_vocabularies",
]
