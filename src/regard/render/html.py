"""Reports as one HTML file, from their sections."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.cells import cell_len

from regard.file_io import write_file
from regard.render.charts import connections_svg, curve_svg, heatmap_svg, scatter_svg
from regard.render.formatting import (
    Markup,
    bdi,
    cell_value,
    format_cell,
    is_numeric,
    isolate,
    lines,
    right_to_left,
    tag,
)
from regard.render.image_view import READING
from regard.render.page import document, matrix_figure, more_in, page_script
from regard.render.svg import LETTER, ROOM, SMALLEST
from regard.render.view_data import Matrix
from regard.report.glossary import DOCS
from regard.report.sections import (
    Connections,
    Curve,
    Folded,
    Gallery,
    Heatmaps,
    ImageGallery,
    Interlinear,
    LineGallery,
    MarkedText,
    Pre,
    Scatter,
    Section,
    Table,
    Text,
    paragraphs,
)

HALF = 531  # pixels for a picture that shares a row of the widest page with another one
SMALLEST_CELL = 17  # pixels of a cell of a matrix that has half a row
LARGE = HALF / SMALLEST  # wider pictures take the whole width: at half of it, they would need a scroll bar
_CODE = re.compile(r"`([^`]+)`")
_VECTOR = re.compile(r"^ *[-+]?\d+\.\d+(?: (?:\| )? *[-+]?\d+\.\d+)+(?: …)?$")  # numbers separated by spaces


def save_report(path: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write the page of a report."""
    return write_file(path, report_html(title, sections))


def report_html(title: str, sections: Sequence[Section]) -> str:
    """The sections in order, as one HTML file that loads nothing from the network."""
    header = tag("header", {}, tag("h1", {}, bdi(title)))
    cards = []
    for section in sections:
        heading = [tag("h2", {}, section.title)] if section.title else []
        cards.append(tag("section", {"class": "card"}, *heading, *_body(section)))
    scripts = [page_script()] if any(isinstance(section, Gallery) for section in sections) else []
    return document(title, tag("main", {"class": "text"}, "\n", lines([header, *cards])), *scripts)


def _body(section: Section) -> list[Markup]:
    """The elements of a section below its title."""
    match section:
        case Text():
            more = [more_in([section.docs], DOCS)] if section.docs else []
            return [*(tag("p", {}, *_with_code(part)) for part in paragraphs(section.text)), *more]
        case Pre():
            return [tag("pre", {"tabindex": 0}, section.text)]
        case Table():
            return [*_table(section), *_note(section.note)]
        case Curve():
            return [tag("div", {"class": "scroll"}, curve_svg(replace(section, title="")))]
        case Scatter():
            return [tag("div", {"class": "scroll"}, scatter_svg(section)), *_note(section.note)]
        case Connections():
            return [tag("div", {"class": "scroll"}, connections_svg(section))]
        case Interlinear():
            return [_interlinear(section), *_note(section.note)]
        case Heatmaps():
            return [_gallery((heatmap.title, heatmap_svg(heatmap)) for heatmap in section.heatmaps)]
        case Gallery():
            matrices = [view.matrix() for view in section.views]
            vmax = max((matrix.scale_max for matrix in matrices), default=None)  # all pictures share one colour scale
            found = [replace(one, vmax=vmax) for one in matrices]
            pictures = _gallery((one.title, matrix_figure(replace(one, title=""), _room(one))) for one in found)
            return [pictures, *_note(section.note)]
        case ImageGallery():
            pictures = _gallery((view.title, replace(view, title="").svg()) for view in section.views)
            attention = any(len(view.maps) for view in section.views)
            return [pictures, *_note(section.note or (READING if attention else ""))]
        case LineGallery():
            return [_gallery((view.title, replace(view, title="").lines()) for view in section.views)]
        case Folded():
            return [_fold(section.summary, [part for inner in section.sections for part in _titled(inner)])]


def _room(matrix: Matrix) -> int:
    """The pixels for the columns of a matrix: half a row of the page if its cells are large enough then."""
    half = HALF - 20 - max(90, max(map(cell_len, matrix.rows), default=0) * LETTER)  # beside the names of the rows
    return int(half) if half >= SMALLEST_CELL * len(matrix.columns) else ROOM


def _titled(section: Section) -> list[Markup]:
    """The elements of a section that is inside another one, below its title if it has one."""
    return [*([tag("h3", {}, section.title)] if section.title else []), *_body(section)]


def _fold(summary: str, content: Sequence[Markup]) -> Markup:
    """What the page shows only after a click on the summary."""
    return tag("details", {}, tag("summary", {}, summary), *content)


def _note(text: str) -> list[Markup]:
    return [tag("p", {"class": "quiet"}, text)] if text else []


def _with_code(text: str) -> list[Markup | str]:
    """A text in which `words between backticks` are code."""
    parts = _CODE.split(text)
    return [tag("code", {}, part) if at % 2 else part for at, part in enumerate(parts)]


def _table(table: Table) -> list[Markup]:
    """The table; the rows after the first ones, if it names their number, are folded."""
    columns = [[row[at] for row in table.rows] for at in range(len(table.columns))]
    numeric = [is_numeric(cells) for cells in columns]
    vectors = [all(_VECTOR.match(format_cell(cell)) for cell in cells if cell not in (None, "")) for cells in columns]
    best = [_best_rows(table, at) for at in range(len(columns))]
    names = [
        tag("th", {"scope": "col", "class": "figure" if number else None}, name.replace("\n", " "))
        for name, number in zip(table.columns, numeric)
    ]
    rows = []
    for i, row in enumerate(table.rows):
        cells = []
        for at, (value, cell) in enumerate(zip(row, map(format_cell, row))):
            style = "figure" if numeric[at] else "vector" * vectors[at]
            direction = "auto" if right_to_left(cell) else None
            parts = _marked(value) if isinstance(value, MarkedText) else [cell]
            cells.append(tag("td", {"class": f"{style} {'best' * (i in best[at])}".strip(), "dir": direction}, *parts))
        rows.append(tag("tr", {}, *cells))
    head = tag("thead", {}, tag("tr", {}, *names))
    first = len(rows) if table.first is None else table.first
    shown, rest = (
        tag("table", {"class": "report"}, head, "\n", tag("tbody", {}, "\n", lines(some)))
        for some in (rows[:first], rows[first:])
    )
    boxes = [tag("div", {"class": "scroll"}, one) for one in (shown, rest)]
    more = f"{len(rows) - first:,} more row{'s' * (len(rows) > first + 1)}"
    return boxes[:1] if len(rows) <= first else [boxes[0], _fold(more, boxes[1:])]


def _interlinear(section: Interlinear) -> Markup:
    """A small list for each place, which stand side by side; the names of the lines come first."""
    columns = [tag("li", {"class": "quiet"}, *(tag("span", {}, name) for name in section.names))]
    for at, cells in enumerate(section.columns):
        kind = "marked" if at in section.marked else None
        columns.append(tag("li", {"class": kind}, *(tag("span", {}, cell or "\N{NO-BREAK SPACE}") for cell in cells)))
    return tag("ol", {"class": "interlinear"}, lines(columns))


def _marked(cell: MarkedText) -> list[Markup | str]:
    """A text with its marked part in bold."""
    before, part, after = cell.parts
    return [before, tag("b", {}, part), after]


def _best_rows(table: Table, at: int) -> set[int]:
    """The rows that hold the best value of a column: several, if they are equal; none, if all are equal."""
    values = {i: value for i, row in enumerate(table.rows) if (value := cell_value(row[at])) is not None}
    if table.columns[at] not in table.best or len({*values.values()}) < 2:
        return set()
    best = (max if table.best[table.columns[at]] == "high" else min)(values.values())
    return {i for i, value in values.items() if value == best}


def _gallery(pictures: Iterable[tuple[str, Markup]]) -> Markup:
    """Pictures under their titles. Two share a row, unless they are too wide to be read at half the width."""
    figures = []
    for title, svg in pictures:
        large = float(svg.partition('width="')[2].partition('"')[0]) > LARGE
        caption = tag("figcaption", {"title": isolate(title)}, bdi(title))  # the page shows two lines of it
        picture = tag("div", {"class": "scroll"}, svg)
        figures.append(tag("figure", {"class": "large" if large else None}, caption, "\n", picture))
    return tag("div", {"class": "gallery"}, lines(figures))
