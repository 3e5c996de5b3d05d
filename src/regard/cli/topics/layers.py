"""`regard explain layers`: the cost of attention, recurrent and convolutional layers as the input grows."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, TopicResult, join_paragraphs, show

if TYPE_CHECKING:
    from regard.explain.layers import Cost, LayerKind
    from regard.render.report import Section

SIZE = 1000  # the length and the width of the textbook comparison
EXPONENTS = {"seconds": "time", "memory": "memory", "operations": "counted"}
NOTE = (
    "“path” is the number of steps between the two positions that are farthest apart, which is how far a gradient must "
    "travel. For a window it counts the layers that are needed to connect them; for a convolution, the layers of a "
    "dilated stack. “MB” is the peak memory of a forward pass in training."
)


def command(
    length: Annotated[
        int, typer.Option(min=32, max=2**17, help="The longest input; its half, its quarter … are measured too.")
    ] = 4096,
    width: Annotated[int, typer.Option(min=1, max=8192, help="The width of the states.")] = 64,
    window: Annotated[
        int, typer.Option(min=1, help="How many positions restricted attention sees to either side.")
    ] = 32,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """The cost of a layer as its input grows, and its path lengths.

    Measures Table 1 of Vaswani et al. (2017): self-attention (with a fused kernel, and unfused), restricted to a
    window, recurrent (LSTM), recurrent with attention, convolutional. First come the operations at length 1000 and
    width 1000, by the formula and as torch counts them. Then come time, memory and operations on this machine at
    several lengths, with the exponent of the length: 1 means linear growth, 2 quadratic. Takes about ten seconds, on
    one thread.

    \b
    Examples:
      regard explain layers
      regard explain layers --length 16384 --window 64
      regard explain layers --length 512 --width 512 -o layers.html
    """
    from regard.explain import layers
    from regard.explain.layers import KINDS, Sizes

    lengths, sizes = layers.lengths_to(length), Sizes(SIZE, SIZE, window)
    counts = [(kind.operations(sizes), layers.count_operations(kind, sizes)) for kind in KINDS]
    paths = [kind.path_length(Sizes(length, width, window)) for kind in KINDS]
    with Console(stderr=True).status("measuring layers …"):
        costs = list(layers.run(lengths, width, window, seed))

    theory = (
        f"Length n = {SIZE:,}, width d = {SIZE:,}, window r = {window}, kernel k = 3",
        ["layer", "operations", "by\nformula", "counted", "sequential", "longest\npath"],
        [_theory_row(kind, *count) for kind, count in zip(KINDS, counts)],
        _window_note(*counts[[kind.name for kind in KINDS].index("restricted")], window),
    )
    times = [f"ms at\n{n:,}" for n in lengths[-3:]]
    exponents = [f"{name}\n∝ n^" for name in EXPONENTS.values()]
    practice = (
        f"Measured on this machine: width {width}, window {window}, one thread",
        ["layer", *times, f"MB at\n{length:,}", f"path at\n{length:,}", *exponents],
        [_practice_row(cost, path) for cost, path in zip(costs, paths)],
        NOTE,
    )
    data = {
        "lengths": lengths,
        "width": width,
        "window": window,
        "seed": seed,
        "at_1000": {
            kind.name: {"formula": formula, "counted": counted} for kind, (formula, counted) in zip(KINDS, counts)
        },
        "layers": [{**vars(cost), "path": path} for cost, path in zip(costs, paths)],
    }
    terminal = [
        part
        for title, columns, rows, note in (theory, practice)
        for part in (grid(title, columns, rows), f"[dim]{note}[/]")
    ]
    sections = _sections(costs, lengths, _table(*theory), _table(*practice))
    show(TopicResult("The cost of a layer", data, terminal, sections), out, json)


def _window_note(formula: int, counted: int, window: int) -> str:
    """Explains why torch counts more operations for a window than the formula has."""
    visible, compared = min(2 * window + 1, SIZE), counted / (4 * SIZE**2)  # QKᵀ and PV, two operations each
    return (
        f"Restricted: in the formula, every position is compared with the {visible} positions of its window. The "
        f"computation uses blocks, so it compares each position with {compared:.0f} others, which is "
        f"{counted / formula:.1f} times as many. (These are the blocks on a GPU. On a CPU they can be smaller.)"
    )


def _theory_row(kind: "LayerKind", formula: int, counted: int) -> list[str]:
    billions = (f"{operations / 1e9:.3g}·10⁹" for operations in (formula, counted))
    return [kind.name, kind.complexity, *billions, kind.sequential, kind.path]


def _practice_row(cost: "Cost", path: int) -> list[str]:
    times = [f"{ms:.{2 if ms < 100 else 0}f}" for ms in (1e3 * seconds for seconds in cost.seconds[-3:])]
    exponents = [f"{cost.exponents[name]:.2f}" for name in EXPONENTS]
    return [cost.name, *times, f"{cost.memory[-1] / 1e6:.1f}", f"{path:,}", *exponents]


def _table(title: str, columns: list[str], rows: list[list[str]], note: str) -> "Section":
    from regard.render.report import Table

    return Table(title, [name.replace("\n", " ") for name in columns], rows, note)


def _sections(costs: "list[Cost]", lengths: list[int], theory: "Section", practice: "Section") -> "list[Section]":
    from regard.render import report

    def curve(title: str, label: str, values: list[list[float]]) -> report.Curve:
        lines = [report.Line(cost.name, lengths, ys) for cost, ys in zip(costs, values)]
        return report.Curve(title, "length of the input", label, lines, log_y=True, log_x=True)

    text = join_paragraphs(
        "Self-attention compares every position with every other: n² comparisons of width d, all in parallel, and any "
        "two positions are one step apart. A recurrent layer does a fixed amount of work per position, about d² "
        "operations, but one position after the other, and its first input is n steps away from its last. A "
        "convolution and a window see only near positions, so many layers are needed to connect distant positions.",
        "So attention is cheaper than a recurrent layer while n is smaller than d, and its paths are always shorter. "
        "The n² is in the number of operations; a fused kernel avoids it in the memory.",
    )
    seconds = [[1e3 * taken for taken in cost.seconds] for cost in costs]
    memory = [[size / 1e6 for size in cost.memory] for cost in costs]
    operations = [[count / 1e9 for count in cost.operations] for cost in costs]
    return [
        report.Text(text),
        theory,
        practice,
        curve("Time", "milliseconds of a forward pass", seconds),
        curve("Memory", "megabytes", memory),
        curve("Operations", "10⁹ operations, counted", operations),
    ]
