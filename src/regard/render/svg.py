"""Attention as SVG: a matrix of cells, or lines between two columns. The weight is the opacity of a colour.

Opacity works on light and dark backgrounds.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from rich.cells import cell_len

from regard.render.formatting import (
    Markup,
    asset,
    describe,
    format_number,
    graphemes,
    isolate,
    labels,
    lines,
    tag,
    truncate,
)
from regard.render.view_data import Floats, Matrix, Unknown, caption, scale_max, strongest_lines

MARGIN = 20
LETTER = 7.4  # pixels per terminal cell of a 12 px label, a little more than needed
SMALL = 6.6  # the same for the small text
LONGEST = 24  # terminal cells of a label
MAX_ALL = 10_000  # matrices up to this size draw all cells; in larger ones, cells below FAINTEST are left out
FAINTEST = 0.02  # part of the colour scale
SLANT = 0.7072  # cos 45°
NEGATIVE = "#c2410c"  # colour of numbers below zero
ROOM = 880  # pixels for the columns of a matrix, as a page allows
PITCH = 24  # pixels from one token to the next
SPAN = 300  # pixels between the two columns
SMALLEST = 10 / 12  # of a picture's own size: below it, its 12 px text would be smaller than 10 px
COLOURS = 8  # head 8 has the colour of head 0 again


def svg_element(width: float, height: float, title: str, body: Iterable[Markup]) -> Markup:
    """The <svg> element around a body, with its size, style and background."""
    size = {"width": float(width), "height": float(height), "viewBox": f"0 0 {width:g} {height:g}"}
    size |= {"style": f"min-width:{round(SMALLEST * width)}px"}  # the box around it scrolls instead
    parts = [
        tag("title", {}, isolate(title)),
        tag("style", {}, Markup(asset("picture.css"))),
        tag("rect", {"class": "paper", "width": "100%", "height": "100%", "rx": 6}),
        *body,
    ]
    return tag(
        "svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "regard", "role": "img", **size}, "\n", lines(parts)
    )


def label(text: str, x: float, y: float, kind: str | None = None) -> Markup:
    """A text at a place; ``kind`` is its class in the style sheet."""
    return tag("text", {"class": kind, "x": x, "y": y}, isolate(text))


def ring(piece: str, name: str, x: float, y: float, turned: str | None = None) -> list[Markup]:
    """The ring around the name of an unknown token that begins at (x, y); none around other tokens."""
    place = {**box(x - 4, y - 12, cell_len(name) * LETTER + 7, 16), "rx": 8, "transform": turned}
    return [tag("rect", {"class": "ring", **place})] if isinstance(piece, Unknown) else []


def vertical_label(text: str, x: float, y: float) -> Markup:
    """The name of a vertical axis, read from the bottom to the top."""
    return tag("text", {"class": "middle", "transform": f"translate({x:g} {y:g}) rotate(-90)"}, text)


def box(x: float, y: float, width: float, height: float) -> dict[str, object]:
    """The attributes that place a rectangle."""
    return {"x": x, "y": y, "width": width, "height": height}


def ink(value: float) -> dict[str, object]:
    """The attributes of a rectangle's colour: its opacity is the absolute value, from 0 to 1."""
    colour = {"class": "ink"} if value >= 0 else {"fill": NEGATIVE}
    return {**colour, "fill-opacity": f"{min(1.0, abs(value)):.3g}"}


def heading(title: str, *labels: str) -> Iterator[Markup]:
    """The text above a picture: a title, and smaller lines below it."""
    y = MARGIN + 12
    if title:
        yield label(title, MARGIN, y, "heading")
        y += 22
    for at, text in enumerate(labels):
        yield label(text, MARGIN, y + 18 * at, "quiet")


def colour_key(low: str, high: str, left: float, y: float) -> Iterator[Markup]:
    """The colour key from ``low``, which is 0 or negative, to ``high``.

    It is fifty small rectangles, not a gradient, whose id could clash with that of another picture.
    """
    yield label(low, left - 9, y + 10, "quiet end")
    yield tag("rect", {"class": "slot", **box(left, y, 100, 12)})
    for step in range(50):
        value = step / 49 if low == "0" else step / 49 * 2 - 1
        yield tag("rect", {**ink(value), **box(left + step * 2, y, 2, 12)})
    yield label(high, left + 108, y + 10, "quiet")


def matrix_svg(matrix: Matrix, room: int = ROOM) -> Markup:
    """The picture: title, labels, cells with their numbers, and the colour key. `room`: pixels for all columns."""
    rows = [truncate(name, LONGEST) for name in labels(matrix.rows)]
    columns = [truncate(name, LONGEST) for name in labels(matrix.columns)]
    side = min(30, max(12, room // max(1, len(columns))))
    slanted = max((len(graphemes(name)) for name in columns), default=0) > 1
    label_height = max(map(cell_len, columns), default=0) * LETTER * (SLANT if slanted else 0)

    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    across, down = side * len(columns), side * len(rows)
    sentences = [matrix.label, *filter(None, [caption(matrix.part)])]
    texts = [" · ".join(sentences)]
    if MARGIN + cell_len(texts[0]) * SMALL > left + across:
        texts = sentences
    top = round(MARGIN + (24 if matrix.title else 0) + 18 * len(texts) + (label_height + 22 if slanted else 30))
    text_width = MARGIN + max(cell_len(matrix.title) * 8.6, *(cell_len(text) * SMALL for text in texts))
    overhang = max(
        0.0, max((at * side + cell_len(n) * LETTER * SLANT for at, n in enumerate(columns)), default=0) - across
    )
    width = round(max(left + across + (overhang if slanted else 0), text_width, left + 150)) + MARGIN

    body = [*heading(matrix.title, *texts), tag("rect", {"class": "slot", **box(left, top, across, down), "rx": 3})]
    for at, (piece, name) in enumerate(zip(matrix.columns, columns)):
        x, y = left + (at + 0.5) * side, top - 9
        turned = f"translate({x + 4:g} {y:g}) rotate(-45)"
        if slanted:
            body += [
                *ring(piece, name, 0, 0, turned),
                tag("text", {"class": "piece", "transform": turned}, isolate(name)),
            ]
        else:
            body += [*ring(piece, name, x - cell_len(name) * LETTER / 2, y), label(name, x, y, "piece middle")]
    for at, (piece, name) in enumerate(zip(matrix.rows, rows)):
        base = top + (at + 0.5) * side + 4
        body += [*ring(piece, name, left - 9 - cell_len(name) * LETTER, base), label(name, left - 9, base, "piece end")]
    end = format_number(matrix.scale_max) + " and more" * bool((matrix.weights > matrix.scale_max).any())
    hatch = ""
    for i, (row, weights, intensities) in enumerate(zip(matrix.rows, matrix.weights, matrix.intensities)):
        for j, (column, weight, intensity) in enumerate(zip(matrix.columns, weights, intensities)):
            place = box(left + j * side + 0.5, top + i * side + 0.5, side - 1, side - 1)
            if masked := matrix.masked(i, j):
                hatch += f"M{left + j * side + 1} {top + (i + 1) * side - 1}l{side - 2} {2 - side}"
            if intensity < FAINTEST and matrix.weights.size > MAX_ALL:
                continue
            tooltip = tag("title", {}, describe(row, column, None if masked else weight, matrix.part))
            body.append(tag("rect", {**ink(intensity), **place, "rx": 2}, tooltip))
    body += [tag("path", {"class": "hatch", "d": hatch})] if hatch else []
    body += colour_key("0", end, left, top + down + 18)
    if hatch:
        start, y = round(left + 118 + cell_len(end) * SMALL), top + down + 18
        body += [
            tag("rect", {"class": "slot", **box(start, y, 12, 12)}),
            label("may not look", start + 20, y + 10, "quiet"),
        ]
        body += [tag("path", {"class": "hatch", "d": f"M{start + 1} {y + 11}l10 -10"})]
        width = max(width, round(start + 20 + 12 * SMALL) + MARGIN)
    return svg_element(width, round(top + down + 50), matrix.title or matrix.label, body)


def lines_svg(matrix: Matrix, heads: Mapping[int, Floats]) -> Markup:
    """The lines of each head (number → weights (Tq, Tk)) in its own colour; without heads, those of the matrix."""
    rows = [truncate(name, LONGEST) for name in labels(matrix.rows)]
    columns = [truncate(name, LONGEST) for name in labels(matrix.columns)]
    tables = heads or {0: matrix.weights}
    weights = np.nan_to_num(np.stack([np.asarray(table) for table in tables.values()]), posinf=0.0, neginf=0.0)
    intensities = (weights / scale_max(weights)).clip(0.0, 1.0)  # (H, Tq, Tk)
    order, total = strongest_lines(intensities)
    note = [f"{len(order):,} of {total:,} lines are drawn: the strongest of each row"] if len(order) < total else []
    top = MARGIN + (24 if matrix.title else 0) + 44 + (22 if heads else 0) + 18 * len(note)
    left = round(MARGIN + 10 + max(map(cell_len, rows), default=0) * LETTER)
    right = left + SPAN
    text = matrix.label.replace("mean of ", "") if heads else matrix.label
    text += f" · {caption(matrix.part, 'the left', 'the right')}"
    text_width = MARGIN + max(cell_len(matrix.title) * 8.6, *(cell_len(each) * SMALL for each in (text, *note)))
    lines_width = right + 10 + max(map(cell_len, columns), default=0) * LETTER
    width = round(max(lines_width, text_width, MARGIN + len(heads) * 46)) + MARGIN
    body = list(heading(matrix.title, text, *note))
    for at, head in enumerate(heads):  # the legend
        x = MARGIN + at * 46
        body.append(tag("path", {"class": f"line s{at % COLOURS}", "d": f"M{x} {top - 34}h14"}))
        body.append(label(str(head), x + 19, top - 30, "quiet"))
    spread = min(9.0, 2.4 * len(tables)) * (len(tables) > 1)  # the lines of several heads run side by side
    for at, i, j in zip(*np.unravel_index(order, intensities.shape)):  # the strongest last, on top of the others
        y = top + PITCH / 2 + (spread * (at / max(1, len(tables) - 1) - 0.5))
        prefix = f"head {list(tables)[at]}, " if len(tables) > 1 else ""
        opacity = f"{intensities[at, i, j]:.3g}"
        path = {"d": f"M{left} {y + i * PITCH:g}L{right} {y + j * PITCH:g}", "stroke-opacity": opacity}
        tooltip = tag("title", {}, prefix + describe(matrix.rows[i], matrix.columns[j], weights[at, i, j], matrix.part))
        body.append(tag("path", {"class": f"line s{at % COLOURS}", **path}, tooltip))
    sides = (matrix.rows, rows, left - 9, "piece end"), (matrix.columns, columns, right + 9, "piece")
    for pieces, names, x, kind in sides:
        for at, (piece, name) in enumerate(zip(pieces, names)):
            y = top + (at + 0.5) * PITCH + 4
            start = x - cell_len(name) * LETTER * (kind == "piece end")
            body += [*ring(piece, name, start, y), label(name, x, y, kind)]
    height = top + PITCH * max(len(rows), len(columns)) + MARGIN
    return svg_element(width, height, matrix.title or text, body)
