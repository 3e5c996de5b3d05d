"""A bar for work that takes long and leaves the terminal alone: the answers go to a file or a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted(name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Inside, say how many more are done, of a total where that is known; shown on standard error.

    Where nobody would see it, or answers appear on the same terminal, there is no bar.
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
