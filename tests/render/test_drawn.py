"""Whole pictures, to the last number: each is drawn as `drawn/NAME.txt` has it.

python tests/render/test_drawn.py        writes the files anew, after a change that should change pictures
"""

import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType

from regard.render import AttentionView, Layer
from regard.render.charts import curve_svg, heatmap_svg, scatter_svg
from regard.render.html import report_html
from regard.render.terminal import sections_text
from regard.render.view_data import Unknown
from regard.report.sections import (
    Curve,
    Gallery,
    Heatmap,
    Heatmaps,
    Line,
    LineGallery,
    Pre,
    Scatter,
    Section,
    Table,
    Text,
)

FOLDER = Path(__file__).parent / "drawn"


def rows_of(*weights: list[float]) -> np.ndarray:
    return np.array([weights], dtype=np.float32)


CAUSAL = np.tril(np.ones((4, 4), dtype=bool))
WORDS = ["the", Unknown("zebra"), "日本", "!"]
TRANSLATOR = AttentionView(
    "ein Tag → a day",
    ["a", "day"],
    ["ein", "Tag", "</s>"],
    [
        Layer("low", rows_of([0.7, 0.2, 0.1], [0.1, 0.1, 0.8]), part="cross", number=0),
        Layer("high", np.concatenate([rows_of([0.5, 0.3, 0.2], [0.0, 0.9, 0.1])] * 2), part="cross", number=1),
        Layer("self", rows_of([1.0, 0.0], [0.25, 0.75]), columns=["<s>", "a"], part="decoder"),
    ],
)
MASKED = AttentionView(
    "",
    WORDS,
    WORDS,
    [
        Layer(
            "decoder", rows_of([1, 0, 0, 0], [0.6, 0.4, 0, 0], [0.5, 0.3, 0.2, 0], [0.45, 0.05, 0.5, 0]), visible=CAUSAL
        )
    ],
)
LETTERS = AttentionView(
    "t", list("ab"), ["x", "é", Unknown("z")], [Layer("l", rows_of([0.2, math.nan, 0.8], [1, 0, 0]))]
)
HEADS = AttentionView(
    "heads",
    ["a", Unknown("bc")],
    ["x", "yz", "w"],
    [
        Layer(
            "l",
            np.stack([[[0.9, 0.1, 0.0], [0.0, 0.5, 0.5]], [[0.2, 0.2, 0.6], [1, 0, 0]], [[0, 1, 0], [0.3, 0.3, 0.4]]]),
            kept_heads=(1, 4, 9),
            number=2,
        )
    ],
)
WIDE = AttentionView(
    "w",
    ["a", "long row of more than sixteen"],
    [f"w{at}" for at in range(40)],
    [Layer("l", np.stack([[np.roll([0.9] + [0.1 / 39] * 39, 3), np.linspace(0, 0.05, 40)]]))],
)
SHARED = Line("a", [1, 10, 100, 1000], [4.0, 2.0, 1.0, 0.5])
EVEN = Curve("", "x", "y & z", [Line("gap", [0, 1, 2, 3, 4], [-1, 2, math.nan, 7.5, 3]), Line("one", [2], [3.25])])
MANY = Curve(
    "Many lines",
    "length",
    "seconds",
    [SHARED, *(Line(f"line number {at}", [2, 200], [at, 2 * at]) for at in range(1, 10))],
    log_y=True,
    log_x=True,
)
POINTS = Scatter(
    "points",
    "component 1",
    "component 2",
    [(0.5, 0.25), (0.0, 1.0), (1.0, -0.1), (1.0, 0.5)],
    ["asked", "<near>", "far", "also near"],
    ["question", "nearest", "others", "nearest"],
)
SIGNS = Heatmap("signs", "across", "down", [[1.0, -2.0, 0.5], [0.005, math.nan, 1.5]], ["a", "bcd"], ["x", "y", "z"])
SMALL = Heatmap("small", "across", "down", np.arange(24).reshape(2, 12) / 40, side=5, vmax=1.0)
REPORT: list[Section] = [
    Text("One <line>\nof text.\n\nAnother.", "Words", "scaling.md"),
    Table(
        "Scores",
        ["name", "loss\nmean", "size", "vector", "mixed"],
        [
            ["a", "0.50 ± 0.1", 12345, " 1.00 -0.50 …", "-"],
            ["שלום", "0.50", None, "", 1e16],
            ["c", "1.5", -7.0, "x", -1234.5],
        ],
        "A note.",
        {"loss\nmean": "low", "size": "high"},
        first=2,
    ),
    Pre("a  <b>\n  c", "Code"),
    Curve("Curve", "step", "nats", [Line("l", [0, 1], [2, 1])]),
    Heatmaps("Maps", [Heatmap("one → two", "x", "y", [[1.0]]), Heatmap("large", "x", "y", np.zeros((1, 200)))]),
    Gallery("Gallery", [LETTERS, TRANSLATOR]),
    LineGallery("Lines", [HEADS, TRANSLATOR]),
    Table("", ["", "n"], [["only", 1.0]]),
]


def printed(shown: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(shown)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def page() -> str:
    found = re.search(r"<main.*</main>", report_html("a → <b>", REPORT), re.DOTALL)
    assert found
    return found[0]


DRAWN: dict[str, Callable[[], str]] = {
    "matrix-cross": TRANSLATOR.svg,
    "matrix-masked": MASKED.svg,
    "matrix-letters": LETTERS.svg,
    "lines-heads": HEADS.lines,
    "lines-mean": LETTERS.lines,
    "curve-even": lambda: curve_svg(EVEN),
    "curve-many": lambda: curve_svg(MANY),
    "curve-empty": lambda: curve_svg(Curve("Nothing", "x", "y", [Line("none", [], [])])),
    "curve-constant": lambda: curve_svg(Curve("", "x", "y", [Line("c", [3, 4], [-5, -5])])),
    "scatter": lambda: scatter_svg(POINTS),
    "heatmap-signs": lambda: heatmap_svg(SIGNS),
    "heatmap-small": lambda: heatmap_svg(SMALL),
    "report": page,
    "terminal": lambda: "\n".join(
        [
            *(
                printed(view.text(), width)
                for view, width in [(TRANSLATOR, 80), (MASKED, 80), (MASKED, 16), (LETTERS, 40)]
            ),
            *(printed(WIDE.text(), width) for width in (200, 100, 50, 30)),
            printed(TRANSLATOR.text(part="decoder"), 60),
            printed(sections_text(REPORT), 60),
        ]
    ),
}


def drawing(name: str) -> str:
    """The picture without its style sheet and script, one element per line."""
    drawn = re.sub(r"<(style|script)>.*?</\1>", r"<\1/>", DRAWN[name](), flags=re.DOTALL).rstrip()
    return (
        drawn if name == "terminal" else re.sub(r"(?<=>)(?=<(?:td|th|text|rect|path|circle|svg|figure)\b)", "\n", drawn)
    )


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_drawn_as_it_was(name: str) -> None:
    assert drawing(name).splitlines() == (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def test_no_picture_is_drawn_that_is_not_tested() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(DRAWN)


@pytest.mark.parametrize(("points", "circles"), [(119, 119), (120, 120), (121, 61), (240, 120), (241, 81)])
def test_of_many_points_every_second_or_third_shows_its_numbers(points: int, circles: int) -> None:
    drawn = curve_svg(Curve("", "x", "y", [Line("a", range(points), range(points))]))
    assert drawn.count("<circle") == circles
    assert max(path.count("L") for path in re.findall(r' d="([^"]*)"', drawn)) == points - 1  # all are drawn


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in DRAWN:
        (FOLDER / f"{each}.txt").write_text(drawing(each) + "\n", encoding="utf-8")
