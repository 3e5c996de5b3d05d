"""`regard explain scaling`: why dot products are divided by √width."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, TopicResult, join_paragraphs, show

if TYPE_CHECKING:
    from regard.explain.scaling import Scaling
    from regard.render.report import Section

COLUMNS = ("spread", "entropy", "largest", "gradient")


def command(
    keys: Annotated[int, typer.Option(min=2, max=4096, help="Keys of each query.")] = 64,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Why dot products are divided by the square root of the width.

    Queries and keys are random; every component has mean 0 and variance 1. Their dot product is a sum of `width` such
    products, so its variance is `width`. With a large variance, the softmax gives almost all weight to one key. There
    its gradient is almost 0, so the head can hardly learn to attend to another key. After division by √width the
    logits have variance 1 at every width.

    Measured for every width, with and without the division: the standard deviation (spread) of the logits, the entropy
    of the weights (ln keys if they are uniform), the largest weight, and the size of ∂weights/∂logits for the median
    query. Takes two seconds.

    \b
    Examples:
      regard explain scaling
      regard explain scaling --keys 512 -o scaling.html
    """
    from regard.explain import scaling

    results = scaling.run(keys=keys, seed=seed)
    first, last = results[0], results[-1]
    verdict = (
        f"Without the division, the largest weight is on average {first.unscaled.largest:.0%} at width {first.width} "
        f"and {last.unscaled.largest:.0%} at width {last.width}. At width {last.width} the gradient is "
        f"{last.unscaled.gradient / last.scaled.gradient:.2g} times the gradient with the division.\n"
        f"Uniform weights over {keys} keys have entropy {scaling.uniform_entropy(keys):.2f}."
    )
    columns = ["width", *(f"{name}\n{score}" for score in ("q·k", "q·k/√d") for name in COLUMNS)]
    table = grid(f"Softmax over {keys} keys", columns, [_row(one) for one in results])
    data = {
        "keys": keys,
        "seed": seed,
        "widths": [{"width": one.width, "unscaled": vars(one.unscaled), "scaled": vars(one.scaled)} for one in results],
    }
    sections = _sections(results, keys, verdict)
    show(TopicResult("Why dot products are divided by √width", data, [table, verdict], sections), out, json)


def _row(one: "Scaling") -> list[str]:
    cells = [
        f"{value:.1e}" if name == "gradient" else f"{value:.2f}"
        for statistics in (one.unscaled, one.scaled)
        for name, value in ((name, getattr(statistics, name)) for name in COLUMNS)
    ]
    return [str(one.width), *cells]


def _sections(results: "list[Scaling]", keys: int, verdict: str) -> "list[Section]":
    from regard.render import report

    def curve(title: str, name: str, label: str, log_y: bool) -> report.Curve:
        widths = [one.width for one in results]
        lines = [
            report.Line("q·k / √width", widths, [getattr(one.scaled, name) for one in results]),
            report.Line("q·k", widths, [getattr(one.unscaled, name) for one in results]),
        ]
        return report.Curve(title, "width of queries and keys", label, lines, log_y=log_y, log_x=True)

    def heatmap(title: str, score: str) -> report.Heatmap:
        values = [getattr(one, score).sorted[:24] for one in results]
        widths, ranks = [str(one.width) for one in results], [str(at + 1) for at in range(len(values[0]))]
        return report.Heatmap(title, "keys by rank", "width", values, widths, ranks, 14, vmax=1.0)

    text = join_paragraphs(
        "Queries and keys are random; every component has mean 0 and variance 1. Their dot product is a sum over all "
        "components, so its variance is the width. In wide heads the logits are therefore far apart.",
        f"With such logits, the softmax gives almost all weight to one of the {keys} keys. There its gradient is "
        "almost 0, so the head can hardly learn to attend to another key. After division by √width the logits have "
        "variance 1 at every width, and the weights stay spread over several keys (Vaswani et al. 2017, §3.2.1).",
    )
    names = ["width", *(f"{name}, {score}" for score in ("q·k", "q·k/√d") for name in COLUMNS)]
    return [
        report.Text(text),
        curve("Entropy of the weights", "entropy", "entropy, nats", False),
        curve("Gradient of the softmax", "gradient", "‖∂weights/∂logits‖, median", True),
        report.Heatmaps("The weights of one query", [heatmap("q·k / √width", "scaled"), heatmap("q·k", "unscaled")]),
        report.Table("All numbers", names, [_row(one) for one in results], note=verdict.replace("\n", " ")),
    ]
