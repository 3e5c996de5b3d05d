"""Tables in the terminal: no lines, a bold title, names to the left and figures to the right."""

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text


def grid(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "right"
) -> Group:
    """The rows under their columns, of which the first holds names; `justify` is for the others."""
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(columns))
    for at, column in enumerate(columns):
        table.add_column(Text(column), justify=justify if at else "left", style="" if at else "cyan", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return Group(Text(title, "bold"), table)
