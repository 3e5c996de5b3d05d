"""What `regard train` trains: the recipe, the model that it starts from, and the data, downloaded on request."""

import shlex
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from regard.cli.lines import program
from regard.cli.options import all_kinds
from regard.data.download import REMOTE_FILES, DownloadProgress, download
from regard.errors import UserError
from regard.pretrained.hub import HUB_PREFIX, resolve_hub_path
from regard.recipes import Recipe, change, find_recipe
from regard.stored import stored_recipe
from regard.training.folder import is_run
from regard.training.parallel import Ranks
from regard.training.warm_start import WarmStart, warm_start_from, warm_started


def planned(
    name: str, settings: list[str], resumed: Path | None, fetch: bool, ranks: Ranks, console: Console
) -> tuple[Recipe, WarmStart | None]:
    """The recipe with its changes, and the model that from=DIR names, after any download.

    A run that is resumed has the recipe that it was started with. The name of that recipe may be the user's own; the
    name of another known recipe is refused. The first rank downloads, the others wait.
    """
    kinds = all_kinds()
    changes = [setting for setting in settings if not setting.startswith("from=")]
    start = next((setting.removeprefix("from=") for setting in reversed(settings) if setting not in changes), None)
    if start is not None and resumed:
        raise UserError(f"from={start}: a run that is resumed has weights already; leave out from= or --resume.")
    init: WarmStart | None = None
    if start is not None:
        if fetch:
            if ranks.first:
                resolve_hub_path(start, fetch)
            ranks.broadcast([0.0])
        recipe, init = warm_started(find_recipe(name, kinds), changes, warm_start_from(start, kinds), start, kinds)
    elif resumed and is_run(resumed):
        recipe = stored_recipe(resumed, kinds)
        if recipe.name != name and recipe.name in kinds["recipe"]:
            command = shlex.join(["train", recipe.name, "--resume", "--out", str(resumed)])
            raise UserError(f"{resumed}: a run of {recipe.name}, not of {name}; say: {program()} {command}")
        recipe = change(recipe, changes, kinds)
    else:
        recipe = change(find_recipe(name, kinds), changes, kinds)
    if fetch:
        only_model = (start or "").startswith(HUB_PREFIX) and not getattr(recipe.data, "files", ())
        if ranks.first and not only_model:
            fetch_data(recipe.data, console)
        ranks.broadcast([0.0])
    return recipe, init


def fetch_data(data: object, console: Console) -> None:
    """Download the missing files of the data, with a progress bar for each and a line when it is complete."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: DownloadProgress) -> None:
            name, sha256 = progress.name, progress.sha256
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=progress.total)
            bars.update(tasks[name], completed=progress.bytes)
            if sha256 is not None:
                remote = REMOTE_FILES.get(name)
                checked = "as expected" if remote and remote.sha256 else "not checked, written to a file beside it"
                line = f"{name}: {progress.bytes:,} bytes from {progress.url}, SHA-256 {sha256}, {checked}"
                console.out(line, highlight=False)

        download(data, show)
