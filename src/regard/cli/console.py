"""The output of long commands: a first message, a message on Ctrl-C, and nothing after a broken pipe."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import typer
from rich.console import Console

INTERRUPTED = 130


class LastingConsole(Console):
    """A console that survives a broken pipe: `regard train dates | head -1` trains to the end without output."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard(self.file)
        with suppress(OSError):  # if standard error is closed too
            print("the reader of the output is gone; going on without it", file=sys.stderr)


def discard(stream: IO[str] | None) -> None:
    """Send further output of a stream to the null device: Python flushes it at exit and would print an error."""
    with suppress(OSError, ValueError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
                line = f"stopped before another step; {place} stands at step {int((place / 'latest').read_text())}"
        console.print(f"\n{line}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
