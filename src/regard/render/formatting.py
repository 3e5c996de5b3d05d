"""Values as text: tokens, numbers and cells of tables; elements of HTML and SVG, the only place that escapes text."""

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate

import regex
from rich.cells import cell_len

from regard.errors import DIRECTIONS, escape_controls
from regard.render.view_data import Unknown
from regard.report.sections import Cell, MarkedText

# 12, -3.5, 1,234, 2e-4, with an optional spread or unit
_NUMBER = re.compile(
    r"^\s*([-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*(?:±.*|%|[a-zµ]{1,2}|[a-z]{1,6}/s)?\s*$", re.IGNORECASE
)

_INNER_SPACE = re.compile(r"(?<=\S) (?=\S)")
_DIRECTIONS = re.compile(f"[{DIRECTIONS}]")
FIRST_STRONG, POP = "\u2068", "\u2069"  # the beginning and the end of a part that has a direction of its own
ARROW = " → "  # between a source and its target, in a title


@lru_cache(maxsize=4096)  # a token is in the tooltip of each cell of its row and column
def visible(piece: str) -> str:
    """A token with visible symbols for spaces, control characters and lone accents: no label is blank.

    One space between two letters is seen without a symbol, as in the label "hop 1".
    """
    if not piece:
        return "∅"
    shown = " ".join("".join(map(_visible_character, part)) for part in _INNER_SPACE.split(piece))
    return shown if cell_len(graphemes(shown)[0]) else "◌" + shown  # an accent or a joiner without a letter before it


def _visible_character(character: str) -> str:
    if character == "\n":
        return "↵"
    if character == "\t":
        return "⇥"
    if character.isspace():
        return "␣"
    if ord(character) < 32:
        return chr(0x2400 + ord(character))  # the control pictures
    return "�" if unicodedata.category(character) in ("Cc", "Cs") or _DIRECTIONS.match(character) else character


def graphemes(text: str) -> list[str]:
    """The characters that a reader sees: letters with their accents, combined emoji, flags (Unicode UAX 29)."""
    return regex.findall(r"\X", text)


def labels(pieces: Sequence[str]) -> list[str]:
    """The labels of an axis. Of tokens that are parts of one character, the first shows it whole, the others show ⋯."""
    shown, place = [visible(piece) for piece in pieces], 0
    texts = [piece or " " for piece in pieces]
    starts = {start: at for at, start in enumerate(accumulate(map(len, texts), initial=0))}  # the last one is the end
    for character in graphemes("".join(texts)):
        first, end = starts.get(place), starts.get(place + len(character))
        if first is not None and end is not None and end > first + 1:
            shown[first:end] = [visible(character), *["⋯"] * (end - first - 1)]
        place += len(character)
    return shown


def right_to_left(text: str) -> bool:
    """Whether a text has letters of a script that is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


@lru_cache(maxsize=4096)
def isolate(text: str) -> str:
    """A text for a picture or a tooltip: its right-to-left parts do not reorder what stands beside them.

    The two sides of an arrow, a source and its target, are separate parts. Its own invisible directions are escaped.
    """
    sides = escape_directions(text).split(ARROW)
    return ARROW.join(f"{FIRST_STRONG}{side}{POP}" if right_to_left(side) else side for side in sides)


def escape_directions(text: str, keep: str = "") -> str:
    r"""A text whose invisible directions are written as escapes, such as \u202e; those in `keep` stay."""
    if text.isascii():
        return text
    return _DIRECTIONS.sub(lambda one: escape_controls(one[0], keep), text)


def describe(row: str, column: str, weight: float | None, part: str = "") -> str:
    """The tooltip of a cell; without a weight, the row may not look at the column.

    A row of cross-attention is what is written, a row of filters is a filter, any other row is what looks.
    """
    looks, seen = [isolate(visible(piece)) + " (unknown)" * isinstance(piece, Unknown) for piece in (row, column)]
    if weight is None:
        return f"{looks} may not look at {seen}"
    verbs = {"cross": f"writing {looks}, looks at", "filters": f"{looks} on"}
    return f"{verbs.get(part, f'{looks} looks at')} {seen}: {format_number(weight)}"


def shorten_special(piece: str) -> str:
    """Shortens special tokens: <|endoftext|> becomes <|e…>. Other tokens stay as they are."""
    special = piece[:1] + piece[-1:] in ("<>", "[]")
    return f"{piece[:3]}…{piece[-1]}" if special and len(piece) > 6 else piece


def truncate(text: str, cells: int) -> str:
    """Shortens a text to that many terminal cells; an ellipsis marks the cut."""
    if cell_len(text) <= cells:
        return text
    kept = ""
    for cluster in graphemes(text):
        if cell_len(kept + cluster) > cells - 1:
            break
        kept += cluster
    return kept + "…"


def format_number(value: float) -> str:
    """Six significant digits, about the precision of float32."""
    return f"{value:.6g}"


def format_distinct(values: Sequence[float], least: int = 3, most: int = 6) -> list[str]:
    """Numbers with as many decimals as tell them apart, from `least` to `most`; equal numbers stay equal."""
    shown = [[f"{value:.{decimals}f}" for value in values] for decimals in range(least, most + 1)]
    return next(each for each in shown if len(set(each)) == len(set(shown[-1])))


def cell_value(cell: Cell) -> float | None:
    """The number that a cell begins with; None if the cell is no number."""
    if isinstance(cell, int | float):
        return None if cell != cell else float(cell)
    found = _NUMBER.match(cell) if isinstance(cell, str) else None
    return float(found[1].replace(",", "").replace("−", "-")) if found else None


def is_numeric(cells: Sequence[Cell]) -> bool:
    """True if all cells are numbers, apart from empty ones."""
    filled = [cell for cell in cells if cell is not None and cell not in ("", "-", "–")]
    return bool(filled) and all(isinstance(cell, float) or cell_value(cell) is not None for cell in filled)


def format_cell(cell: Cell) -> str:
    """A cell of a table as text; None is a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, MarkedText):
        return cell.marked
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e15 else f"{cell:.4g}"
    return cell if isinstance(cell, str) else f"{cell:,}"


# -- HTML and SVG -----------------------------------------------------------------------------------------------------

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


class Markup(str):
    """A string that is HTML or SVG already."""

    __slots__ = ()


def tag(name: str, attributes: Mapping[str, object], *children: str) -> Markup:
    """An element. Children that are not `Markup` are escaped; attributes that are None are left out.

    An element without children is empty: <rect …/>.
    """
    written = "".join(f' {key}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    if not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{''.join(map(escape, children))}</{name}>")


def bdi(text: str) -> Markup:
    """A title whose two sides of an arrow are isolated from each other, each in its own direction."""
    return Markup(ARROW.join(tag("bdi", {}, side) for side in text.split(ARROW)))


def lines(elements: Iterable[str]) -> Markup:
    """Several elements, each on a line of its own."""
    return Markup("".join(f"{escape(element)}\n" for element in elements))


def escape(text: str) -> Markup:
    """Escapes a text for XML and HTML, attributes included; `Markup` stays as it is.

    Of the invisible directions, those of `isolate` stay.
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_ILLEGAL.sub("�", escape_directions(text, keep=FIRST_STRONG + POP))))


def _value(value: object) -> str:
    """The value of an attribute: text, or a number with at most two decimals."""
    if isinstance(value, float):
        return f"{round(value, 2):g}"
    return escape(value if isinstance(value, str) else str(value))


@cache
def asset(name: str) -> str:
    """The text of a style sheet, a script or a fragment of HTML of this package."""
    return files("regard.render").joinpath(name).read_text(encoding="utf-8")
