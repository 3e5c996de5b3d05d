"""`regard explain gradients`: vanishing gradients in recurrent networks, and attention as the remedy."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, Steps, TopicResult, join_paragraphs, run_with_progress, show

if TYPE_CHECKING:
    from regard.explain.gradients import GradientNorms
    from regard.render.report import Section

DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def command(
    length: Annotated[int, typer.Option(min=2, help="Inputs of a sequence.")] = 40,
    steps: Steps = 300,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Vanishing gradients: how far back a network can learn from.

    One symbol of a random sequence is marked, and at the end the network must name it. Shown is the size of
    ∂logit/∂input against the distance between input and output, before and after training, for an RNN, an LSTM, an
    LSTM with attention and a Transformer. All train for the same number of steps. Takes 15 to 30 seconds.

    \b
    Examples:
      regard explain gradients
      regard explain gradients --length 80 --steps 1000 -o gradients.html
    """
    from regard.explain import gradients

    networks = run_with_progress(gradients.run(length, steps, seed))
    data = {"length": length, "steps": steps, "seed": seed, "networks": [vars(one) for one in networks]}
    accuracies = [
        f"{one.name}: accuracy {one.accuracy:.0%} after {one.steps} steps (chance: 12.5%)" for one in networks
    ]
    times = (("before training", "before"), ("after training", "after"))
    tables = [_table(networks, length, title, key) for title, key in times]
    terminal: list[RenderableType] = [*tables, "\n".join(accuracies)]
    show(TopicResult("Vanishing gradients", data, terminal, _sections(networks, length)), out, json)


def _table(networks: "list[GradientNorms]", length: int, title: str, key: str) -> Group:
    rows = [
        [str(distance), *(f"{getattr(one, key)[distance]:.1e}" for one in networks)]
        for distance in sorted({*(d for d in DISTANCES if d < length), length - 1})
    ]
    return grid(f"‖∂logit/∂input‖ by distance, {title}", ["distance", *(one.name for one in networks)], rows)


def _sections(networks: "list[GradientNorms]", length: int) -> "list[Section]":
    from regard.render import report

    def curve(title: str, key: str) -> report.Curve:
        lines = [report.Line(one.name, range(length), getattr(one, key)) for one in networks]
        return report.Curve(title, "distance between input and output", "‖∂logit/∂input‖", lines, log_y=True)

    text = join_paragraphs(
        f"In a sequence of {length} random symbols one is marked; at the end the network must name it. The curves show "
        "the size of the gradient of the output with respect to each input. If it is almost 0, training cannot learn "
        "from that input.",
        "In a plain RNN the gradient shrinks by about the same factor at every step back in time. An LSTM learns to "
        "set its gates so that the gradient is preserved. Attention connects the output to every input by a path of "
        "length one, also before training. In a Transformer all paths are of this kind.",
    )
    rows: list[list[report.Cell]] = [
        [one.name, f"{one.accuracy:.1%}", one.steps, one.before[-1], one.after[-1]] for one in networks
    ]
    columns = ["network", "accuracy", "training steps", "first input, before training", "first input, after training"]
    curves = curve("Before training", "before"), curve("After training", "after")
    note = "The last two columns are ‖∂logit/∂input‖ for the first input, which is the most distant one."
    return [report.Text(text), *curves, report.Table("", columns, rows, note)]
