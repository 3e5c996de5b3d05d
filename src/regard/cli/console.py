"""The output of commands: messages, tables, progress bars, and nothing after a broken pipe."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment

from regard.errors import escape_controls

if TYPE_CHECKING:
    from regard.report.sections import Cell

FAILURE, MISTAKE, INTERRUPTED = 1, 2, 130  # exit codes
APART = 10.0  # seconds between two lines where there is no terminal


class SafeConsole(Console):
    """A console for texts of unknown origin, such as data and paths: they cannot control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text, keep="\n"), segment.style)


class LastingConsole(SafeConsole):
    """A console that survives a broken pipe: `regard train dates | head -1` trains to the end without output."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard(self.file)
        with suppress(OSError):  # if standard error is closed too
            notice("the output was closed; the command continues without it")


def notice(line: str) -> None:
    """Print a line about the work on standard error: standard output has nothing but results."""
    print(escape_controls(line), file=sys.stderr)


def many(count: int, one: str, more: str) -> str:
    """1 batch, 1,200 batches."""
    return f"{count:,} {one if count == 1 else more}"


def discard(stream: IO[str] | None) -> None:
    """Send further output of a stream to the null device: Python flushes it at exit and would print an error."""
    with suppress(OSError, ValueError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def grid(title: str, columns: Sequence[str], rows: "Sequence[Sequence[Cell]]") -> Group:
    """The rows under their columns, without lines: numbers to the right, all else to the left."""
    from regard.render.terminal import table_text
    from regard.report.sections import Table

    return table_text(Table(title, columns, rows))


def ready(console: Console, name: str) -> None:
    """Print a first message on a terminal, before torch is loaded and the data is tokenised."""
    if console.is_terminal:
        console.print(f"{name}: getting ready", highlight=False, markup=False)


@contextmanager
def before_first_step(console: Console, place: Path | None = None) -> Iterator[None]:
    """On Ctrl-C inside, print that nothing was saved, and the latest step of the run in `place`."""
    try:
        yield
    except KeyboardInterrupt:
        line = "stopped before the first step; nothing to save"
        with suppress(OSError, ValueError):
            if place:
                line = f"stopped before another step; {place} is at step {int((place / 'latest').read_text())}"
        console.out(f"\n{line}", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def kept_if_stopped(console: Console, place: Path) -> Iterator[None]:
    """On Ctrl-C inside, print that `place` keeps the finished cells of a ladder, if any."""
    try:
        yield
    except KeyboardInterrupt:
        if not place.exists():
            raise
        line = f"\nstopped; {place} keeps what was done, and the same command continues from there."
        console.out(line, highlight=False)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def counted(name: str, total: int | None = None, prints: bool = True) -> Iterator[Callable[[int], None]]:
    """Inside, show how many items are done, of a total where that is known, on standard error.

    There is no bar if standard error is not a terminal, or if lines appear on the same terminal meanwhile (`prints`).
    """
    if (prints and sys.stdout.isatty()) or not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=SafeConsole(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(name, total=total)
        yield lambda more: bar.update(task, advance=more)


@contextmanager
def reported(name: str, console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Inside, show how far the work on a large file is: a bar on a terminal, else a line every ten seconds."""
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    if not console.is_terminal:
        shown = time.monotonic()

        def line(what: str, done: int, total: int) -> None:
            nonlocal shown
            if time.monotonic() - shown >= APART:
                shown = time.monotonic()
                console.out(f"{name}: {what}, {done / 1e6:,.0f} of {total / 1e6:,.0f} MB", highlight=False)

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
