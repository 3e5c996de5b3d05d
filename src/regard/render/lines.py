"""Attention as lines in SVG: queries on the left, keys on the right; a line's opacity is the weight."""

from collections.abc import Iterator, Mapping

import numpy as np
from rich.cells import cell_len

from regard.render.formatting import format_number, truncate, visible
from regard.render.markup import Markup, tag
from regard.render.svg import LETTER, LONGEST, MARGIN, SMALL, heading, label, svg_element
from regard.render.view_data import Floats, Matrix, caption, scale_max

PITCH = 24  # pixels from one token to the next
SPAN = 300  # pixels between the two columns
FAINTEST = 0.04  # lines below this part of the colour scale are not drawn
MAX_LINES = 4000  # if there are more, the strongest are drawn
COLOURS = 8  # head 8 has the colour of head 0 again


def lines_svg(matrix: Matrix, heads: Mapping[int, Floats]) -> Markup:
    """The lines of each head (number → weights (Tq, Tk)) in its own colour; without heads, those of the matrix."""
    rows = [truncate(visible(piece), LONGEST) for piece in matrix.rows]
    columns = [truncate(visible(piece), LONGEST) for piece in matrix.columns]
    top = MARGIN + (24 if matrix.title else 0) + 44 + (22 if heads else 0)
    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    right = left + SPAN
    text = matrix.label.replace("mean of ", "") if heads else matrix.label
    text += f" · {caption(matrix.part, 'the left', 'the right')}"
    text_width = MARGIN + max(cell_len(matrix.title) * 8.6, cell_len(text) * SMALL)
    lines_width = right + 10 + max(map(cell_len, columns), default=0) * LETTER
    width = round(max(lines_width, text_width, MARGIN + len(heads) * 46)) + MARGIN
    body = list(heading(matrix.title, text))
    for at, head in enumerate(heads):  # the legend
        x = MARGIN + at * 46
        body.append(tag("path", {"class": f"line s{at % COLOURS}", "d": f"M{x} {top - 34}h14"}))
        body.append(label(str(head), x + 19, top - 30, "quiet"))
    body += _lines(matrix, dict(heads) or {0: matrix.weights}, (left, right, top))
    for pieces, x, kind in ((rows, left - 9, "piece end"), (columns, right + 9, "piece")):
        body += [label(piece, x, top + (at + 0.5) * PITCH + 4, kind) for at, piece in enumerate(pieces)]
    height = top + PITCH * max(len(rows), len(columns)) + MARGIN
    return svg_element(width, height, matrix.title or text, body)


def _lines(matrix: Matrix, heads: Mapping[int, Floats], place: tuple[int, int, int]) -> Iterator[Markup]:
    """The lines from the weakest to the strongest: later elements of an SVG are drawn on top."""
    left, right, top = place
    weights = np.nan_to_num(np.stack([np.asarray(table) for table in heads.values()]), posinf=0.0, neginf=0.0)
    intensities = (weights / scale_max(weights)).clip(0.0, 1.0)  # (H, Tq, Tk)
    spread = min(9.0, 2.4 * len(heads)) * (len(heads) > 1)  # the lines of several heads run side by side
    order = np.argsort(intensities, axis=None)[-MAX_LINES:]
    for head, i, j in zip(*np.unravel_index(order, intensities.shape)):
        if (intensity := intensities[head, i, j]) < FAINTEST:
            continue
        y = top + PITCH / 2 + (spread * (head / max(1, len(heads) - 1) - 0.5))
        prefix = f"head {list(heads)[head]}, " if len(heads) > 1 else ""
        pair = f"{visible(matrix.rows[i])} ← {visible(matrix.columns[j])}"
        path = {"d": f"M{left} {y + i * PITCH:g}L{right} {y + j * PITCH:g}", "stroke-opacity": f"{intensity:.3g}"}
        tooltip = tag("title", {}, f"{prefix}{pair}: {format_number(weights[head, i, j])}")
        yield tag("path", {"class": f"line s{head % COLOURS}", **path}, tooltip)
