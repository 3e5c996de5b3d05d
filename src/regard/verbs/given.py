"""What callers give to the verbs: any iterable of texts, or of texts of several parts, as a list that is read twice."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, TypeVar

from regard.errors import UserError, check_sizes

T = TypeVar("T")  # an answer


def in_pieces(verb: Callable[[list[Any]], Iterable[T]], texts: Iterable[Any], size: int = 512) -> Iterator[T]:
    """The answers of a verb, as the texts arrive. It reads `size` texts at a time, so that they need not fit in memory.

    The verb is a function of a list: `in_pieces(lambda some: translate(model, some), texts)`. Numbers in an answer,
    such as the `line` of a translation, count from the first text of its piece.
    """
    check_sizes(size=size)
    items = _items(texts, "texts")
    while some := list(islice(items, size)):
        yield from verb(some)


def listed(given: Iterable[Any], name: str) -> list[Any]:
    """The items of any iterable, once; of a text file, its lines without their ends. `name` is that of the argument."""
    return list(_items(given, name))


def _items(given: Iterable[Any], name: str) -> Iterator[Any]:
    """The items of any iterable.

    A single text is refused: Python would iterate over its characters, or over the numbers of its bytes.
    """
    if isinstance(given, str):
        raise UserError(f"{name}={given!r:.60}: this is one text; pass a list of them, such as [{given!r:.60}].")
    try:
        if isinstance(given, bytes | bytearray):
            raise TypeError
        items = iter(given)
    except TypeError:
        raise UserError(f"{name}={given!r:.60}: this is {_type(given)}; pass a list.") from None
    if hasattr(given, "readline"):
        return (line.removesuffix("\n").removesuffix("\r") if isinstance(line, str) else line for line in items)
    return items


def as_text(given: str, name: str) -> str:
    """A text; what is none is refused. numpy has a type of its own for texts, which libraries of tokenizers refuse."""
    if not isinstance(given, str):
        raise UserError(f"{name}={given!r:.60}: this is {_type(given)}; pass a text, which is a str.")
    return str.__str__(given)  # a subclass may have a __str__ of its own, as an Enum has


def text_list(given: Iterable[str], name: str = "texts") -> list[str]:
    """The texts of any iterable; the message about what is no text names its place, from 0."""
    return [as_text(one, f"{name}[{place}]") for place, one in enumerate(listed(given, name))]


def part_list(given: Iterable[Any], name: str = "texts") -> list[Any]:
    """The texts of any iterable, each a str, or, if it has several parts, such as a pair, a tuple."""
    return [
        as_text(one, name) if isinstance(one, str) else _parts(one, f"{name}[{place}]")
        for place, one in enumerate(listed(given, name))
    ]


def pair_list(given: Iterable[Any], name: str, what: str) -> list[tuple[str, str]]:
    """The pairs of any iterable; `what` a pair has, such as "(source, target)", is for messages."""
    found = []
    for place, one in enumerate(part_list(given, name)):
        if isinstance(one, str) or len(one) != 2:
            raise UserError(f"{name}[{place}]={one!r:.60}: this is no pair; pass {what} for each.")
        found.append((one[0], one[1]))
    return found


def _parts(given: Any, name: str) -> tuple[str, ...]:
    """The parts of a text. A dict is refused, which would give its keys, and so is a set, which has no order."""
    try:
        if isinstance(given, bytes | bytearray | Mapping | Set):
            raise TypeError
        parts = iter(given)
    except TypeError:
        what = f"{name}={given!r:.60}: this is {_type(given)}; pass a text, or a tuple of its parts"
        raise UserError(f"{what}.") from None
    return tuple(as_text(one, f"{name}[{place}]") for place, one in enumerate(parts))


def _type(given: object) -> str:
    """The type of a value, as a message says it."""
    return "None" if given is None else f"of the type {type(given).__name__}"
