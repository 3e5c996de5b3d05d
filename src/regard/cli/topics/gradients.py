"""`regard explain gradients`: how far back a network can learn from."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, Steps, follow, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.gradients import Reach
    from regard.render.report import Section

DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def gradients(
    length: Annotated[int, typer.Option(min=2, help="Inputs in a row.")] = 40,
    steps: Steps = 300,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """How far back a network can learn from.

    The size of ∂logit/∂input against the distance between the two, for an RNN, an LSTM, an LSTM with
    attention and a Transformer, before and after they learn to recall a marked symbol: all of them for as many steps.
    Takes a quarter to half a minute.

    \b
    Examples:
      regard explain gradients
      regard explain gradients --length 80 --steps 1000 -o gradients.html
    """
    from regard.explain.gradients import gradients as experiment

    found = follow(experiment(length, steps, seed))
    data = {"length": length, "steps": steps, "seed": seed, "networks": [vars(one) for one in found]}
    recalled = [f"{one.name}: recalls {one.accuracy:.0%} after {one.steps} steps (by chance 12.5%)" for one in found]
    tables = [_table(found, length, *when) for when in (("at first", "before"), ("after training", "after"))]
    terminal: list[RenderableType] = [*tables, "\n".join(recalled)]
    tell(Findings("How far back a network can learn from", data, terminal, _sections(found, length)), out, json)


def _table(found: "list[Reach]", length: int, when: str, key: str) -> Group:
    rows = [
        [str(distance), *(f"{getattr(one, key)[distance]:.1e}" for one in found)]
        for distance in sorted({*(d for d in DISTANCES if d < length), length - 1})
    ]
    return grid(f"‖∂logit/∂input‖ by distance, {when}", ["distance", *(one.name for one in found)], rows)


def _sections(found: "list[Reach]", length: int) -> "list[Section]":
    from regard.render import report as page

    def curve(title: str, key: str) -> page.Curve:
        lines = [page.Line(one.name, range(length), getattr(one, key)) for one in found]
        return page.Curve(title, "distance from the answer, in inputs", "‖∂logit/∂input‖", lines, log_y=True)

    words = paragraphs(
        f"Somewhere in a row of {length} random symbols one is marked; at the end the network must name it. The curves "
        "show how strongly its answer depends on the input so many places back: what training can learn from.",
        "In a plain RNN the gradient shrinks by about the same factor with every step back. The gates of an LSTM learn "
        "to let it pass. Attention is a path of length one to every input, before any training; a Transformer has no "
        "other.",
    )
    rows: list[list[page.Cell]] = [
        [one.name, f"{one.accuracy:.1%}", one.steps, one.before[-1], one.after[-1]] for one in found
    ]
    columns = ["network", "recalls", "steps of training", "farthest input, at first", "farthest input, trained"]
    curves = curve("At first", "before"), curve("After training", "after")
    return [page.Text(words), *curves, page.Table("", columns, rows)]
