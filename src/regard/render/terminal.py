"""The terminal: sections of a report, and attention matrices as block characters, fitted to its width."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from regard.render.formatting import format_cell, graphemes, is_numeric, labels, shorten_special, truncate
from regard.render.view_data import Matrix, Unknown, caption
from regard.report import sections as report

SHADES = "·░▒▓█"
EDGES = (0.05, 0.25, 0.5, 0.75)  # parts of the colour scale at which the next shade begins
COLOUR = "blue"
TALLEST = 12  # letters in a vertical heading
WIDEST = 16  # terminal cells of a row's label
WHOLE = 30  # letters of a word in a table that is not broken where other columns can be narrower
FEWEST = 5  # letters of a word that is broken, in a line of a narrow column
BETWEEN = 2  # terminal cells between two columns of a table
LIST = re.compile(r"(?<=,)(?=\D)")  # where a list such as "en,fr" may be broken, but not a number such as "1,200"


def sections_text(sections: Sequence[report.Section]) -> Group:
    """The texts, tables and connections of a report, separated by blank lines; its other pictures are left out."""
    parts: list[RenderableType] = []
    for section in sections:
        title = [Text(section.title, "bold")] if section.title else []
        match section:
            case report.Text():
                more = f"\n\nMore in docs/{section.docs}" if section.docs else ""
                texts = report.paragraphs(section.text + more)
                parts += [*title, *(part for text in texts for part in (Text(text), ""))]
            case report.Pre():
                parts += [*title, Padding(Text(section.text), (0, 0, 1, 2))]
            case report.Table():
                parts += [table_text(section), ""]
            case report.Connections():
                parts += [*title, *connections_text(section), ""]
            case report.Folded():
                parts += [*title, Text(section.summary), "", sections_text(section.sections)]
            case report.Interlinear():
                note = [Text(section.note, "dim")] if section.note else []
                parts += [*title, InterlinearText(section), *note, ""]
    return Group(*parts)


def table_text(section: report.Table) -> Group:
    """A table without lines, under its title and above its note: numbers to the right, all else to the left."""
    title = [Text(section.title, "bold")] if section.title else []
    return Group(*title, TableText(section), *([Text(section.note, "dim")] if section.note else []))


@dataclass(frozen=True, eq=False)
class TableText:
    """A rich renderable: the rows of a table, whose words and numbers are whole where the terminal has room."""

    section: report.Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self.section.rows[: self.section.first]
        texts = [[format_cell(cell) for cell in row] for row in rows]
        right = [at > 0 and is_numeric([row[at] for row in rows]) for at in range(len(self.section.columns))]
        columns = list(zip(self.section.columns, *texts))
        table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(self.section.columns))
        widths = column_widths(columns, options.max_width - BETWEEN * (len(columns) - 1), right)
        for at, (name, width) in enumerate(zip(self.section.columns, widths)):
            justify: JustifyMethod = "right" if right[at] else "left"
            table.add_column(
                Text(name),
                justify=justify,
                style="" if at else "cyan",
                overflow="fold",
                min_width=width,
                max_width=width,
            )
        for row, shown in zip(rows, texts):
            table.add_row(*(_cell_text(cell, text, width) for cell, text, width in zip(row, shown, widths)))
        yield table


def _cell_text(cell: report.Cell, text: str, width: int) -> Text:
    """A cell of a table. A list that is wider than its column has line ends after some of its commas."""
    if isinstance(cell, report.MarkedText):
        shown = Text(text)
        shown.stylize("bold", cell.start, cell.end + 2)  # with both asterisks
        return shown
    return Text(re.sub(r"\S+", lambda word: _folded_list(word[0], width), text))


def _folded_list(word: str, width: int) -> str:
    """The parts of a list, with a line end where the next part does not fit."""
    lines = [""]
    for part in LIST.split(word) if cell_len(word) > width else [word]:
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def column_widths(columns: Sequence[Sequence[str]], room: int, numeric: Sequence[bool]) -> list[int]:
    """The widths of columns, given their cells, that add up to the room at most.

    The widest columns become narrower first: as long as words stay whole, then those of text, then those of numbers,
    down to a few letters.
    """
    lines = [[line for cell in cells for line in cell.splitlines()] for cells in columns]
    widths = [min(max(map(cell_len, some), default=0), max(room, 1)) for some in lines]
    parts = [[part for line in some for word in line.split() for part in LIST.split(word)] for some in lines]
    whole = [min(max(map(cell_len, some), default=1), WHOLE) for some in parts]
    few = [min(kept, FEWEST) for kept in whole]
    text = [kept if number else least for kept, least, number in zip(whole, few, numeric)]
    for least in (whole, text, few, [1] * len(columns)):
        while sum(widths) > room:
            at = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            if widths[at] <= least[at]:
                break
            widths[at] -= 1
    return widths


def connections_text(section: report.Connections) -> Iterator[Text]:
    """A line for each row: a circle at a position that a link begins or ends at, else a dot."""
    gap = " " if 2 * section.columns + max(map(cell_len, section.rows)) < 80 else ""
    for row, name in enumerate(section.rows):
        linked = section.linked(row)
        yield Text(gap.join("●" if at in linked else "·" for at in range(section.columns)) + f"  {name}")


@dataclass(frozen=True, eq=False)
class InterlinearText:
    """A rich renderable: the lines of an interlinear section, broken where the terminal ends."""

    section: report.Interlinear

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names, lead = self.section.names, max(map(cell_len, self.section.names)) + 2
        block: list[tuple[int, Sequence[str], int]] = []  # the number of each column, its cells and its width
        used = lead
        for at, cells in enumerate(self.section.columns):
            width = max(map(cell_len, cells)) + 1
            if block and used + width > options.max_width:
                yield from self._lines(names, lead, block)
                block, used = [], lead
            block.append((at, cells, width))
            used += width
        yield from self._lines(names, lead, block)

    def _lines(self, names: Sequence[str], lead: int, block: list[tuple[int, Sequence[str], int]]) -> Iterator[Text]:
        for number, name in enumerate(names):
            line = Text(name + " " * (lead - cell_len(name)), "dim", no_wrap=True, overflow="ellipsis")
            for at, cells, width in block:
                cell = cells[number]
                line.append(cell, "bold blue" if at in self.section.marked else "not dim")
                line.append(" " * (width - cell_len(cell)))
            if name == names[0] or line.plain[lead:].strip():  # a line of which this part is empty is left out
                yield line
        yield Text("")


@dataclass(frozen=True, eq=False)
class MatrixText:
    """A rich renderable: the matrix as a grid if it fits, otherwise one line per row with its strongest column."""

    matrix: Matrix

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        matrix, width = self.matrix, options.max_width
        yield Text.assemble((matrix.title, "bold"), ("  " if matrix.title else ""), (matrix.label, "dim"))
        if not matrix.weights.size:
            yield Text(f"the matrix is empty: {len(matrix.rows)} rows, {len(matrix.columns)} columns", "dim")
            return
        for line in _grid(matrix, width) or _lines(matrix, width):
            line.no_wrap, line.overflow = True, "crop"
            yield line
        yield Text(caption(matrix.part), "dim")
        yield _key(matrix)


def _grid(matrix: Matrix, width: int) -> list[Text]:
    """Headings, shaded cells and the strongest column of each row; an empty list if the columns do not fit the width.

    Narrower cells are taken where the strongest columns would have no room otherwise.
    """
    names = [shorten_special(name) for name in _names(matrix.columns)]
    rows, tails = _row_labels(matrix), _tails(matrix, names)
    room = width - cell_len(rows[0]) - 1
    longest = max(map(cell_len, tails)) + 2
    fitting = [(heading, cell) for heading, cell in _headings(names) if cell * len(names) <= room]
    if not fitting:
        return []
    with_tails = [(heading, cell) for heading, cell in fitting if cell * len(names) + longest <= room]
    heading, cell = (with_tails or fitting)[0]
    gap = cell > 2  # wide cells have a space between them
    lines = [Text(" " * (width - room) + line, "bold") for line in heading]
    for label, shades, tail in zip(rows, _shades(matrix), tails):
        wide = ((shade + " " * (cell - gap - 1) if shade == SHADES[0] else shade * (cell - gap)) for shade in shades)
        cells = "".join(one + " " * gap for one in wide)
        lines.append(Text.assemble((label, "bold"), " ", _coloured(cells), (f"  {tail}" * bool(with_tails), "dim")))
    return lines


def _headings(names: list[str]) -> Iterator[tuple[list[str], int]]:
    """The heading lines and the width of a cell, the widest first: horizontal names, then vertical ones."""
    longest = max(map(cell_len, names))
    wide = longest + 1 if max(len(graphemes(name)) for name in names) > 1 else max(2, longest)
    if wide <= 12:
        yield ["".join(name + " " * (wide - cell_len(name)) for name in names)], wide
    letters = [graphemes(name) for name in names]
    columns = [column if len(column) <= TALLEST else [*column[: TALLEST - 1], "…"] for column in letters]
    narrowest = max(cell_len(cluster) for column in columns for cluster in column)
    height = max(map(len, columns))
    vertical = [[""] * (height - len(column)) + column for column in columns]  # aligned at the bottom
    for cell in sorted({max(2, narrowest), narrowest}, reverse=True):
        yield ["".join(c[i] + " " * (cell - cell_len(c[i])) for c in vertical) for i in range(height)], cell


def _lines(matrix: Matrix, width: int) -> Iterator[Text]:
    """For too many columns: each row's strongest column by name, and the row pooled into a strip of shades."""
    rows = _row_labels(matrix)
    most = max(4, min(width // 4, width - cell_len(rows[0]) - 10))  # " ← ", and " (0.90)" after the name
    tails = _tails(matrix, [truncate(name, most) for name in _names(matrix.columns)])
    longest = max(map(cell_len, tails))
    room = width - cell_len(rows[0]) - longest - 5
    parts = np.array_split(np.nan_to_num(matrix.weights), max(1, min(room, len(matrix.columns))), axis=1)
    pooled = np.stack([part.max(axis=1) for part in parts], axis=1)  # maximum: no peak is lost
    seen = None
    if matrix.visible is not None:
        seen = np.stack([part.any(axis=1) for part in np.array_split(matrix.visible, len(parts), axis=1)], axis=1)
    strips = _shades(replace(matrix, weights=pooled, vmax=matrix.scale_max, visible=seen))
    for label, tail, strip in zip(rows, tails, strips):
        line = Text.assemble((label, "bold"), " ← ", tail)
        if room >= 10:
            line.append(" " * (longest - cell_len(tail) + 2)).append_text(_coloured(strip))
        yield line


def _names(pieces: Sequence[str]) -> list[str]:
    """The names of tokens; that of an unknown one is in brackets, the ring of a terminal."""
    return [f"({name})" if isinstance(piece, Unknown) else name for piece, name in zip(pieces, labels(pieces))]


def _row_labels(matrix: Matrix) -> list[str]:
    names = [truncate(name, WIDEST) for name in _names(matrix.rows)]
    longest = max(map(cell_len, names))
    return [" " * (longest - cell_len(name)) + name for name in names]


def _tails(matrix: Matrix, names: list[str]) -> list[str]:
    """The name and the weight of each row's strongest column."""
    best = np.nan_to_num(matrix.weights, nan=-1.0).argmax(axis=1)
    strongest = [(names[at], row[at]) for at, row in zip(best, matrix.weights)]
    return [f"{name} ({weight:.2f})" if weight > 0 else "–" for name, weight in strongest]


def _shades(matrix: Matrix) -> list[str]:
    levels = np.where(_blank(matrix), -1, np.digitize(matrix.intensities, EDGES))
    return ["".join(SHADES[level] if level >= 0 else " " for level in row) for row in levels.tolist()]


def _blank(matrix: Matrix) -> NDArray[np.bool_]:
    """The cells that stay blank: masked ones, or weights of exactly 0 if the mask is not known. (Tq, Tk)"""
    return matrix.weights == 0 if matrix.visible is None else ~matrix.visible


def _coloured(cells: str) -> Text:
    text = Text(cells, COLOUR)
    text.highlight_regex("[· ]+", "dim")
    return text


def _key(matrix: Matrix) -> Text:
    more = np.nan_to_num(matrix.weights).max() > matrix.scale_max  # rows that `scale_max` does not count
    last = f"≥{EDGES[-1] * matrix.scale_max:.2g}" if more else f"≤{matrix.scale_max:.3g}"
    bounds = [*(f"<{edge * matrix.scale_max:.2g}" for edge in EDGES), last]
    blank = ("blank 0  " if matrix.visible is None else "blank: may not look  ") * bool(_blank(matrix).any())
    return Text(blank + "  ".join(f"{shade} {bound}" for shade, bound in zip(SHADES, bounds)), "dim")
