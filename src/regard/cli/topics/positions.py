"""`regard explain positions`: why a Transformer needs positions, and which kinds work on longer texts."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, Steps, TableCells, TopicResult, join_paragraphs, run_with_progress, show

if TYPE_CHECKING:
    from regard.explain.positions import Positions
    from regard.render.report import Section


def command(
    length: Annotated[int, typer.Option(min=6, max=256, help="The largest length of texts in training.")] = 16,
    steps: Steps = 300,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Why a Transformer needs positions, and how far they extrapolate.

    First, "man bites dog" is compared with "dog bites man". Without positions, the encoder computes the same states for
    both, only in another order. With any kind of positions, the states differ.

    Then small encoders learn a task that depends on positions: predict the symbol two positions earlier. They have no
    positions, sinusoids, a learned table, T5's bias or relative keys. They train on short texts and are tested on texts
    up to four times as long. The page also shows sinusoids beside a binary counter. Takes less than a minute.

    \b
    Examples:
      regard explain positions
      regard explain positions --length 32 --steps 1000 -o positions.html
    """
    from regard.explain import positions

    result = run_with_progress(positions.run(length, steps=steps, seed=seed))
    lengths = [f"length\n{n}" for n in result.extrapolation[0].lengths]
    tables: dict[str, TableCells] = {
        "Difference: states(dog bites man) − reordered states(man bites dog)": (
            ["positions", "difference"],
            [[one.positions, f"{one.difference:.1e}"] for one in result.order],
        ),
        f"Accuracy after training on lengths up to {length} (chance: 8.3%)": (
            ["positions", *lengths],
            [[one.positions, *(f"{accuracy:.1%}" for accuracy in one.accuracy)] for one in result.extrapolation],
        ),
    }
    data = {
        "trained": length,
        "steps": steps,
        "seed": seed,
        "order": {one.positions: one.difference for one in result.order},
        "extrapolation": [vars(one) for one in result.extrapolation],
    }
    terminal = [grid(title, *cells) for title, cells in tables.items()]
    show(TopicResult("Positions", data, terminal, _sections(result, tables)), out, json)


def _sections(result: "Positions", tables: dict[str, TableCells]) -> "list[Section]":
    from regard.render import report

    why = join_paragraphs(
        "Attention is a sum over a set, so it does not depend on the order of the words. If the words are put in "
        "another order, the states come out in that order and are otherwise the same: “dog bites man” and “man bites "
        "dog” cannot be distinguished.",
        "So the model needs positions. They can be a vector that is added to each embedding (sinusoids, or a learned "
        "table), or a term in the attention scores (T5's bias, relative keys).",
    )
    encodings = (
        "Sinusoids are similar to a binary counter. The lowest bit of a counter changes at every step, the next bit at "
        "every second step, the next at every fourth. The components of a sinusoidal encoding change smoothly: the "
        "first ones by one radian per step, the last ones by about a ten-thousandth of that."
    )
    heatmaps = [
        report.Heatmap("sine and cosine, width 48", "component", "position", result.encodings, side=11),
        report.Heatmap("binary counter", "bit", "position", result.counter, columns=["8", "4", "2", "1"], side=11),
    ]
    lines = [
        report.Line(one.positions, one.lengths, [100 * accuracy for accuracy in one.accuracy])
        for one in result.extrapolation
    ]
    longer = (
        f"The networks were trained on texts of up to {result.trained} symbols. A learned table has no trained entries "
        "beyond that length. Sinusoids exist at any length, but the network has not learned to use the larger "
        "positions. T5's bias and relative keys depend only on the distance, and training covers every distance that "
        "the task needs."
    )
    order, accuracy = (
        report.Table(title, [name.replace("\n", " ") for name in columns], rows, note)
        for (title, (columns, rows)), note in zip(tables.items(), ("", longer))
    )
    return [
        report.Text(why),
        order,
        report.Text(encodings),
        report.Heatmaps("Sinusoids and a binary counter", heatmaps),
        report.Curve("Texts longer than in training", "length of the text", "accuracy, %", lines),
        accuracy,
    ]
