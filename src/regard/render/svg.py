"""A matrix as SVG: one hue, the weight is the opacity, so that light and dark paper both keep its order."""

from collections.abc import Iterator

from rich.cells import cell_len

from regard.render.files import asset
from regard.render.labels import clip, clusters, escape, number, visible
from regard.render.parts import Matrix, reading

MARGIN = 20
LETTER = 7.4  # pixels that one terminal cell of a 12 px label takes, a little generous
SMALL = 6.6  # the same of a quiet line
LONGEST = 24  # cells of a label
EVERY = 10_000  # cells that are all drawn; of larger matrices only those that can be seen
FAINTEST = 0.02  # of the ceiling
SLANT = 0.7072  # cos 45°


def frame(width: float, height: float, title: str, body: str) -> str:
    """The SVG element itself: its size, its style, its paper."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="regard" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">\n<title>{escape(title)}</title>\n<style>{asset("picture.css")}</style>\n'
        f'<rect class="paper" width="100%" height="100%" rx="6"/>\n{body}</svg>\n'
    )


def matrix_svg(matrix: Matrix) -> str:
    """The whole picture: title, labels, cells with their numbers, and the colour key."""
    rows = [clip(visible(piece), LONGEST) for piece in matrix.rows]
    columns = [clip(visible(piece), LONGEST) for piece in matrix.columns]
    side = min(30, max(12, 880 // max(1, len(columns))))  # as large as a page allows
    slanted = max((len(clusters(name)) for name in columns), default=0) > 1
    reach = (
        max(map(cell_len, columns), default=0) * LETTER * (SLANT if slanted else 0)
    )  # of slanted labels, up and right

    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    across, down = side * len(columns), side * len(rows)
    labels = [f"{matrix.label} · {reading(matrix.part)}"]
    if MARGIN + cell_len(labels[0]) * SMALL > left + across:
        labels = [matrix.label, reading(matrix.part)]
    top = round(MARGIN + (24 if matrix.title else 0) + 18 * len(labels) + (reach + 22 if slanted else 30))
    named = MARGIN + max(cell_len(matrix.title) * 8.6, *(cell_len(label) * SMALL for label in labels))
    overhang = max(
        0.0, max((at * side + cell_len(n) * LETTER * SLANT for at, n in enumerate(columns)), default=0) - across
    )
    width = round(max(left + across + (overhang if slanted else 0), named, left + 150)) + MARGIN
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
    return frame(width, height, matrix.title or matrix.label, "".join(body))


def heading(title: str, *labels: str) -> Iterator[str]:
    """The words above a picture: what it is of, which layer and head, how it is read."""
    y = MARGIN + 12
    if title:
        yield f'<text class="heading" x="{MARGIN}" y="{y}">{escape(title)}</text>\n'
        y += 22
    for at, label in enumerate(labels):
        yield f'<text class="quiet" x="{MARGIN}" y="{y + 18 * at}">{escape(label)}</text>\n'


def _cells(matrix: Matrix, left: float, top: float, side: int) -> Iterator[str]:
    for i, (row, weights, shares) in enumerate(zip(matrix.rows, matrix.weights, matrix.shares)):
        for j, (column, weight, share) in enumerate(zip(matrix.columns, weights, shares)):
            if share < FAINTEST and matrix.weights.size > EVERY:
                continue
            place = f'x="{left + j * side + 0.5:g}" y="{top + i * side + 0.5:g}" width="{side - 1}" height="{side - 1}"'
            told = f"{escape(visible(row))} ← {escape(visible(column))}: {number(weight)}"
            yield f'<rect class="ink" {place} rx="2" fill-opacity="{share:.3g}"><title>{told}</title></rect>\n'


def _key(matrix: Matrix, left: float, y: float) -> Iterator[str]:
    told = number(matrix.ceiling) + " and more" * bool((matrix.weights > matrix.ceiling).any())
    yield f'<text class="quiet end" x="{left - 9:g}" y="{y + 10:g}">0</text>\n'
    yield f'<rect class="slot" x="{left:g}" y="{y:g}" width="100" height="12"/>\n'
    for step in range(50):  # not a gradient: those go by id, and many pictures may share one page
        place = f'x="{left + step * 2:g}" y="{y:g}" width="2" height="12"'
        yield f'<rect class="ink" {place} fill-opacity="{step / 49:.2g}"/>\n'
    yield f'<text class="quiet" x="{left + 108:g}" y="{y + 10:g}">{told}</text>\n'
