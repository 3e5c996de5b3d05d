"""`regard explain`: an idea, shown by a small experiment."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.markup import escape

from regard.cli import options
from regard.cli.lines import say
from regard.cli.tables import grid
from regard.errors import UserError, nearest

if TYPE_CHECKING:
    from regard.explain.gradients import Reach

DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="gradients: how far back a network can learn from.")],
    length: Annotated[int, typer.Option(min=2, help="Inputs in a row.")] = 60,
    seconds: Annotated[float, typer.Option(min=0, help="Training of each network, at most.")] = 15.0,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of the first weights and of every example.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the curves to this .html.")] = None,
    json: options.Json = False,
) -> None:
    """Make an idea visible: run a small experiment, print a table and, with -o, write a page with its curves.

    gradients: the size of ∂logit/∂input against the distance between the two, for an RNN, an LSTM and an LSTM with
    attention, before and after they learn to recall a marked symbol. Takes less than a minute.

    \b
    Examples:
      regard explain gradients
      regard explain gradients --length 200 -o gradients.html
    """
    topics: dict[str, Callable[..., None]] = {"gradients": _gradients}
    if topic not in topics:
        raise UserError(f'"{topic}" is no topic.{nearest(topic, topics)}')
    if out is not None and out.suffix.lower() != ".html":
        raise UserError(f"--out {out}: the page is HTML; end its name in .html.")
    topics[topic](length, seconds, seed, out, json)


def _gradients(length: int, seconds: float, seed: int, out: Path | None, json: bool) -> None:
    from regard.explain.gradients import gradients

    console = Console()
    with Console(stderr=True).status("three networks learn to recall …"):
        found = gradients(length, seconds, seed=seed)
    if out is not None:
        _page(found, length, out)
    if json:
        say({"length": length, "seed": seed, "page": out, "networks": [vars(one) for one in found]})
        return
    console.print(_table(found, length))
    for one in found:
        console.print(f"{one.name}: recalls {one.accuracy:.0%} after {one.steps} steps (chance 12.5%)", highlight=False)
    if out is not None:
        console.print(f"\nThe curves: [bold]{escape(str(out))}[/]", highlight=False, soft_wrap=True)


def _table(found: "list[Reach]", length: int) -> Group:
    columns = ["distance", *(f"{one.name}\n{when}" for one in found for when in ("at first", "trained"))]
    rows = [
        [str(distance), *(f"{curve[distance]:.1e}" for one in found for curve in (one.before, one.after))]
        for distance in sorted({*(d for d in DISTANCES if d < length), length - 1})
    ]
    return grid("‖∂logit/∂input‖ by distance", columns, rows)


def _page(found: "list[Reach]", length: int, out: Path) -> None:
    from regard.view import report as page
    from regard.view.files import write

    def curve(title: str, key: str) -> page.Curve:
        lines = [page.Line(one.name, range(length), getattr(one, key)) for one in found]
        return page.Curve(title, "distance from the answer, in inputs", "‖∂logit/∂input‖", lines, log_y=True)

    words = (
        f"Somewhere in a row of {length} random symbols one is marked; at the end the network must name it. The curves "
        "show how strongly its answer depends on the input so many places back: what training can learn from.\n\n"
        "In a plain RNN the gradient shrinks by about the same factor with every step back. The gates of an LSTM learn "
        "to let it pass. Attention is a path of length one to every input, before any training."
    )
    rows: list[list[page.Cell]] = [
        [one.name, f"{one.accuracy:.1%}", one.steps, one.before[-1], one.after[-1]] for one in found
    ]
    columns = ["network", "recalls", "steps of training", "farthest input, at first", "farthest input, trained"]
    curves = curve("At first", "before"), curve("After training", "after")
    sections: list[page.Section] = [page.Text(words), *curves, page.Table("", columns, rows)]
    write(out, page.report("How far back a network can learn from", sections))
