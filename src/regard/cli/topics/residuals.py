"""`regard explain residuals`: what residual connections carry."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, Steps, follow, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.residuals import Panel
    from regard.render.report import Section

NOTE = (
    "“Place known” is how much of a word's place a linear guess can read off what each layer is given, and off what "
    "comes out (R²: 1 is all of it). “Looks there” is the attention of a layer's best head to the place the task "
    "asks for. Layers count from 0."
)


def residuals(
    length: Annotated[int, typer.Option(min=4, max=128, help="Symbols in a text.")] = 12,
    steps: Steps = 320,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What residual connections carry: where words stand, for one.

    Three encoders of three layers learn to name the symbol two places before. One has residual connections; one has
    not, so that a layer knows only what attention brought it; the third has none either, but is told the positions
    again before every layer ("timing signals"). Shown, layer by layer: how much of a word's place its state still
    tells, and how much the best head looks where it should. Takes less than a minute.

    \b
    Examples:
      regard explain residuals
      regard explain residuals --steps 1000 -o residuals.html
    """
    from regard.explain.residuals import residuals as experiment

    found = follow(experiment(length, steps, seed))
    columns, rows = ["", *(one.name.replace(", with ", ", with\n") for one in found)], _rows(found)
    data = {"length": length, "steps": steps, "seed": seed, "panels": [vars(one) for one in found]}
    terminal: list[RenderableType] = [grid("The symbol two places before", columns, rows), f"[dim]{NOTE}[/]"]
    tell(Findings("What residual connections carry", data, terminal, _sections(found, rows)), out, json)


def _rows(found: "list[Panel]") -> list[list[str]]:
    """A network to a column, a figure to a row."""
    layers = len(found[0].there)
    known = [*(f"place known, layer {at}" for at in range(layers)), "place known, out"]
    names = ["loss", "right", *known, *(f"looks there, layer {at}" for at in range(layers))]
    figures = [
        [f"{one.loss:.3f}", f"{one.accuracy:.0%}", *(f"{value:.2f}" for value in (*one.known, *one.there))]
        for one in found
    ]
    return [list(row) for row in zip(names, *figures)]


def _sections(found: "list[Panel]", rows: list[list[str]]) -> "list[Section]":
    from regard.render import report as page

    words = paragraphs(
        "Three encoders of three layers learn to name the symbol that stood two places before. To look two places "
        "back a layer must know where each word stands.",
        "With residual connections everything a layer was given goes on to the next, positions too. Without them a "
        "layer knows only what attention brought it: where its words stand is lost after the first mixture, and then "
        "all words look at the same places. Told again before every layer, positions are there again, and so is the "
        "diagonal.",
    )
    side = max(3, min(16, 192 // len(found[0].weights[0])))

    def panel(one: "Panel") -> page.Heatmaps:
        heats = [
            page.Heatmap(f"layer {at}", "looks at", "word", weights, side=side, vmax=1.0)
            for at, weights in enumerate(one.weights)
        ]
        return page.Heatmaps(f"{one.name[0].upper()}{one.name[1:]}: {one.accuracy:.0%} right", heats)

    lines = [page.Line(one.name, range(len(one.known)), one.known) for one in found]
    curve = page.Curve(
        "What is left of a word's place", "before layer … (last: after all)", "R² of a linear guess", lines
    )
    return [
        page.Text(words),
        *map(panel, found),
        curve,
        page.Table("In figures", ["", *(one.name for one in found)], rows, NOTE),
    ]
