"""One function per experiment, and the names of everything that a recipe may hold."""

from collections.abc import Callable

from regard.errors import UserError, nearest
from regard.models import MODELS
from regard.recipes.made import dates, sounds
from regard.recipes.plan import Plan
from regard.recipes.recipe import DATA, MEASURES, OBJECTIVES, Recipe
from regard.recipes.texts import labels, text
from regard.recipes.translation import greek, multi30k_de_en, translate

RECIPES: dict[str, Callable[[], Recipe]] = {
    "dates": dates,
    "sounds": sounds,
    "translate": translate,
    "multi30k-de-en": multi30k_de_en,
    "greek": greek,
    "text": text,
    "labels": labels,
}

# Every dataclass that may stand in a recipe.json or after a setting's equals sign.
KINDS: dict[str, type] = {**DATA, **MODELS, **OBJECTIVES, "plan": Plan, "recipe": Recipe}


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise UserError(f'"{name}" is no recipe.{nearest(name, RECIPES)}')
    return RECIPES[name]()


__all__ = ["KINDS", "MEASURES", "RECIPES", "Plan", "Recipe", "find_recipe"]
