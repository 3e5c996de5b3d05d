"""`regard explain residuals`: residual connections carry positions through the layers."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, Steps, TopicResult, join_paragraphs, run_with_progress, show

if TYPE_CHECKING:
    from regard.explain.residuals import NetworkResult
    from regard.render.report import Section

NOTE = (
    "“position R²” is the R² of a linear probe that predicts the position of a word from its state: 1 means that the "
    "state contains the position, 0 that it does not. It is measured at the input of each layer and at the output. "
    "“attention” is the weight of a layer's best head on the symbol two positions earlier. Layers count from 0."
)


def command(
    length: Annotated[int, typer.Option(min=4, max=128, help="Symbols of a text.")] = 12,
    steps: Steps = 320,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Residual connections carry the positions of words.

    Three encoders with three layers learn to predict the symbol two positions earlier. The first has residual
    connections. The second has none, so the input of a layer is only what the layer before computed. The third has none
    either, but positions are added again before every layer ("timing signals"). Shown for each layer: how well a
    linear probe can predict a word's position from its state, and how much the best head attends to the correct
    position. Takes less than a minute.

    \b
    Examples:
      regard explain residuals
      regard explain residuals --steps 1000 -o residuals.html
    """
    from regard.explain import residuals

    networks = run_with_progress(residuals.run(length, steps, seed))
    columns, rows = ["", *(one.name.replace(", with ", ", with\n") for one in networks)], _rows(networks)
    data = {"length": length, "steps": steps, "seed": seed, "networks": [vars(one) for one in networks]}
    terminal: list[RenderableType] = [grid("The symbol two positions earlier", columns, rows), f"[dim]{NOTE}[/]"]
    show(TopicResult("What residual connections carry", data, terminal, _sections(networks, rows)), out, json)


def _rows(networks: "list[NetworkResult]") -> list[list[str]]:
    """One column per network, one row per number."""
    layers = range(len(networks[0].offset_attention))
    names = ["loss", "accuracy", *(f"position R², layer {at}" for at in layers), "position R², output"]
    names += [f"attention, layer {at}" for at in layers]
    columns = [
        [f"{one.loss:.3f}", f"{one.accuracy:.0%}", *(f"{v:.2f}" for v in (*one.position_r2, *one.offset_attention))]
        for one in networks
    ]
    return [list(row) for row in zip(names, *columns)]


def _sections(networks: "list[NetworkResult]", rows: list[list[str]]) -> "list[Section]":
    from regard.render import report

    text = join_paragraphs(
        "Three encoders with three layers learn to predict the symbol two positions earlier. To attend to that "
        "position, a layer needs the position of each word.",
        "With residual connections, the input of a layer is added to its output, so positions pass through all layers. "
        "Without them, a state is only a mixture of other states: the positions are lost after the first layer, and "
        "then all words attend to the same places. If positions are added again before every layer, the heads can "
        "attend to the correct position again, and the diagonal returns.",
    )
    side = max(3, min(16, 192 // len(networks[0].weights[0])))
    heatmaps = [
        report.Heatmaps(
            f"{one.name[0].upper()}{one.name[1:]}: accuracy {one.accuracy:.0%}",
            [
                report.Heatmap(f"layer {at}", "key", "query", weights, side=side, vmax=1.0)
                for at, weights in enumerate(one.weights)
            ],
        )
        for one in networks
    ]
    lines = [report.Line(one.name, range(len(one.position_r2)), one.position_r2) for one in networks]
    curve = report.Curve(
        "How well a state predicts its position", "input of layer (last: output)", "R² of a linear probe", lines
    )
    table = report.Table("All numbers", ["", *(one.name for one in networks)], rows, NOTE)
    return [report.Text(text), *heatmaps, curve, table]
