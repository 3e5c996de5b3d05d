"""`regard explain positions`: what a Transformer knows of order, and how far it reaches."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, Steps, follow, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.positions import Positions
    from regard.render.report import Section

ORDER = ["positions", "difference"]


def positions(
    length: Annotated[int, typer.Option(min=6, max=256, help="Texts in training have at most so many symbols.")] = 16,
    steps: Steps = 300,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What a Transformer knows of order: nothing until it is told.

    "man bites dog" against "dog bites man": without positions the encoder's states are the same, in another order, to
    the last digit; with any kind of positions they differ.

    Then a task that is all about places: name the symbol that stood two places before. Small encoders with no
    positions, sinusoids, a learned table, T5's bias and relative keys learn it on short texts and are tried on longer
    ones, up to four times as long. The page shows the sinusoids beside a binary counter. Takes less than a minute.

    \b
    Examples:
      regard explain positions
      regard explain positions --length 32 --steps 1000 -o positions.html
    """
    from regard.explain.positions import positions as experiment

    found = follow(experiment(length, steps=steps, seed=seed))
    order = [[one.positions, f"{one.difference:.1e}"] for one in found.order]
    columns = ["positions", *(f"length\n{n}" for n in found.reach[0].lengths)]
    reach = [[one.positions, *(f"{share:.1%}" for share in one.accuracy)] for one in found.reach]
    titles = (
        "states(dog bites man) − states(man bites dog), put in the same order",
        f"The symbol two places before: right, after training on lengths up to {length} (by chance 8.3%)",
    )
    data = {
        "trained": length,
        "steps": steps,
        "seed": seed,
        "order": {one.positions: one.difference for one in found.order},
        "reach": [vars(one) for one in found.reach],
    }
    terminal = [grid(titles[0], ORDER, order), grid(titles[1], columns, reach)]
    tell(Findings("Where words stand", data, terminal, _sections(found, titles, columns, order, reach)), out, json)


def _sections(
    found: "Positions", titles: tuple[str, str], columns: list[str], order: list[list[str]], reach: list[list[str]]
) -> "list[Section]":
    from regard.render import report as page

    first = paragraphs(
        "Attention is a sum over a set: it does not know which word came first. Put the words in another order, and "
        "the states come out in that other order, otherwise unchanged. “dog bites man” is “man bites dog”.",
        "So the model is told where words stand: by a vector added to each embedding (sinusoids, or a learned "
        "table), or by something added to each comparison (T5's bias, relative keys).",
    )
    second = (
        "Sinusoids are a smooth binary counter. The lowest bit of a counter changes at every step, the next at every "
        "second, the next at every fourth; the numbers of a sinusoid go round at speeds that fall from one radian a "
        "step to one ten-thousandth."
    )
    bits = ["8", "4", "2", "1"]
    heats = [
        page.Heatmap("sin and cos, width 48", "number in the vector", "position", found.encodings, side=11),
        page.Heatmap("a counter of four bits", "bit", "position", found.counter, columns=bits, side=11),
    ]
    lines = [page.Line(one.positions, one.lengths, [100 * share for share in one.accuracy]) for one in found.reach]
    third = (
        f"Trained on texts of up to {found.trained} symbols. A table has learnt nothing about the places behind its "
        "last one. Sinusoids are there at any length, but a network that never met them there need not know what to "
        "do with them. What goes by distance has met every distance that the task asks for."
    )
    return [
        page.Text(first),
        page.Table(titles[0], ORDER, order),
        page.Text(second),
        page.Heatmaps("The encodings", heats),
        page.Curve("Longer than in training", "length of the text", "right, %", lines),
        page.Table(titles[1], [name.replace("\n", " ") for name in columns], reach, third),
    ]
