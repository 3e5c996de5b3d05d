"""Heatmaps as SVG: one colour for positive numbers, another for negative ones, paler towards zero."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from regard.render.formatting import format_number
from regard.render.markup import Markup, tag
from regard.render.svg import LETTER, MARGIN, box, colour_key, ink, label, svg_element, vertical_label
from regard.report.sections import Heatmap

ROW_WIDTH = 860  # pixels for all cells of a row


def heatmap_svg(heat: Heatmap) -> Markup:
    """The picture: cells with their numbers on hover, both axes, and the colour key."""
    values = np.asarray(heat.values, dtype=np.float64)
    down, across = values.shape
    side = heat.side or min(26, max(3, ROW_WIDTH // max(1, across)))
    rows = heat.rows or [str(at) for at in range(down)]
    columns = heat.columns or [str(at) for at in range(across)]
    left = round(MARGIN + 34 + max(map(cell_len, rows), default=0) * LETTER)
    top, bottom = MARGIN + 8, MARGIN + 8 + side * down
    most = heat.scale_max
    low = format_number(-most) if (values < 0).any() else "0"
    body = [
        tag("rect", {"class": "slot", **box(left, top, side * across, side * down)}),
        *_cells(values, most, rows, columns, (left, top, side)),
        *_ticks(rows, columns, (left, top, side), bottom),
        label(heat.x_label, left + side * across / 2, bottom + 38, "middle"),
        vertical_label(heat.y_label, 18, (top + bottom) / 2),
        *colour_key(low, format_number(most), left, bottom + 52),
    ]
    return svg_element(max(left + side * across + MARGIN, left + 190), bottom + 84, heat.title, body)


def _cells(
    values: NDArray[np.float64], most: float, rows: Sequence[str], columns: Sequence[str], place: tuple[int, int, int]
) -> Iterator[Markup]:
    left, top, side = place
    size = side - (1 if side > 8 else 0)
    for i, j in np.ndindex(values.shape):
        value = float(values[i, j])
        if abs(value / most) > 0.004:  # others are too pale to be seen, or not a number
            tooltip = tag("title", {}, f"{rows[i]}, {columns[j]}: {format_number(value)}")
            yield tag("rect", {**ink(value / most), **box(left + j * side, top + i * side, size, size)}, tooltip)


def _ticks(rows: Sequence[str], columns: Sequence[str], place: tuple[int, int, int], bottom: int) -> Iterator[Markup]:
    """The names of rows and columns; where cells are small, only every second, third … name."""
    left, top, side = place
    for at in range(0, len(rows), -(-14 // side)):
        yield label(rows[at], left - 7, top + (at + 0.5) * side + 4, "quiet end")
    widest = max(map(cell_len, columns), default=1) * LETTER + 6
    for at in range(0, len(columns), max(1, -(-round(widest) // side))):
        yield label(columns[at], left + (at + 0.5) * side, bottom + 17, "quiet middle")
