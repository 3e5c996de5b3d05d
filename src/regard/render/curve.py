"""Curves as SVG: axes, ticks, a legend, and the numbers of every point on hover."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from regard.render.labels import escape, number
from regard.render.svg import frame

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, BOTTOM = 84, 24, 56
DASHES = ("", "7 4", "2 4", "10 4 2 4")  # lines stay apart without colour too
POINTS = 120  # at most so many answer to the pointer, per line


@dataclass(frozen=True)
class Line:
    """One series: what was measured, where, how much."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.xs) != len(self.ys):
            raise ValueError(f'line "{self.name}": {len(self.xs)} xs and {len(self.ys)} ys')


@dataclass(frozen=True)
class Axis:
    """From values to pixels, and the values worth a tick."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        if not self.log:
            step = _step((self.high - self.low) / 5)
            return [k * step for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        decades = math.log10(self.high / self.low)
        marks = (1,) if decades > 3 else (1, 2, 5)
        every = max(1, math.ceil(decades / 8))
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1, every)
        found = [mark * 10.0**power for power in powers for mark in marks]
        return [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


def curve_svg(
    title: str, x_label: str, y_label: str, lines: Sequence[Line], log_y: bool = False, log_x: bool = False
) -> str:
    """Every line in one frame. Points that are not finite (or not positive, on a logarithmic axis) break the line."""
    drawn = [
        [(x, y) if _fits(x, log_x) and _fits(y, log_y) else None for x, y in zip(line.xs, line.ys)] for line in lines
    ]
    points = [point for line in drawn for point in line if point]
    legend, rows = _legend([line.name for line in lines], 52 if title else 28)
    top = (44 if title else 20) + 20 * rows
    x_axis = _axis([x for x, _ in points], LEFT, WIDTH - RIGHT, log_x)
    y_axis = _axis([y for _, y in points], HEIGHT - BOTTOM, top + 8, log_y)

    body = [f'<text class="heading" x="20" y="30">{escape(title)}</text>\n'] if title else []
    body += [*legend, *_grid(x_axis, y_axis), *_names(x_label, y_label, (top + HEIGHT - BOTTOM) / 2)]
    for index, (line, where) in enumerate(zip(lines, drawn)):
        body += _series(
            index, line.name, [point and (x_axis.at(point[0]), y_axis.at(point[1]), *point) for point in where]
        )
    return frame(WIDTH, HEIGHT, title or f"{y_label} against {x_label}", "".join(body))


def _fits(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _step(rough: float) -> float:
    """The next of 1, 2, 5, 10 … at that size."""
    decade = 10.0 ** math.floor(math.log10(rough))
    return next(mark * decade for mark in (1, 2, 5, 10) if mark * decade >= rough * (1 - 1e-9))


def _axis(values: list[float], start: float, end: float, log: bool) -> Axis:
    """The values' range, opened where it is a single point; y (which runs upward) is widened to whole ticks."""
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        low, high = (low / 2, high * 2) if log else (low - max(1.0, abs(low)) / 2, high + max(1.0, abs(high)) / 2)
    if start > end and not log:
        step = _step((high - low) / 5)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(low, high, start, end, log)


def _told(value: float) -> str:
    return f"{value:,.10g}"


def _legend(names: Sequence[str], y: float) -> tuple[list[str], int]:
    """A sample of each line with its name, in as many rows as needed."""
    parts: list[str] = []
    x, row = 20.0, 0
    for index, name in enumerate(names):
        length = 36 + cell_len(name) * 6.8 + 18
        if x > 20 and x + length > WIDTH - RIGHT:
            x, row = 20.0, row + 1
        at = y + 20 * row
        parts.append(f'<path class="line {_style(index)}" d="M{x:g} {at - 4:g}h26"{_dash(index)}/>\n')
        parts.append(f'<text x="{x + 34:g}" y="{at:g}">{escape(name)}</text>\n')
        x += length
    return parts, row + 1 if names else 0


def _style(index: int) -> str:
    return f"s{index % 8}"


def _dash(index: int) -> str:
    pattern = DASHES[index % len(DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def _grid(x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    left, right, base = x_axis.start, x_axis.end, y_axis.start
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        yield f'<path class="rule" d="M{left:g} {y:.1f}H{right:g}"/>\n'
        yield f'<text class="quiet end" x="{left - 10:g}" y="{y + 4:.1f}">{_told(tick)}</text>\n'
    yield f'<path class="axis" d="M{left:g} {base:g}H{right:g}"/>\n'
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        yield f'<path class="axis" d="M{x:.1f} {base:g}v5"/>\n'
        yield f'<text class="quiet middle" x="{x:.1f}" y="{base + 20:g}">{_told(tick)}</text>\n'


def _names(x_label: str, y_label: str, middle: float) -> Iterator[str]:
    yield f'<text class="middle" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 14}">{escape(x_label)}</text>\n'
    yield f'<text class="middle" transform="translate(16 {middle:g}) rotate(-90)">{escape(y_label)}</text>\n'


def _series(index: int, name: str, places: Sequence[tuple[float, float, float, float] | None]) -> Iterator[str]:
    """The line, lifted where a point is missing, and over it the points that answer to the pointer."""
    path, down = "", False
    for place in places:
        if place:
            here = f"{place[0]:.1f} {place[1]:.1f}"
            path += f"L{here}" if down else f"M{here}h.01"  # so that a point without neighbours is still a dot
        down = place is not None
    yield f'<path class="line {_style(index)}" d="{path}"{_dash(index)}/>\n'
    known = [place for place in places if place]
    every = max(1, math.ceil(len(known) / POINTS))
    for px, py, x, y in known[::every]:
        told = f"{escape(name)}: {_told(x)}, {number(y)}"
        yield f'<circle class="near" cx="{px:.1f}" cy="{py:.1f}" r="6"><title>{told}</title></circle>\n'
