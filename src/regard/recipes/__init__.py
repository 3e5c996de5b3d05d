"""One function per experiment, and the names of everything that a recipe may hold."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from regard.errors import UserError, nearest
from regard.models import MODELS, SIZES, ModelConfig
from regard.recipes.made import dates, sounds
from regard.recipes.plan import Plan
from regard.recipes.plays import shakespeare, shakespeare_cpu
from regard.recipes.recipe import DATA, MEASURES, OBJECTIVES, Recipe
from regard.recipes.texts import labels, masked, text
from regard.recipes.translation import greek, multi30k, multi30k_de_en, translate, wmt14, wmt14_big

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
    "shakespeare": shakespeare,
    "shakespeare-cpu": shakespeare_cpu,
    "masked": masked,
    "labels": labels,
}

VOCABULARIES = ("vocab", "source_vocab", "target_vocab")


def opened(config: ModelConfig) -> ModelConfig:
    """The settings of a model that exists as those of one to train: its vocabularies are those of the data."""
    sizes: dict[str, Any] = {field.name: 0 for field in fields(config) if field.name in VOCABULARIES}
    return replace(config, **sizes)


# Every dataclass that may stand in a recipe.json or after a setting's equals sign; and there, the published sizes.
KINDS: dict[str, Any] = {
    **DATA,
    **MODELS,
    **OBJECTIVES,
    "plan": Plan,
    "recipe": Recipe,
    **{name: opened(config) for name, config in SIZES.items()},
}


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise UserError(f'"{name}" is no recipe.{nearest(name, RECIPES)}')
    return RECIPES[name]()


__all__ = ["KINDS", "MEASURES", "RECIPES", "Plan", "Recipe", "find_recipe", "opened"]
