"""The pictures of a report as SVG: curves and heatmaps, with their numbers on hover, and connections."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rich.cells import cell_len

from regard.render.axes import Axis, axis_over, format_tick, with_measured_ticks, within
from regard.render.formatting import Markup, format_number, isolate, tag
from regard.render.svg import LETTER, MARGIN, box, colour_key, ink, label, svg_element, vertical_label
from regard.report.sections import Connections, Curve, Heatmap, Scatter

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, BOTTOM = 84, 24, 56
DASHES = (None, "7 4", "2 4", "10 4 2 4", "14 8", "9 4 2 4 2 4", "1 8", "5 11")  # lines differ without colour too
STRIPE = 18  # pixels of a colour where lines coincide
SHAPES = (  # of the points of each group, around their place
    "m0-10l2.5 6.6 7 .3-5.5 4.4 1.9 6.8-5.9-3.9-5.9 3.9 1.9-6.8-5.5-4.4 7-.3z",  # a star
    "m0-6l5.5 9.5h-11z",  # a triangle
    "m-4.5 0a4.5 4.5 0 1 0 9 0 4.5 4.5 0 1 0-9 0z",  # a circle
    "m-4-4h8v8h-8z",  # a square
    "m0-6l5 6-5 6-5-6z",  # a diamond
)
Placed = tuple[float, float, float, float]  # a point: x and y in pixels, x and y
MAX_POINTS = 120  # points per line that show their numbers on hover
ROW_HEIGHT = 48  # pixels between two rows of connections
ROW_WIDTH = 860  # pixels for all cells of a row


def curve_svg(curve: Curve) -> Markup:
    """All lines over one pair of axes, as SVG.

    A line has a gap where a point is not finite (or not positive, on a logarithmic axis). Lines that
    coincide have stripes in all of their colours.
    """
    series = [
        [(x, y) if _drawable(x, curve.log_x) and _drawable(y, curve.log_y) else None for x, y in zip(one.xs, one.ys)]
        for one in curve.lines
    ]
    points = [point for one in series for point in one if point]
    names = [one.name for one in curve.lines]
    drawn = [(at, name) for at, name in enumerate(names) if any(series[at])]
    legend, rows = _legend(drawn, 52 if curve.title else 28, lambda index, x, y: _path(index, f"M{x:g} {y:g}h26"))
    top = (44 if curve.title else 20) + 20 * rows
    xs = [x for x, _ in points]
    x_axis = with_measured_ticks(axis_over(xs, LEFT, WIDTH - RIGHT, curve.log_x), {*xs})
    ends = [y + sign * half for one in curve.lines for y, half in zip(one.ys, one.spread) for sign in (-1, 1)]
    ys = [*(y for _, y in points), *(end for end in ends if _drawable(end, curve.log_y))]
    y_axis = axis_over(within(ys, [y for _, y in points], curve.ends), HEIGHT - BOTTOM, top + 8, curve.log_y)
    body = [
        *([label(curve.title, 20, 30, "heading")] if curve.title else []),
        *legend,
        *_frame(x_axis, y_axis, curve.x_label, curve.y_label),
    ]
    placed = [[point and (x_axis.at(point[0]), y_axis.at(point[1]), *point) for point in values] for values in series]
    for index, (one, places) in enumerate(zip(curve.lines, placed)):
        same = [at for at, others in enumerate(placed) if _coincide(places, others)]
        body += _series(index, " · ".join(names[at] for at in same), places, same)
        for point, half in zip(places, one.spread):
            if point and half and _drawable(point[3] - half, curve.log_y):
                low, high = (y_axis.at(y_axis.clamp(point[3] + sign * half)) for sign in (-1, 1))
                bar = {"class": f"line s{index % 8}", "d": f"M{point[0]:.1f} {low:.1f}V{high:.1f}", "opacity": 0.4}
                body.append(tag("path", bar))
    return svg_element(WIDTH, HEIGHT, curve.title or f"{curve.y_label} against {curve.x_label}", body)


def scatter_svg(section: Scatter) -> Markup:
    """The points of all groups, each with its text on hover; the first group is above the others."""
    names = list(dict.fromkeys(section.groups))
    legend, rows = _legend([*enumerate(names)], 28, lambda index, x, y: _point(index, x + 13, y))
    top = 28 + 20 * rows
    x_axis, y_axis = (
        axis_over([point[at] for point in section.points], *ends, False, room=0.03)
        for at, ends in enumerate([(LEFT, WIDTH - RIGHT), (HEIGHT - BOTTOM, top)])
    )
    body = [*legend, *_frame(x_axis, y_axis, section.x_label, section.y_label)]
    groups = [names.index(group) for group in section.groups]
    for index, (x, y), text in sorted(zip(groups, section.points, section.texts), key=lambda one: -one[0]):
        tooltip = tag("title", {}, f"{isolate(names[index])}: {isolate(text)}")
        body.append(_point(index, x_axis.at(x), y_axis.at(y), tooltip))
    return svg_element(WIDTH, HEIGHT, section.title, body)


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _legend(
    names: Sequence[tuple[int, str]], y: float, sample: Callable[[int, float, float], Markup]
) -> tuple[list[Markup], int]:
    """A sample of each line or group, 26 pixels wide, with its name, and the number of rows that they need.

    `names` has the number of each, which decides its colour.
    """
    parts: list[Markup] = []
    x, row = 20.0, 0
    for index, name in names:
        length = 36 + cell_len(name) * 6.8 + 18
        if x > 20 and x + length > WIDTH - RIGHT:
            x, row = 20.0, row + 1
        at = y + 20 * row
        parts += [sample(index, x, at - 4), label(name, x + 34, at)]
        x += length
    return parts, row + 1 if names else 0


def _path(index: int, d: str, same: Sequence[int] = ()) -> Markup:
    """A path in the style of the line with this index; `same` are all lines that coincide with it, itself included."""
    dashes, offset = DASHES[(index + index // 8) % len(DASHES)], None  # line 8 has the colour of line 0, not its dashes
    if len(same) > 1:
        dashes, offset = f"{STRIPE} {STRIPE * (len(same) - 1)}", -STRIPE * same.index(index)
    return tag(
        "path",
        {"class": f"line s{index % 8}", "d": d, "stroke-dasharray": dashes, "stroke-dashoffset": offset},
    )


def _point(index: int, x: float, y: float, *tooltip: Markup) -> Markup:
    """A point in the shape and colour of the group with this index."""
    style = {"class": f"point s{index % 8}", "fill-opacity": 0.3 if index else None}
    return tag("path", {**style, "d": f"M{x:.1f} {y:.1f}{SHAPES[index % len(SHAPES)]}"}, *tooltip)


def _frame(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> Iterator[Markup]:
    """The two axes with their ticks and names."""
    left, right, base = x_axis.start, x_axis.end, y_axis.start
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        yield tag("path", {"class": "rule", "d": f"M{left:g} {y:.1f}H{right:g}"})
        yield label(format_tick(tick), left - 10, y + 4, "quiet end")
    yield tag("path", {"class": "axis", "d": f"M{left:g} {base:g}H{right:g}"})
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        yield tag("path", {"class": "axis", "d": f"M{x:.1f} {base:g}v5"})
        yield label(format_tick(tick), x, base + 20, "quiet middle")
    yield label(x_label, (left + right) / 2, HEIGHT - 14, "middle")
    yield vertical_label(y_label, 16, (y_axis.end + base) / 2)


def _coincide(line: Sequence[Placed | None], other: Sequence[Placed | None]) -> bool:
    """Whether the points of two lines are at the same places, to the pixel."""
    return len(line) == len(other) and all(
        one is two if one is None or two is None else math.dist(one[:2], two[:2]) < 1 for one, two in zip(line, other)
    )


def _series(index: int, name: str, points: Sequence[Placed | None], same: Sequence[int]) -> Iterator[Markup]:
    """The path of a line, and circles that show the numbers on hover."""
    drawn = [point for point in points if point]
    dot = "m-4 0h8" if len(drawn) == 1 else "h.01"  # a dash for the only point, a dot for a point without neighbours
    path, previous = "", None
    for point in points:
        if point:
            position = f"{point[0]:.1f} {point[1]:.1f}"
            path += f"L{position}" if previous else f"M{position}{dot}"
        previous = point
    yield _path(index, path, same)
    stride = max(1, math.ceil(len(drawn) / MAX_POINTS))
    for px, py, x, y in drawn[::stride]:
        tooltip = tag("title", {}, f"{isolate(name)}: {format_tick(x)}, {format_number(y)}")
        yield tag("circle", {"class": "near", "cx": f"{px:.1f}", "cy": f"{py:.1f}", "r": 6}, tooltip)


def connections_svg(section: Connections) -> Markup:
    """Rows of circles, filled where a link begins or ends, with lines for the links."""
    side = min(26, max(8, ROW_WIDTH // max(1, section.columns)))
    left = round(MARGIN + 14 + max(map(cell_len, section.rows), default=0) * LETTER)

    def place(row: int, column: int) -> tuple[float, float]:
        return left + (column + 0.5) * side, MARGIN + 12 + row * ROW_HEIGHT

    body = []
    for row, links in enumerate(section.links):
        for begin, end in links:
            (x, y), (below_x, below_y) = place(row, begin), place(row + 1, end)
            body.append(tag("path", {"class": "line s0", "d": f"M{x:g} {y:g}L{below_x:g} {below_y:g}"}))
    for row, name in enumerate(section.rows):
        linked = section.linked(row)
        body.append(label(name, left - 7, place(row, 0)[1] + 4, "quiet end"))
        for column in range(section.columns):
            x, y = place(row, column)
            fill = "ink" if column in linked else "slot"
            body.append(tag("circle", {"class": fill, "cx": f"{x:g}", "cy": f"{y:g}", "r": min(6, side / 3)}))
    bottom = MARGIN + 12 + (len(section.rows) - 1) * ROW_HEIGHT
    return svg_element(left + side * section.columns + MARGIN, bottom + MARGIN + 12, section.title, body)


def heatmap_svg(heat: Heatmap) -> Markup:
    """The picture: cells with their numbers on hover, and inside if there is room, both axes, and the colour key."""
    values = np.asarray(heat.values, dtype=np.float64)
    down, across = values.shape
    rows = heat.rows or [str(at) for at in range(down)]
    columns = heat.columns or [str(at) for at in range(across)]
    widest = round(max(map(cell_len, columns), default=1) * LETTER) + 6
    side = heat.side or min(max(26, widest), max(3, ROW_WIDTH // max(1, across)))  # room for each name
    high = max(side, 14) if heat.rows and not heat.side else side  # room for each name, also beside narrow cells
    left = round(MARGIN + 34 + max(map(cell_len, rows), default=0) * LETTER)
    top, bottom = MARGIN + 8, MARGIN + 8 + high * down
    most, gap = heat.scale_max, 1 if side > 8 else 0
    decimals = max(0, 2 - math.floor(math.log10(most)) - (most < 1))  # 0.94 and 1.25, but 12.5 and 125
    numbers = [[f"{value:.{decimals}f}" for value in row] for row in values]
    room = max((cell_len(each) for row in numbers for each in row), default=0) * LETTER + 6 <= side
    body = [tag("rect", {"class": "slot", **box(left, top, side * across, high * down)})]
    for i, j in np.ndindex(values.shape):
        value = float(values[i, j])
        if abs(value / most) > 0.004:  # others are too pale to be seen, or not a number
            tooltip = tag("title", {}, f"{isolate(rows[i])}, {isolate(columns[j])}: {format_number(value)}")
            place = box(left + j * side, top + i * high, side - gap, high - gap)
            body.append(tag("rect", {**ink(value / most), **place}, tooltip))
            if room:
                kind = "number middle" + " paper" * (abs(value / most) > 0.65)  # light on dark, or dark on light
                body.append(label(numbers[i][j], left + (j + 0.5) * side, top + (i + 0.5) * high + 4, kind))
    for at in range(0, down, -(-14 // high)):  # where cells are small, only every second, third … name
        body.append(label(rows[at], left - 7, top + (at + 0.5) * high + 4, "quiet end"))
    for at in range(0, across, max(1, -(-widest // side))):
        body.append(label(columns[at], left + (at + 0.5) * side, bottom + 17, "quiet middle"))
    end = format_number(round(most, decimals))
    low = f"-{end}" if (values < 0).any() else "0"
    body += [
        label(heat.x_label, left + side * across / 2, bottom + 38, "middle"),
        vertical_label(heat.y_label, 18, (top + bottom) / 2),
        *colour_key(low, end, left, bottom + 52),
    ]
    return svg_element(max(left + side * across + MARGIN, left + 190), bottom + 84, heat.title, body)
