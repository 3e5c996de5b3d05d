"""`regard explain layers`: what a layer costs as its input grows."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.layers import Cost, Kind
    from regard.render.report import Section

SLIDE = 1000  # the length and the width at which textbooks count
GROWTH = {"seconds": "time", "memory": "memory", "operations": "counted"}
NOTE = (
    "The path is how many steps apart two positions can be, which is how far a gradient has to travel: of a window, "
    "in as many layers as it takes; of a convolution, in a dilated stack. Memory is what a forward pass that is to "
    "be learnt from holds at most."
)


def layers(
    length: Annotated[
        int, typer.Option(min=32, max=2**17, help="Of the longest input; then half of it, and so on.")
    ] = 4096,
    width: Annotated[int, typer.Option(min=1, max=8192, help="Of the states.")] = 64,
    window: Annotated[int, typer.Option(min=1, help="How far restricted attention sees to either side.")] = 32,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What a layer costs as its input grows; how long its paths are.

    Table 1 of Vaswani et al. (2017), run: self-attention (by its fused kernel, and with the weights written out),
    restricted to a window, recurrent (LSTM), recurrent with attention, convolutional. First the operations at length
    1000 and width 1000, by the formula and as torch counts them. Then time, memory and operations on this machine as
    the length doubles, and the power of the length by which each grows: 1 is linear, 2 is quadratic. Takes ten seconds
    or so, on one thread.

    \b
    Examples:
      regard explain layers
      regard explain layers --length 16384 --window 64
      regard explain layers --length 512 --width 512 -o layers.html
    """
    from regard.explain.layers import KINDS, Sizes, counted, lengths_to
    from regard.explain.layers import layers as measured

    lengths, slide = lengths_to(length), Sizes(SLIDE, SLIDE, window)
    counts = [(kind.operations(slide), counted(kind, slide)) for kind in KINDS]
    paths = [kind.distance(Sizes(length, width, window)) for kind in KINDS]
    costs = []
    with Console(stderr=True).status("layers at work …"):
        for cost in measured(lengths, width, window, seed):
            costs.append(cost)

    theory = ["layer", "operations", "by\nformula", "counted", "sequential", "longest\npath"]
    rows = [_theory(kind, *count) for kind, count in zip(KINDS, counts)]
    titles = (
        f"Length n = {SLIDE:,}, width d = {SLIDE:,}, window r = {window}, kernel k = 3",
        f"Measured here: width {width}, window {window}, one thread",
    )
    practice = ["layer", *(f"ms at\n{n:,}" for n in lengths[-3:]), f"MB at\n{length:,}", "path\nthere"]
    practice += [f"{name}\n∝ n^" for name in GROWTH.values()]
    found = [_practice(cost, path) for cost, path in zip(costs, paths)]
    data = {
        "lengths": lengths,
        "width": width,
        "window": window,
        "seed": seed,
        "at_1000": {kind.name: {"formula": told, "counted": seen} for kind, (told, seen) in zip(KINDS, counts)},
        "layers": [{**vars(cost), "path": path} for cost, path in zip(costs, paths)],
    }
    notes = _blocks(*counts[[kind.name for kind in KINDS].index("restricted")], window), NOTE
    told = list(zip(titles, (theory, practice), (rows, found), notes))
    terminal = [part for title, names, cells, note in told for part in (grid(title, names, cells), f"[dim]{note}[/]")]
    sections = _sections(costs, lengths, *(_table(*one) for one in told))
    tell(Findings("What a layer costs", data, terminal, sections), out, json)


def _blocks(told: int, seen: int, window: int) -> str:
    """Why more is counted than the formula says."""
    near, compared = min(2 * window + 1, SLIDE), seen / (4 * SLIDE**2)  # QKᵀ and PV, two operations each
    return (
        f"Restricted: the formula has every position compared with the {near} that it may see. A window is computed in "
        f"blocks, and counted is all that they compare: {compared:.0f} to a position, {seen / told:.1f} times as many. "
        "(The counter's blocks are those of a GPU. A CPU's may be smaller.)"
    )


def _theory(kind: "Kind", told: int, seen: int) -> list[str]:
    figures = (f"{operations / 1e9:.3g}·10⁹" for operations in (told, seen))
    return [kind.name, kind.complexity, *figures, kind.sequential, kind.path]


def _practice(cost: "Cost", path: int) -> list[str]:
    times = [f"{ms:.{2 if ms < 100 else 0}f}" for ms in (1e3 * seconds for seconds in cost.seconds[-3:])]
    slopes = [f"{cost.slopes[name]:.2f}" for name in GROWTH]
    return [cost.name, *times, f"{cost.memory[-1] / 1e6:.1f}", f"{path:,}", *slopes]


def _table(title: str, columns: list[str], rows: list[list[str]], note: str) -> "Section":
    from regard.render.report import Table

    return Table(title, [name.replace("\n", " ") for name in columns], rows, note)


def _sections(costs: "list[Cost]", lengths: list[int], theory: "Section", practice: "Section") -> "list[Section]":
    from regard.render import report as page

    def curve(title: str, label: str, values: list[list[float]]) -> page.Curve:
        lines = [page.Line(cost.name, lengths, ys) for cost, ys in zip(costs, values)]
        return page.Curve(title, "length of the input", label, lines, log_y=True, log_x=True)

    words = paragraphs(
        "Self-attention compares every position with every other: n² comparisons of width d, all at once, and any two "
        "positions are one step apart. A recurrent layer does a fixed amount of work per position, d² of it, but one "
        "position after the other, and what it read first is n steps away from what it read last. A convolution and a "
        "window see only near neighbours, and need many layers to bring distant positions together.",
        "So attention is the cheaper one while n is smaller than d, and always the shorter way. Its square is in the "
        "operations; a fused kernel keeps it out of the memory.",
    )
    seconds = [[1e3 * taken for taken in cost.seconds] for cost in costs]
    memory = [[held / 1e6 for held in cost.memory] for cost in costs]
    operations = [[done / 1e9 for done in cost.operations] for cost in costs]
    return [
        page.Text(words),
        theory,
        practice,
        curve("Time", "milliseconds of a forward pass", seconds),
        curve("Memory", "megabytes", memory),
        curve("Operations", "10⁹ operations, counted", operations),
    ]
