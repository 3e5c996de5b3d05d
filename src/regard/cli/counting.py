"""A bar for work that takes long: answers that go to a file or a pipe, and large texts that are encoded."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

APART = 10.0  # seconds between two lines where there is no terminal


@contextmanager
def counted(name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Inside, say how many more are done, of a total where that is known; shown on standard error.

    There is no bar if standard error is not a terminal, or if the output appears on the same terminal.
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


@contextmanager
def reported(name: str, console: "Console") -> Iterator[Callable[[str, int, int], None]]:
    """Inside, show how far the work on a large file is: a bar on a terminal, else a line every ten seconds."""
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    if not console.is_terminal:
        shown = time.monotonic()

        def line(what: str, done: int, total: int) -> None:
            nonlocal shown
            if time.monotonic() - shown >= APART:
                shown = time.monotonic()
                line = f"{name}: {what}, {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
                console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def move(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(f"{escape(name)}: {what}", total=total)
            bars.update(tasks[what], completed=done, total=total, visible=done < total)

        yield move
