"""Tables in the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from regard.report.sections import Cell


def grid(title: str, columns: "Sequence[str]", rows: "Sequence[Sequence[Cell]]") -> "Group":
    """The rows under their columns, without lines: numbers to the right, all else to the left."""
    from regard.render.terminal import table_text
    from regard.report.sections import Table

    return table_text(Table(title, columns, rows))
