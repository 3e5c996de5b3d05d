"""Heatmaps as SVG: one colour for positive numbers, another for negative ones, paler towards zero."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.cells import cell_len

from regard.render.formatting import escape, format_number
from regard.render.svg import LETTER, MARGIN, svg_element

Floats = NDArray[np.float64]
NEGATIVE = "#c2410c"  # colour of numbers below zero
ROW_WIDTH = 860  # pixels for all cells of a row


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A table of numbers to be drawn as colours. An axis without names is numbered."""

    title: str
    x_label: str
    y_label: str
    values: ArrayLike  # (rows, columns)
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    side: int = 0  # of a cell, in pixels; 0: as large as a page allows
    vmax: float = 0.0  # the value with the full colour; 0: the largest absolute value of the table

    @property
    def scale_max(self) -> float:
        """The absolute value that has the full colour."""
        return self.vmax or float(np.abs(np.nan_to_num(self.values)).max(initial=0.0)) or 1.0


def heatmap_svg(heat: Heatmap) -> str:
    """The picture: cells with their numbers on hover, both axes, and the colour key."""
    values = np.asarray(heat.values, dtype=np.float64)
    down, across = values.shape
    side = heat.side or min(26, max(3, ROW_WIDTH // max(1, across)))
    rows = heat.rows or [str(at) for at in range(down)]
    columns = heat.columns or [str(at) for at in range(across)]
    tooltips = [
        [f"{escape(row)}, {escape(column)}: {format_number(value)}" for column, value in zip(columns, line)]
        for row, line in zip(rows, values.tolist())
    ]
    left = round(MARGIN + 34 + max(map(cell_len, rows), default=0) * LETTER)
    top, bottom = MARGIN + 8, MARGIN + 8 + side * down
    width = max(left + side * across + MARGIN, left + 190)
    body = [
        f'<rect class="slot" x="{left}" y="{top}" width="{side * across}" height="{side * down}"/>\n',
        *_cells(values / heat.scale_max, tooltips, (left, top, side)),
        *_ticks(rows, columns, (left, top, side), bottom),
        f'<text class="middle" x="{left + side * across / 2:g}" y="{bottom + 38}">{escape(heat.x_label)}</text>\n',
        f'<text class="middle" transform="translate(18 {(top + bottom) / 2:g}) rotate(-90)">'
        f"{escape(heat.y_label)}</text>\n",
        *_key(heat.scale_max, bool((values < 0).any()), left, bottom + 52),
    ]
    return svg_element(width, bottom + 84, heat.title, "".join(body))


def _cells(intensities: Floats, tooltips: Sequence[Sequence[str]], place: tuple[int, int, int]) -> Iterator[str]:
    left, top, side = place
    gap = 1 if side > 8 else 0
    for i, j in np.ndindex(intensities.shape):
        intensity = abs(float(intensities[i, j]))
        if not intensity > 0.004:  # too pale to be seen, or not a number
            continue
        ink = 'class="ink"' if intensities[i, j] > 0 else f'fill="{NEGATIVE}"'
        box = f'x="{left + j * side}" y="{top + i * side}" width="{side - gap}" height="{side - gap}"'
        yield f'<rect {ink} {box} fill-opacity="{min(1.0, intensity):.3g}"><title>{tooltips[i][j]}</title></rect>\n'


def _ticks(rows: Sequence[str], columns: Sequence[str], place: tuple[int, int, int], bottom: int) -> Iterator[str]:
    """The names of rows and columns; where cells are small, only every second, third … name."""
    left, top, side = place
    for at in range(0, len(rows), -(-14 // side)):
        yield f'<text class="quiet end" x="{left - 7}" y="{top + (at + 0.5) * side + 4:g}">{escape(rows[at])}</text>\n'
    widest = max(map(cell_len, columns), default=1) * LETTER + 6
    for at in range(0, len(columns), max(1, -(-round(widest) // side))):
        x = left + (at + 0.5) * side
        yield f'<text class="quiet middle" x="{x:g}" y="{bottom + 17}">{escape(columns[at])}</text>\n'


def _key(most: float, signed: bool, left: float, y: float) -> Iterator[str]:
    """The colour key: from 0, or from -most where there are negative numbers, to ``most``."""
    yield f'<text class="quiet end" x="{left - 7:g}" y="{y + 10:g}">{format_number(-most) if signed else 0}</text>\n'
    for step in range(50):
        at = step / 49 * 2 - 1 if signed else step / 49
        ink = 'class="ink"' if at > 0 else f'fill="{NEGATIVE}"'
        place = f'x="{left + step * 2:g}" y="{y:g}" width="2" height="12"'
        yield f'<rect {ink} {place} fill-opacity="{abs(at):.2g}"/>\n'
    yield f'<text class="quiet" x="{left + 108:g}" y="{y + 10:g}">{format_number(most)}</text>\n'
