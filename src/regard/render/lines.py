"""Attention as lines: who looks on the left, what at on the right, the weight is the line's strength."""

from collections.abc import Iterator, Mapping

import numpy as np
from rich.cells import cell_len

from regard.render.labels import clip, escape, number, visible
from regard.render.parts import Floats, Matrix, ceiling_of, reading
from regard.render.svg import LETTER, LONGEST, MARGIN, SMALL, frame, heading

PITCH = 24  # pixels from one piece to the next
SPAN = 300  # between the two columns
FAINTEST = 0.04  # of the ceiling: what is weaker is not drawn
MOST = 4000  # lines, the strongest of all
COLOURS = 8  # hues of heads; the ninth has the first again


def lines_svg(matrix: Matrix, heads: Mapping[int, Floats]) -> str:
    """The lines of every head, each in its colour; where none are given, those of the matrix."""
    rows = [clip(visible(piece), LONGEST) for piece in matrix.rows]
    columns = [clip(visible(piece), LONGEST) for piece in matrix.columns]
    tables = dict(heads) or {0: matrix.weights}
    top = MARGIN + (24 if matrix.title else 0) + 44 + (22 if heads else 0)
    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    right = left + SPAN
    said = matrix.label.replace("mean of ", "") if heads else matrix.label
    said += f" · {reading(matrix.part, 'the left', 'the right')}"
    named = MARGIN + max(cell_len(matrix.title) * 8.6, cell_len(said) * SMALL)
    wide = right + 10 + max(map(cell_len, columns), default=0) * LETTER
    width = round(max(wide, named, MARGIN + len(heads) * 46)) + MARGIN
    body = [*heading(matrix.title, said), *_legend(list(heads), top - 30), *_lines(matrix, tables, (left, right, top))]
    for pieces, x, kind in ((rows, left - 9, "piece end"), (columns, right + 9, "piece")):
        for at, piece in enumerate(pieces):
            body.append(f'<text class="{kind}" x="{x}" y="{top + (at + 0.5) * PITCH + 4:g}">{escape(piece)}</text>\n')
    height = top + PITCH * max(len(rows), len(columns)) + MARGIN
    return frame(width, height, matrix.title or said, "".join(body))


def _lines(matrix: Matrix, tables: Mapping[int, Floats], place: tuple[int, int, int]) -> Iterator[str]:
    """From the weakest to the strongest, so that what matters lies on top."""
    left, right, top = place
    weights = np.nan_to_num(np.stack([np.asarray(table) for table in tables.values()]), posinf=0.0, neginf=0.0)
    shares = (weights / ceiling_of(weights)).clip(0.0, 1.0)  # (H, Tq, Tk)
    beside = min(9.0, 2.4 * len(tables)) * (len(tables) > 1)  # the lines of several heads run side by side
    order = np.argsort(shares, axis=None)[-MOST:]
    for head, i, j in zip(*np.unravel_index(order, shares.shape)):
        if (share := shares[head, i, j]) < FAINTEST:
            continue
        y = top + PITCH / 2 + (beside * (head / max(1, len(tables) - 1) - 0.5))
        x = f"M{left} {y + i * PITCH:g}L{right} {y + j * PITCH:g}"
        pair = f"{escape(visible(matrix.rows[i]))} ← {escape(visible(matrix.columns[j]))}"
        whose = f"head {list(tables)[head]}, " if len(tables) > 1 else ""
        told = f"<title>{whose}{pair}: {number(weights[head, i, j])}</title>"
        yield f'<path class="line s{head % COLOURS}" d="{x}" stroke-opacity="{share:.3g}">{told}</path>\n'


def _legend(heads: list[int], y: float) -> Iterator[str]:
    for at, head in enumerate(heads):
        x = MARGIN + at * 46
        yield f'<path class="line s{at % COLOURS}" d="M{x} {y - 4:g}h14"/>\n'
        yield f'<text class="quiet" x="{x + 19}" y="{y:g}">{head}</text>\n'
