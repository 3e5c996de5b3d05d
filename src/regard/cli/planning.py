"""What `regard train` trains: the recipe, and the model that it starts from."""

import shlex
from pathlib import Path

from rich.console import Console

from regard.cli.fetch import fetch_data
from regard.cli.lines import program
from regard.cli.options import all_kinds
from regard.errors import UserError
from regard.pretrained.hub import HUB_PREFIX, resolve_hub_path
from regard.recipes import Recipe, change, find_recipe
from regard.stored import stored_recipe
from regard.training.folder import is_run
from regard.training.parallel import Ranks
from regard.training.warm_start import WarmStart, warm_start_from, warm_started


def planned(
    name: str, settings: list[str], resumed: Path | None, download: bool, ranks: Ranks, console: Console
) -> tuple[Recipe, WarmStart | None]:
    """The recipe with its changes, and the model that from=DIR names, after any download."""
    changes = [setting for setting in settings if not setting.startswith("from=")]
    start = next((setting.removeprefix("from=") for setting in reversed(settings) if setting not in changes), None)
    if start is not None and resumed:
        raise UserError(f"from={start}: a run that is resumed has weights already; leave out from= or --resume.")
    init: WarmStart | None = None
    if start is None:
        recipe = _chosen(name, changes, resumed)
    else:
        recipe, init = _from(start, name, changes, download, ranks)
    if download:
        _fetch(recipe, start, ranks, console)
    return recipe, init


def _chosen(name: str, settings: list[str], resumed: Path | None) -> Recipe:
    """The recipe with its changes; for a run that is resumed, the recipe that it was started with.

    The name of that recipe may be the user's own; the name of another known recipe is refused.
    """
    kinds = all_kinds()
    if not (resumed and is_run(resumed)):
        return change(find_recipe(name, kinds), settings, kinds)
    recipe = stored_recipe(resumed, kinds)
    if recipe.name != name and recipe.name in kinds["recipe"]:
        command = shlex.join(["train", recipe.name, "--resume", "--out", str(resumed)])
        raise UserError(f"{resumed}: a run of {recipe.name}, not of {name}; say: {program()} {command}")
    return change(recipe, settings, kinds)


def _from(start: str, name: str, settings: list[str], download: bool, ranks: Ranks) -> tuple[Recipe, WarmStart]:
    """The recipe for the model that the run starts from, with its changes, and that model."""
    kinds = all_kinds()
    if download:
        if ranks.first:
            resolve_hub_path(start, download)
        ranks.broadcast([0.0])  # the others wait until it is here
    return warm_started(find_recipe(name, kinds), settings, warm_start_from(start, kinds), start, kinds)


def _fetch(recipe: Recipe, start: str | None, ranks: Ranks, console: Console) -> None:
    """Download the data, unless only the model of from= is to be downloaded. The first rank does, others wait."""
    public = bool(getattr(recipe.data, "files", ()))
    if ranks.first and (public or not (start or "").startswith(HUB_PREFIX)):
        fetch_data(recipe.data, console)
    ranks.broadcast([0.0])
