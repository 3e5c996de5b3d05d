"""An attention matrix as SVG. The weight is the opacity of one colour, which works on light and dark backgrounds."""

from collections.abc import Iterator

from rich.cells import cell_len

from regard.render.files import asset
from regard.render.formatting import escape, format_number, graphemes, truncate, visible
from regard.render.view_data import Matrix, caption

MARGIN = 20
LETTER = 7.4  # pixels per terminal cell of a 12 px label, a little more than needed
SMALL = 6.6  # the same for the small text
LONGEST = 24  # terminal cells of a label
MAX_ALL = 10_000  # matrices up to this size draw all cells; in larger ones, cells below FAINTEST are left out
FAINTEST = 0.02  # part of the colour scale
SLANT = 0.7072  # cos 45°


def svg_element(width: float, height: float, title: str, body: str) -> str:
    """The <svg> element around a body, with its size, style and background."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="regard" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">\n<title>{escape(title)}</title>\n<style>{asset("picture.css")}</style>\n'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>\n{body}</svg>\n'
    )


def matrix_svg(matrix: Matrix) -> str:
    """The whole picture: title, labels, cells with their numbers, and the colour key."""
    rows = [truncate(visible(piece), LONGEST) for piece in matrix.rows]
    columns = [truncate(visible(piece), LONGEST) for piece in matrix.columns]
    side = min(30, max(12, 880 // max(1, len(columns))))  # as large as a page allows
    slanted = max((len(graphemes(name)) for name in columns), default=0) > 1
    label_height = max(map(cell_len, columns), default=0) * LETTER * (SLANT if slanted else 0)

    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    across, down = side * len(columns), side * len(rows)
    labels = [f"{matrix.label} · {caption(matrix.part)}"]
    if MARGIN + cell_len(labels[0]) * SMALL > left + across:
        labels = [matrix.label, caption(matrix.part)]
    top = round(MARGIN + (24 if matrix.title else 0) + 18 * len(labels) + (label_height + 22 if slanted else 30))
    text_width = MARGIN + max(cell_len(matrix.title) * 8.6, *(cell_len(label) * SMALL for label in labels))
    overhang = max(
        0.0, max((at * side + cell_len(n) * LETTER * SLANT for at, n in enumerate(columns)), default=0) - across
    )
    width = round(max(left + across + (overhang if slanted else 0), text_width, left + 150)) + MARGIN
    height = round(top + down + 50)

    body = [
        *heading(matrix.title, *labels),
        f'<rect class="slot" x="{left:g}" y="{top:g}" width="{across}" height="{down}" rx="3"/>\n',
    ]
    for at, name in enumerate(columns):
        x, y = left + (at + 0.5) * side, top - 9
        place = f'transform="translate({x + 4:g} {y:g}) rotate(-45)"' if slanted else f'x="{x:g}" y="{y:g}"'
        body.append(f'<text class="piece{"" if slanted else " middle"}" {place}>{escape(name)}</text>\n')
    for at, name in enumerate(rows):
        body.append(
            f'<text class="piece end" x="{left - 9:g}" y="{top + (at + 0.5) * side + 4:g}">{escape(name)}</text>\n'
        )
    body += [*_cells(matrix, left, top, side), *_key(matrix, left, top + down + 18)]
    return svg_element(width, height, matrix.title or matrix.label, "".join(body))


def heading(title: str, *labels: str) -> Iterator[str]:
    """The text above a picture: a title, and smaller lines below it."""
    y = MARGIN + 12
    if title:
        yield f'<text class="heading" x="{MARGIN}" y="{y}">{escape(title)}</text>\n'
        y += 22
    for at, label in enumerate(labels):
        yield f'<text class="quiet" x="{MARGIN}" y="{y + 18 * at}">{escape(label)}</text>\n'


def _cells(matrix: Matrix, left: float, top: float, side: int) -> Iterator[str]:
    for i, (row, weights, intensities) in enumerate(zip(matrix.rows, matrix.weights, matrix.intensities)):
        for j, (column, weight, intensity) in enumerate(zip(matrix.columns, weights, intensities)):
            if intensity < FAINTEST and matrix.weights.size > MAX_ALL:
                continue
            place = f'x="{left + j * side + 0.5:g}" y="{top + i * side + 0.5:g}" width="{side - 1}" height="{side - 1}"'
            tooltip = f"{escape(visible(row))} ← {escape(visible(column))}: {format_number(weight)}"
            yield f'<rect class="ink" {place} rx="2" fill-opacity="{intensity:.3g}"><title>{tooltip}</title></rect>\n'


def _key(matrix: Matrix, left: float, y: float) -> Iterator[str]:
    """The colour key: fifty small rectangles, not a gradient, whose id could clash with that of another picture."""
    end = format_number(matrix.scale_max) + " and more" * bool((matrix.weights > matrix.scale_max).any())
    yield f'<text class="quiet end" x="{left - 9:g}" y="{y + 10:g}">0</text>\n'
    yield f'<rect class="slot" x="{left:g}" y="{y:g}" width="100" height="12"/>\n'
    for step in range(50):
        place = f'x="{left + step * 2:g}" y="{y:g}" width="2" height="12"'
        yield f'<rect class="ink" {place} fill-opacity="{step / 49:.2g}"/>\n'
    yield f'<text class="quiet" x="{left + 108:g}" y="{y + 10:g}">{end}</text>\n'
