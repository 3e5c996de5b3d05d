"""The sections of a report, as data: text, tables, curves, heatmaps and attention views."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from regard.render.image_view import ImageView
    from regard.render.view import AttentionView
    from regard.render.view_data import Matrix


@dataclass(frozen=True)
class MarkedText:
    """A text of which a part, from `start` to `end`, is shown in bold."""

    text: str
    start: int
    end: int

    @property
    def parts(self) -> tuple[str, str, str]:
        """The text before the part, the part, the text after it."""
        return self.text[: self.start], self.text[self.start : self.end], self.text[self.end :]

    def excerpt(self, width: int = 80) -> "MarkedText":
        """The part with at most so many characters on each side of it, cut between words."""
        before, part, after = self.parts
        if len(before) > width:
            before = "… " + before[-width:].partition(" ")[2]
        if len(after) > width:
            after = after[:width].rpartition(" ")[0] + " …"
        return MarkedText(before + part + after, len(before), len(before) + len(part))

    @property
    def marked(self) -> str:
        """The text with the part in asterisks."""
        return "*".join(self.parts)


Cell = str | int | float | MarkedText | None


@dataclass(frozen=True)
class Text:
    """Plain paragraphs, separated by blank lines."""

    text: str
    title: str = ""
    docs: str = ""  # a page of the documentation with more about it, such as "scaling.md"


@dataclass(frozen=True)
class Pre:
    """Preformatted text: commands, configurations."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table. Columns of numbers are aligned to the right, and their best value can be marked."""

    title: str
    columns: Sequence[str]  # a line break in a name is kept in a terminal only
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    best: Mapping[str, Literal["high", "low"]] = field(default_factory=dict)
    first: int | None = None  # a page folds the rows after these, and a terminal leaves them out; None: all are shown

    def __post_init__(self) -> None:
        for at, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f'table "{self.title}": row {at} has {len(row)} cells for {len(self.columns)} columns')
        for name in self.best:
            if name not in self.columns:
                raise ValueError(f'table "{self.title}": best names "{name}", which is no column')


@dataclass(frozen=True)
class Line:
    """One series of points: a name, x values and y values; with ``spread``, a bar from y − spread to y + spread."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    spread: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.xs) != len(self.ys):
            raise ValueError(f'line "{self.name}": {len(self.xs)} xs and {len(self.ys)} ys')
        if self.spread and len(self.spread) != len(self.ys):
            raise ValueError(f'line "{self.name}": {len(self.ys)} ys and {len(self.spread)} numbers of their spread')


@dataclass(frozen=True)
class Curve:
    """A line chart."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_y: bool = False
    log_x: bool = False
    ends: tuple[float | None, float | None] = (None, None)  # of the y axis, at least; None: the values decide


@dataclass(frozen=True)
class Scatter:
    """Points in a plane. Each has a text that is shown on hover, and belongs to a group.

    The first group is drawn above the others, as stars.
    """

    title: str
    x_label: str
    y_label: str
    points: Sequence[tuple[float, float]]
    texts: Sequence[str]
    groups: Sequence[str]  # the name of the group of each point
    note: str = ""


@dataclass(frozen=True)
class Connections:
    """Rows of positions, and the links between positions of neighbouring rows: which inputs an output is made of."""

    title: str
    rows: Sequence[str]  # the names of the rows, from the top
    columns: int  # positions of a row
    links: Sequence[Sequence[tuple[int, int]]]  # below each row but the last: its position, that of the row below

    def linked(self, row: int) -> set[int]:
        """The positions of a row that a link begins or ends at."""
        above = {end for _, end in self.links[row - 1]} if row else set()
        return above | ({begin for begin, _ in self.links[row]} if row < len(self.links) else set())


@dataclass(frozen=True)
class Interlinear:
    """Lines of cells that belong together column by column, as the tokens of a text and what is said about each.

    The columns are broken into several lines where the page ends. Columns that are `marked` are drawn in bold.
    """

    title: str
    names: Sequence[str]  # of the lines, such as "reads" and "predicts"
    columns: Sequence[Sequence[str]]  # for each place, a cell for each line; "" is empty
    marked: Sequence[int] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(column) != len(self.names) for column in self.columns):
            raise ValueError(f'interlinear "{self.title}": every column must have {len(self.names)} cells')


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A table of numbers to be drawn as colours. An axis without names is numbered."""

    title: str
    x_label: str
    y_label: str
    values: ArrayLike  # (rows, columns)
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    side: int = 0  # of a cell, in pixels; 0: as large as a page allows
    vmax: float = 0.0  # the value with the full colour; 0: the largest absolute value of the table

    @property
    def scale_max(self) -> float:
        """The absolute value that has the full colour."""
        return self.vmax or float(np.abs(np.nan_to_num(self.values)).max(initial=0.0)) or 1.0


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps side by side, each under its title."""

    title: str
    heatmaps: Sequence[Heatmap]


class HasMatrix(Protocol):
    """What a gallery shows: something that is drawn as a matrix."""

    def matrix(self) -> "Matrix":
        """The numbers of the picture, and the names of its rows and columns."""


@dataclass(frozen=True)
class Gallery:
    """Attention matrices, or other matrices, side by side, each under its title."""

    title: str
    views: Sequence[HasMatrix]
    note: str = ""


@dataclass(frozen=True)
class LineGallery:
    """Attention drawn as lines, several views side by side, each under its title."""

    title: str
    views: "Sequence[AttentionView]"


@dataclass(frozen=True)
class ImageGallery:
    """Images with the attention of each word of their captions, each under its title."""

    title: str
    views: "Sequence[ImageView]"
    note: str = ""  # below the images; empty: how to read them


@dataclass(frozen=True)
class Folded:
    """Sections that a page hides below a line until the reader opens them. A terminal prints all of them."""

    title: str
    summary: str  # the line: the few things that matter
    sections: "Sequence[Section]"


Section = (
    Text
    | Pre
    | Table
    | Curve
    | Scatter
    | Connections
    | Interlinear
    | Heatmaps
    | Gallery
    | LineGallery
    | ImageGallery
    | Folded
)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each on one line."""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
