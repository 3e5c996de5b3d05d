"""What is published keeps its settings: recipes, sizes and the models of the ladder of sequences, as in `settings.txt`.

python tests/recipes/test_recipe_settings.py      writes the file anew, after an intended change; then measure anew

Each has the settings that differ from the defaults of its parts. docs/RESULTS.md was measured with them.
"""

from pathlib import Path
from typing import Any

from regard.config import format_value, tree
from regard.models import SIZES
from regard.recipes import RECIPES, Plan, Recipe, find_recipe
from regard.training.ladder.sequences import ROWS

FILE = Path(__file__).parent / "settings.txt"


def differing(given: Any, plain: Any) -> str:
    """The settings that are not those of `plain`."""
    known = {one.name: one.value for one in tree(plain)}
    return " ".join(f"{one.name}={format_value(one.value)}" for one in tree(given) if known.get(one.name) != one.value)


def of_recipe(recipe: Recipe) -> str:
    """The kinds of the parts, and their settings."""
    parts = {name: type(getattr(recipe, name)) for name in ("data", "model", "objective")}
    plain = Recipe(recipe.name, recipe.title, **{name: kind() for name, kind in parts.items()}, plan=Plan())
    return " ".join([*(kind.__name__ for kind in parts.values()), differing(recipe, plain)])


def of_model(config: Any) -> str:
    """The kind of a model and its settings."""
    return f"{type(config).__name__} {differing(config, type(config)())}"


def published() -> dict[str, str]:
    """Everything that is published, by name."""
    models = {f"ladder {row.name} {family}": each[0] for row in ROWS for family, each in row.models().items()}
    models |= {f"size {name}": config for name, config in SIZES.items()}
    recipes = {f"recipe {name}": of_recipe(find_recipe(name)) for name in RECIPES}
    return recipes | {name: of_model(config) for name, config in models.items()}


def stored() -> dict[str, str]:
    """What the file has."""
    lines = (line.partition(": ") for line in FILE.read_text(encoding="utf-8").splitlines())
    return {name: settings for name, _, settings in lines}


def test_settings_are_those_of_the_file() -> None:
    found, expected = published(), stored()
    assert list(found) == list(expected)
    assert {name: found[name] for name in found if found[name] != expected[name]} == {}


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}: {settings}\n" for name, settings in published().items()), encoding="utf-8")
