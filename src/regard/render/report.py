"""One HTML file that tells how a run or a ladder went: words, tables, curves, alignments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from regard.render.curve import Line, curve_svg
from regard.render.heat import Heat, heat_svg
from regard.render.labels import escape
from regard.render.page import document
from regard.render.svg import matrix_svg
from regard.render.view import AttentionView

__all__ = ["Curve", "Gallery", "Heat", "Heats", "Line", "Pre", "Table", "Text", "curve_svg", "report"]

LARGE = 720  # pixels that a picture may be wide and still be read in half a page
Cell = str | int | float | None
# 12, -3.5, 1,234, 2e-4, and what may follow: a spread, a unit
_FIGURE = re.compile(
    r"^\s*([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?:±.*|%|[a-zµ]{1,2}|[a-z]{1,6}/s)?\s*$", re.IGNORECASE
)
_VECTOR = re.compile(r"^ *-?\d+\.\d+(?: +-?\d+\.\d+)+(?: …)?$")  # whose numbers stand below those of the next row


@dataclass(frozen=True)
class Text:
    """Plain paragraphs, parted by blank lines."""

    text: str
    title: str = ""

    def html(self) -> str:
        paragraphs = [part for part in re.split(r"\n\s*\n", self.text.strip()) if part]
        return _card(self.title, "".join(f"<p>{escape(part)}</p>" for part in paragraphs))


@dataclass(frozen=True)
class Pre:
    """Text whose spaces and line ends count: commands, configurations."""

    text: str
    title: str = ""

    def html(self) -> str:
        return _card(self.title, f'<pre tabindex="0">{escape(self.text)}</pre>')


@dataclass(frozen=True)
class Table:
    """Rows of cells; a column of figures stands to the right, its best value may be marked."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    best: Mapping[str, Literal["high", "low"]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f'table "{self.title}": row {at} has {len(row)} cells for {len(self.columns)} columns')
        for name in self.best:
            if name not in self.columns:
                raise ValueError(f'table "{self.title}": best names "{name}", which is no column')

    def html(self) -> str:
        figures = [_is_figures([row[at] for row in self.rows]) for at in range(len(self.columns))]
        winners = [self._winners(at) for at in range(len(self.columns))]
        kinds = [' class="figure"' if figure else "" for figure in figures]
        head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(self.columns, kinds))
        lines = []
        for i, row in enumerate(self.rows):
            told = list(map(_told, row))
            looks = [
                "figure" if figure else "vector" * bool(_VECTOR.match(cell)) for figure, cell in zip(figures, told)
            ]
            names = [f"{look} {'best' * (i in won)}".strip() for look, won in zip(looks, winners)]
            lines.append("".join(f'<td class="{name}">{escape(cell)}</td>' for cell, name in zip(told, names)))
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        note = f'<p class="quiet">{escape(self.note)}</p>' if self.note else ""
        table = f'<table class="report"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
        return _card(self.title, f'<div class="scroll">{table}</div>{note}')

    def _winners(self, at: int) -> set[int]:
        """The rows that hold the best value of a column; ties all win."""
        values = {i: value for i, row in enumerate(self.rows) if (value := _value(row[at])) is not None}
        if self.columns[at] not in self.best or not values:
            return set()
        best = (max if self.best[self.columns[at]] == "high" else min)(values.values())
        return {i for i, value in values.items() if value == best}


@dataclass(frozen=True)
class Curve:
    """Lines over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_y: bool = False
    log_x: bool = False

    def html(self) -> str:
        return _card(self.title, curve_svg("", self.x_label, self.y_label, self.lines, self.log_y, self.log_x))


@dataclass(frozen=True)
class Gallery:
    """Alignments side by side, each under its title."""

    title: str
    views: Sequence[AttentionView]

    def html(self) -> str:
        matrices = [view.matrix() for view in self.views]
        scale = max((matrix.ceiling for matrix in matrices), default=None)  # one for all: a shade is a shade
        pictures = "".join(
            _figure(matrix.title, matrix_svg(replace(matrix, title="", scale=scale))) for matrix in matrices
        )
        return _card(self.title, f'<div class="gallery">{pictures}</div>')


@dataclass(frozen=True)
class Heats:
    """Tables of numbers as colours, side by side, each under its title."""

    title: str
    heats: Sequence[Heat]
    note: str = ""

    def html(self) -> str:
        pictures = "".join(_figure(heat.title, heat_svg(heat)) for heat in self.heats)
        note = f'<p class="quiet">{escape(self.note)}</p>' if self.note else ""
        return _card(self.title, f'<div class="gallery">{pictures}</div>{note}')


Section = Text | Pre | Table | Curve | Gallery | Heats


def report(title: str, sections: Sequence[Section]) -> str:
    """The sections in order, one file, no network."""
    body = "\n".join(section.html() for section in sections)
    return document(title, f'<main class="text">\n<header><h1>{escape(title)}</h1></header>\n{body}\n</main>')


def _card(title: str, body: str) -> str:
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f'<section class="card">{heading}{body}</section>'


def _figure(title: str, svg: str) -> str:
    """One picture of a gallery: two stand side by side, unless one would be too small to read."""
    large = ' class="large"' * (float(svg.partition('width="')[2].partition('"')[0]) > LARGE)
    told = escape(title)  # the page cuts it after two lines
    return f'<figure{large}><figcaption dir="auto" title="{told}">{told}</figcaption>\n{svg}</figure>\n'


def _value(cell: Cell) -> float | None:
    """The number a cell begins with, if it is a figure and a number at all."""
    if not isinstance(cell, str):
        return None if cell is None or cell != cell else float(cell)
    found = _FIGURE.match(cell)
    return float(found[1].replace(",", "").replace("−", "-")) if found else None


def _is_figures(cells: Sequence[Cell]) -> bool:
    told = [cell for cell in cells if cell is not None and cell not in ("", "-", "–")]
    return bool(told) and all(not isinstance(cell, str) or _value(cell) is not None for cell in told)


def _told(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e15 else f"{cell:.4g}"
    return cell if isinstance(cell, str) else f"{cell:,}"
