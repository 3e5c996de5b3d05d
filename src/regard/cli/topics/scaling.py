"""`regard explain scaling`: why dot products are divided by √width."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.scaling import Scaling
    from regard.render.report import Section


def scaling(
    keys: Annotated[int, typer.Option(min=2, max=4096, help="That each query chooses from.")] = 64,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Why dot products are divided by the square root of the width.

    Queries and keys are random, every number with mean 0 and variance 1. Their dot product is a sum of `width` such
    products, so its variance is the width. A softmax over logits that far apart gives everything to one key, and then
    its gradient is nothing: the head cannot learn to look elsewhere. Divided by √width the logits have variance 1 at
    any width.

    Measured at every width, with and without the division: the spread of the logits, the entropy of the weights (an
    even mixture has ln keys), the largest weight, and the size of ∂weights/∂logits for the median query. Takes two
    seconds.

    \b
    Examples:
      regard explain scaling
      regard explain scaling --keys 512 -o scaling.html
    """
    from regard.explain.scaling import even
    from regard.explain.scaling import scaling as measured

    found = measured(keys=keys, seed=seed)
    first, last = found[0], found[-1]
    verdict = (
        f"Undivided, the softmax gives its first choice {first.plain.largest:.0%} at width {first.width} and "
        f"{last.plain.largest:.0%} at width {last.width}, where its gradient is "
        f"{last.plain.gradient / last.scaled.gradient:.2g} times that of the divided one.\n"
        f"An even mixture of {keys} keys has entropy {even(keys):.2f}."
    )
    columns = ["width", *(f"{name}\n{how}" for how in ("q·k", "q·k/√d") for name in COLUMNS)]
    table = grid(f"A softmax over {keys} keys", columns, [_row(one) for one in found])
    data = {
        "keys": keys,
        "seed": seed,
        "widths": [{"width": one.width, "plain": vars(one.plain), "scaled": vars(one.scaled)} for one in found],
    }
    tell(
        Findings("Why dot products are divided by √width", data, [table, verdict], _sections(found, keys, verdict)),
        out,
        json,
    )


COLUMNS = ("spread", "entropy", "largest", "gradient")


def _row(one: "Scaling") -> list[str]:
    cells = [
        f"{value:.1e}" if name == "gradient" else f"{value:.2f}"
        for how in (one.plain, one.scaled)
        for name, value in ((name, getattr(how, name)) for name in COLUMNS)
    ]
    return [str(one.width), *cells]


def _sections(found: "list[Scaling]", keys: int, verdict: str) -> "list[Section]":
    from regard.render import report as page

    def curve(title: str, name: str, label: str, log_y: bool) -> page.Curve:
        widths = [one.width for one in found]
        lines = [
            page.Line("q·k / √width", widths, [getattr(one.scaled, name) for one in found]),
            page.Line("q·k", widths, [getattr(one.plain, name) for one in found]),
        ]
        return page.Curve(title, "width of queries and keys", label, lines, log_y=log_y, log_x=True)

    def heat(title: str, how: str) -> page.Heatmap:
        values = [getattr(one, how).sorted[:24] for one in found]
        widths, places = [str(one.width) for one in found], [str(at + 1) for at in range(len(values[0]))]
        return page.Heatmap(title, "keys, the best first", "width", values, widths, places, 14, vmax=1.0)

    words = paragraphs(
        "Queries and keys are random, every number with mean 0 and variance 1. Their dot product is a sum of as many "
        "such products as they are wide, so its variance is the width. The wider the head, the further apart the "
        "logits.",
        f"A softmax over logits that far apart gives everything to one of the {keys} keys. It is then flat on all "
        "sides: its gradient is next to nothing, and the head cannot learn to look elsewhere. Divided by √width the "
        "logits have variance 1 at any width, and the softmax stays soft (Vaswani et al. 2017, §3.2.1).",
    )
    names = ["width", *(f"{name}, {how}" for how in ("q·k", "q·k/√d") for name in COLUMNS)]
    return [
        page.Text(words),
        curve("How soft the softmax is", "entropy", "entropy of the weights, nats", False),
        curve("What it can learn from", "gradient", "‖∂weights/∂logits‖, median", True),
        page.Heatmaps("One query and its weights", [heat("q·k / √width", "scaled"), heat("q·k", "plain")]),
        page.Table("In figures", names, [_row(one) for one in found], note=verdict.replace("\n", " ")),
    ]
