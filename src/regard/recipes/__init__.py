"""Recipes, one function per experiment, and the tables of names that a recipe may use."""

from regard.config import Kinds
from regard.errors import UserError, nearest
from regard.heads import HEADS
from regard.metrics import METRICS
from regard.models import CELLS, MODELS, SIZES, HeadedConfig, TwoDirectionsConfig
from regard.recipes.experiments import RECIPES
from regard.recipes.recipe import DATA, OBJECTIVES, Plan, Recipe, change, find_task, model_config, without_vocabularies
from regard.tasks import TASKS

# The names that settings, recipe.json and the command line use: one table per part of a recipe.
KINDS: Kinds = {
    "recipe": RECIPES,
    "data": DATA,
    "model": {**MODELS, **CELLS, **{name: without_vocabularies(config) for name, config in SIZES.items()}},
    "head": HEADS,
    "objective": OBJECTIVES,
    "task": TASKS,
    "metric": METRICS,
    "node": {"plan": Plan, "recipe": Recipe, "headed": HeadedConfig, "directions": TwoDirectionsConfig},
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
