"""What a command that works for long says: that it has begun, that it was stopped, and nothing to a reader who left."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import typer
from rich.console import Console

INTERRUPTED = 130


class Lasting(Console):
    """A console that outlives its reader: `regard train dates | head -1` trains to the end, unheard."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        hush(self.file)
        with suppress(OSError):  # where that is closed too
            print("the reader of the output is gone; going on without it", file=sys.stderr)


def hush(stream: IO[str] | None) -> None:
    """Let what is still to be written go nowhere: Python would try once more at its end, and complain."""
    with suppress(OSError, ValueError):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def ready(console: Console, name: str) -> None:
    """A sign of life on a terminal, where somebody waits while torch is loaded and texts are cut."""
    if console.is_terminal:
        console.print(f"{name}: getting ready", highlight=False, markup=False)


@contextmanager
def unbegun(console: Console, place: Path | None = None) -> Iterator[None]:
    """Inside, Ctrl-C finds nothing new to save, and says so, and at which step the run in `place` stands."""
    try:
        yield
    except KeyboardInterrupt:
        told = "stopped before the first step; nothing to save"
        with suppress(OSError, ValueError):
            if place:
                told = f"stopped before another step; {place} stands at step {int((place / 'latest').read_text())}"
        console.print(f"\n{told}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
