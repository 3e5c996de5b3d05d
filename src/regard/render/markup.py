"""Elements of HTML and SVG. Every text and attribute is escaped here and nowhere else."""

import html
import re
from collections.abc import Iterable, Mapping

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


def lines(elements: Iterable[str]) -> Markup:
    """Several elements, each on a line of its own."""
    return Markup("".join(f"{escape(element)}\n" for element in elements))


def escape(text: str) -> Markup:
    """Escapes a text for XML and HTML, attributes included; `Markup` stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(_ILLEGAL.sub("�", text)))


def _value(value: object) -> str:
    """The value of an attribute: text, or a number with at most two decimals."""
    if isinstance(value, float):
        return f"{round(value, 2):g}"
    return escape(value if isinstance(value, str) else str(value))
