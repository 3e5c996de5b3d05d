"""Reports as one HTML file: sections of text, tables, curves, heatmaps and attention matrices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from regard.render.curve import Line, curve_svg
from regard.render.formatting import escape
from regard.render.heatmap import Heatmap, heatmap_svg
from regard.render.page import document
from regard.render.svg import matrix_svg
from regard.render.view import AttentionView

__all__ = [
    "Curve",
    "Gallery",
    "Heatmap",
    "Heatmaps",
    "Line",
    "LineGallery",
    "Pre",
    "Table",
    "Text",
    "curve_svg",
    "report_html",
]

LARGE = 720  # pixels; wider pictures take the whole width of the page
Cell = str | int | float | None
# 12, -3.5, 1,234, 2e-4, with an optional spread or unit
_NUMBER = re.compile(
    r"^\s*([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?:±.*|%|[a-zµ]{1,2}|[a-z]{1,6}/s)?\s*$", re.IGNORECASE
)
_VECTOR = re.compile(r"^ *-?\d+\.\d+(?: +-?\d+\.\d+)+(?: …)?$")  # columns of numbers separated by spaces


@dataclass(frozen=True)
class Text:
    """Plain paragraphs, separated by blank lines."""

    text: str
    title: str = ""

    def html(self) -> str:
        paragraphs = [part for part in re.split(r"\n\s*\n", self.text.strip()) if part]
        return _card(self.title, "".join(f"<p>{escape(part)}</p>" for part in paragraphs))


@dataclass(frozen=True)
class Pre:
    """Preformatted text: commands, configurations."""

    text: str
    title: str = ""

    def html(self) -> str:
        return _card(self.title, f'<pre tabindex="0">{escape(self.text)}</pre>')


@dataclass(frozen=True)
class Table:
    """A table. Columns of numbers are aligned to the right, and their best value can be marked."""

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
        numeric = [_is_numeric([row[at] for row in self.rows]) for at in range(len(self.columns))]
        best_rows = [self._best_rows(at) for at in range(len(self.columns))]
        kinds = [' class="figure"' if is_numeric else "" for is_numeric in numeric]
        head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(self.columns, kinds))
        lines = []
        for i, row in enumerate(self.rows):
            cells = list(map(_format_cell, row))
            styles = [
                "figure" if is_numeric else "vector" * bool(_VECTOR.match(cell))
                for is_numeric, cell in zip(numeric, cells)
            ]
            classes = [f"{style} {'best' * (i in best)}".strip() for style, best in zip(styles, best_rows)]
            lines.append("".join(f'<td class="{name}">{escape(cell)}</td>' for cell, name in zip(cells, classes)))
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        note = f'<p class="quiet">{escape(self.note)}</p>' if self.note else ""
        table = f'<table class="report"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
        return _card(self.title, f'<div class="scroll">{table}</div>{note}')

    def _best_rows(self, at: int) -> set[int]:
        """The rows that hold the best value of a column: several, if they are equal."""
        values = {i: value for i, row in enumerate(self.rows) if (value := _value(row[at])) is not None}
        if self.columns[at] not in self.best or not values:
            return set()
        best = (max if self.best[self.columns[at]] == "high" else min)(values.values())
        return {i for i, value in values.items() if value == best}


@dataclass(frozen=True)
class Curve:
    """A line chart."""

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
    """Attention matrices side by side, each under its title."""

    title: str
    views: Sequence[AttentionView]

    def html(self) -> str:
        matrices = [view.matrix() for view in self.views]
        vmax = max((matrix.scale_max for matrix in matrices), default=None)  # all pictures share one colour scale
        pictures = "".join(
            _figure(matrix.title, matrix_svg(replace(matrix, title="", vmax=vmax))) for matrix in matrices
        )
        return _card(self.title, f'<div class="gallery">{pictures}</div>')


@dataclass(frozen=True)
class LineGallery:
    """Attention drawn as lines, several views side by side, each under its title."""

    title: str
    views: Sequence[AttentionView]

    def html(self) -> str:
        pictures = "".join(
            f"<figure><figcaption>{escape(view.title)}</figcaption>\n{replace(view, title='').lines()}</figure>\n"
            for view in self.views
        )
        return _card(self.title, f'<div class="gallery">{pictures}</div>')


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps side by side, each under its title."""

    title: str
    heatmaps: Sequence[Heatmap]
    note: str = ""

    def html(self) -> str:
        pictures = "".join(_figure(heatmap.title, heatmap_svg(heatmap)) for heatmap in self.heatmaps)
        note = f'<p class="quiet">{escape(self.note)}</p>' if self.note else ""
        return _card(self.title, f'<div class="gallery">{pictures}</div>{note}')


Section = Text | Pre | Table | Curve | Gallery | LineGallery | Heatmaps


def report_html(title: str, sections: Sequence[Section]) -> str:
    """The sections in order, as one HTML file that loads nothing from the network."""
    body = "\n".join(section.html() for section in sections)
    return document(title, f'<main class="text">\n<header><h1>{escape(title)}</h1></header>\n{body}\n</main>')


def _card(title: str, body: str) -> str:
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f'<section class="card">{heading}{body}</section>'


def _figure(title: str, svg: str) -> str:
    """One picture of a gallery. Two pictures share a row, unless they are too wide to be read at half the width."""
    large = ' class="large"' * (float(svg.partition('width="')[2].partition('"')[0]) > LARGE)
    caption = escape(title)  # the page shows two lines of it; the title attribute has all
    return f'<figure{large}><figcaption dir="auto" title="{caption}">{caption}</figcaption>\n{svg}</figure>\n'


def _value(cell: Cell) -> float | None:
    """The number that a cell begins with; None if the cell is no number."""
    if not isinstance(cell, str):
        return None if cell is None or cell != cell else float(cell)
    found = _NUMBER.match(cell)
    return float(found[1].replace(",", "").replace("−", "-")) if found else None


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """True if all cells are numbers, apart from empty ones."""
    filled = [cell for cell in cells if cell is not None and cell not in ("", "-", "–")]
    return bool(filled) and all(not isinstance(cell, str) or _value(cell) is not None for cell in filled)


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e15 else f"{cell:.4g}"
    return cell if isinstance(cell, str) else f"{cell:,}"
