"""`regard ladder`: every attention score under one budget."""

import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from regard.cli import options
from regard.cli.figures import deviation, size, spread, title
from regard.cli.lines import say
from regard.cli.tables import grid

if TYPE_CHECKING:
    from regard.recipes import Recipe

INTERRUPTED = 130
Results = dict[str, list[dict[str, Any]]]  # by rung, one for each seed


def ladder(
    what: Annotated[str, typer.Argument(metavar="RECIPE|FILE", help="dates, sounds, another recipe, or your pairs.")],
    settings: options.Settings = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each rung, each with its own seed.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Of each run: plan.steps.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where it goes; runs/ladder-RECIPE where nothing is said.")] = None,
    json: options.Json = False,
    device: options.MaybeDevice = None,
) -> None:
    """Compare: no attention, then every score and window, in models of one size trained on the same tokens.

    Widths are chosen so that parameters agree within 5 %. Finished cells are kept: the same command goes on where it
    was stopped. The result is a table (mean ± standard deviation over the seeds), ladder.json and ladder.html.

    \b
    Examples:
      regard ladder dates --steps 400
      regard ladder sounds --seeds 5 --device cuda
      regard ladder pairs.tsv data.source_tokens=char plan.steps=2000
    """
    from regard.checkpoint import write_json
    from regard.cli.cells import cells, measure

    flags = {"steps": steps, "device": device}
    given = [*(settings or []), *(f"plan.{name}={value}" for name, value in flags.items() if value is not None)]
    recipe = _chosen(what, given)
    place = out or Path("runs") / f"ladder-{recipe.name}"
    console = Console(stderr=json)
    results: Results = defaultdict(list)
    todo = cells(recipe, seeds, place)
    try:
        for number, cell in enumerate(todo, 1):
            title = f"{cell.name}, seed {cell.seed} ({number}/{len(todo)})"
            results[cell.name].append(measure(cell, console, title))
    except KeyboardInterrupt:
        told = f"\nstopped; {place} keeps what was done, and the same command goes on from there."
        console.print(told, highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    rows = summary(results)
    write_json(place / "ladder.json", {"rows": rows, "cells": [one for every in results.values() for one in every]})
    page = _page(recipe, results, place)
    if json:
        say({"rows": rows, "page": page})
        return
    console.print("", grid(_title(recipe, results), *_cells(results)), "")
    console.print(f"The page: [bold]{escape(str(page))}[/]", highlight=False, soft_wrap=True)


def _chosen(what: str, settings: list[str]) -> "Recipe":
    """The recipe of a name, or that of your own pairs for a file."""
    from regard.config import override
    from regard.recipes import KINDS, RECIPES, find_recipe

    if what not in RECIPES and (Path(what).exists() or Path(what).suffix):
        return override(find_recipe("translate"), [f"data.train={what}", *settings], KINDS)
    return override(find_recipe(what), settings, KINDS)


def summary(results: Results) -> list[dict[str, Any]]:
    """A row for each rung: the mean over its seeds of everything measured, and the standard deviation of several."""
    rows = []
    for name, every in results.items():
        values = {measure: [one["scores"][measure] for one in every] for measure in every[0]["scores"]}
        speeds = [one["tokens_per_second"] for one in every]
        row = {"cell": name, "seeds": len(every), "parameters": every[0]["parameters"], "width": every[0]["width"]}
        means = {measure: {"mean": statistics.fmean(each), "sd": deviation(each)} for measure, each in values.items()}
        rows.append({**row, **means, "tokens_per_second": {"mean": statistics.fmean(speeds), "sd": deviation(speeds)}})
    return rows


def _cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table in text: its columns, its rows."""
    measures = list(dict.fromkeys(name for every in results.values() for name in every[0]["scores"]))
    rows = []
    for row in summary(results):
        told = [spread(name, **row[name]) if name in row else "–" for name in measures]
        rows.append([row["cell"], f"{row['parameters']:,}", *told, size(row["tokens_per_second"]["mean"])])
    return ["", "parameters", *map(title, measures), "tokens/s"], rows


def _title(recipe: "Recipe", results: Results) -> str:
    seeds, steps = len(next(iter(results.values()))), recipe.plan.steps
    told = f"{seeds} seeds, mean ± standard deviation" if seeds > 1 else "one seed"
    return f"{recipe.title}: {steps} steps, {told}"


def _page(recipe: "Recipe", results: Results, out: Path) -> Path:
    """ladder.html: the table, and the curves of every rung's first seed."""
    from regard.cli.conclude import curves
    from regard.config import tree
    from regard.view import report as page
    from regard.view.files import write

    columns, rows = _cells(results)
    runs = {
        name: out / "cells" / name.replace(" ", "-") / f"seed-{every[0]['seed']}" for name, every in results.items()
    }
    settings = "\n".join(f"{setting.name}={setting.value}" for setting in tree(recipe))
    words = "Every rung has the same number of parameters within 5 % and was trained on the same target tokens."
    sections: list[page.Section] = [
        page.Text(f"{_title(recipe, results)}.\n\n{words}"),
        page.Table("The ladder", columns, rows),
        *curves(runs, ("loss", *recipe.metrics)),
        page.Pre(settings, "Settings"),
    ]
    return write(out / "ladder.html", page.report(f"Ladder: {recipe.name}", sections))
