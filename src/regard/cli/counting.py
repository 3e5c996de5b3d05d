"""A progress bar for commands whose output goes to a file or a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted(name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives a function that adds to the count; the bar is shown on standard error.

    There is no bar if standard error is not a terminal, or if the output goes to the same terminal.
    """
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda more: bar.update(task, advance=more)
