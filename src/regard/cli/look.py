"""`regard look`: the attention of one sentence, in the terminal or as a file."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli import options
from regard.cli.lines import say
from regard.errors import UserError


def look(
    run: options.Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model is to read.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write .html (steps, hover), .svg or .npz.")] = None,
    target: Annotated[str | None, typer.Option(help="Make the model say this instead of its own answer.")] = None,
    beam: options.Beam = 1,
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    long: options.Long = "error",
) -> None:
    """Show where a model looks: each row is a piece that it says, each column a piece that it reads.

    The HTML is one file that opens offline: exact numbers on hover, and the arrow keys step through decoding (state,
    weights, context, the five likeliest pieces).

    \b
    Examples:
      regard look runs/dates "3 février 2021"
      regard look runs/dates "3 février 2021" -o look.html
      regard look runs/dates "3 février 2021" --target 2021-02-03 -o look.svg
    """
    from rich.console import Console

    from regard import verbs

    view = verbs.look(verbs.load(run, device, precision, long), text, target, beam)
    if not view.layers and out is not None and out.suffix.lower() != ".html":
        raise UserError(f"{run}: no attention to write to {out}; a page, -o look.html, shows how it decodes.")
    if json:
        layers = {layer.name: layer.weights for layer in view.layers}
        say({"title": view.title, "rows": view.rows, "columns": view.columns, "layers": layers})
    elif out is None:
        Console().print(view.text())
    if out is not None:
        view.save(out)
        Console(stderr=True).print(f"wrote {out}", highlight=False, markup=False, soft_wrap=True)
