"""The progress of a run: a live bar on a terminal, plain lines in a log."""

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from regard.cli.figures import figures
from regard.report.figures import size
from regard.training.events import Evaluated, Event, Finished, Started
from regard.training.events import Progress as Going

LINES = 20  # reports in the log of a whole run, beside the evaluations


def follow(run: Iterable[Event], console: Console, name: str) -> Finished:
    """Show the events of a run to its end. On Ctrl-C or an error the run is closed, and so saves."""
    finished = None
    with closing(cast("Generator[Event]", iter(run))) as events:
        for event in (_live if console.is_terminal else _plain)(events, console, name):
            if isinstance(event, Finished):
                finished = event
    assert finished is not None
    return finished


def _live(events: Iterable[Event], console: Console, name: str) -> Iterable[Event]:
    """A progress bar; evaluations are printed above it."""
    columns = (
        TextColumn("[bold]{task.description}[/] {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[going]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(name), total=1, going="")
        for event in events:
            match event:
                case Started():
                    bar.console.print(_started(event), highlight=False, markup=False)
                    bar.update(task, total=event.steps, completed=event.step)
                case Going():
                    bar.update(task, completed=event.step, going=_going(event))
                case Evaluated():
                    bar.console.print(_evaluated(event), highlight=False)
            yield event


def _plain(events: Iterable[Event], console: Console, name: str) -> Iterable[Event]:
    """A line for every evaluation, and LINES lines of progress."""
    printed = 0
    for event in events:
        match event:
            case Started():
                console.print(_started(event), highlight=False, markup=False, soft_wrap=True)
            case Going() if event.step * LINES // event.steps > printed:
                printed = event.step * LINES // event.steps
                line = f"{name}: step {event.step}/{event.steps} · {_going(event)}"
                console.print(line, highlight=False, markup=False, soft_wrap=True)
            case Evaluated():
                console.print(f"{name}: {_evaluated(event)}", highlight=False, markup=False, soft_wrap=True)
        yield event


def _started(event: Started) -> str:
    onward = f"onward from step {event.step}, " if event.step else ""
    if event.over:
        onward = f"finished at step {event.step} (plan.{event.over}), only judged again: "
    place = event.device if event.ranks == 1 else f"{event.ranks} ranks, this one on {event.device}"
    dropped = f", {event.dropped:,} too long" if event.dropped else ""
    return (
        f"{event.path}: {onward}{size(event.parameters)} parameters on {place} ({event.precision}), "
        f"{many(event.examples, 'example', 'examples')}{dropped}, {many(event.epoch, 'batch', 'batches')} of "
        f"{many(event.shapes, 'shape', 'shapes')}"
        + ("" if event.vectors is None else f", word vectors for {event.vectors:.1%} of the vocabulary")
    )


def many(count: int, one: str, more: str) -> str:
    """1 batch, 1,200 batches."""
    return f"{count:,} {one if count == 1 else more}"


def _going(event: Going) -> str:
    rate = "" if event.rate is None else f" · rate {event.rate:.2e}"
    return f"loss {event.loss:.4f}{rate} · {size(event.tokens_per_second)} tokens/s"


def _evaluated(event: Evaluated) -> str:
    return f"step {event.step}, valid: {figures(event.values)}" + (", the best so far" if event.best else "")
