"""Shell completion of recipes and settings. Its tables are in a file, so that a completion does not import torch.

`python tests/cli/test_completion.py` writes completion.json from the tables of the recipes.
"""

import json
from collections.abc import Iterator
from importlib.resources import files

import typer

_TABLES = json.loads(files("regard.cli").joinpath("completion.json").read_text(encoding="utf-8"))
RECIPES: dict[str, str] = _TABLES["recipes"]  # the kinds of its data, model and objective
KINDS: dict[str, str] = _TABLES["kinds"]  # of each part of a recipe
SETTINGS: dict[str, str] = _TABLES["settings"]  # of the plan, and of each kind of the other parts
CELLS = ("rnn", "lstm", "gru")  # names of model=recurrent


def recipe_names(incomplete: str) -> list[str]:
    """The recipes whose names start like this."""
    return [name for name in RECIPES if name.startswith(incomplete)]


def setting_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The settings `name=` of the recipe on the command line, or the kinds `model=KIND` of a part, with this start.

    Bash splits words at "=": there `model=g` arrives as three words.
    """
    given = list(ctx.params.get("settings") or [])
    if given[-1:] == ["="]:
        return [kind for kind in _kinds_of(given[-2]) if kind.startswith(incomplete)]
    name, equals, _ = incomplete.partition("=")
    if equals:
        return [word for kind in _kinds_of(name) if (word := f"{name}={kind}").startswith(incomplete)]
    recipe = ctx.params.get("recipe") or ctx.params.get("name") or ctx.params.get("what") or ""
    stated = dict(word.split("=", 1) for word in " ".join(given).replace(" = ", "=").split() if "=" in word)
    return [name for name in _settings(recipe, stated) if name.startswith(incomplete)]


def plan_settings() -> list[str]:
    """The names of the settings of a plan."""
    return SETTINGS["plan"].split()


def _kinds_of(part: str) -> list[str]:
    return KINDS.get(part, "").split()


def _settings(recipe: str, stated: dict[str, str]) -> Iterator[str]:
    yield from (f"{name}=" for name in (*KINDS, "metrics", "from"))
    yield from (f"plan.{name}=" for name in plan_settings())
    own = dict(zip(("data", "model", "objective"), RECIPES.get(recipe, "").split())) | {"head": "class"} | stated
    for part in KINDS:
        kind = "recurrent" if own.get(part) in CELLS else own.get(part, "")
        # A published size has the settings of the family that its name starts with, if that is the family's name.
        kind = kind if f"{part}={kind}" in SETTINGS else next((k for k in _kinds_of(part) if kind.startswith(k)), "")
        yield from (f"{part}.{name}=" for name in SETTINGS.get(f"{part}={kind}", "").split())
