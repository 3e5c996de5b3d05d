"""The progress of a run and of downloads: live bars on a terminal, plain lines in a log."""

from collections.abc import Generator, Iterable
from contextlib import closing, nullcontext
from typing import cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from regard.cli.console import many, notice
from regard.cli.options import all_kinds
from regard.data.download import REMOTE_FILES, DownloadProgress, download
from regard.report.figures import find_metric, size
from regard.training.events import Evaluated, Event, Finished, Started
from regard.training.events import Progress as Going

LINES = 20  # reports in the log of a whole run, beside the evaluations


def follow(run: Iterable[Event], console: Console, name: str) -> Finished:
    """Show the events of a run to its end: on a terminal a bar, else LINES lines of progress; and every evaluation.

    On Ctrl-C or an error the run is closed, and so saves.
    """
    columns = (
        TextColumn("[bold]{task.description}[/] {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[going]}"),
        TimeRemainingColumn(compact=True),
    )
    live, metrics = console.is_terminal, all_kinds()["metric"]
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(escape(name), total=1, going="")
    finished, printed, shown = None, 0, name
    with closing(cast("Generator[Event]", iter(run))) as events, bar if live else nullcontext():
        for event in events:
            match event:
                case Started():
                    shown = f"{name} ({event.stage})" if event.stage else name
                    stage = f"{shown}: " if event.stage else ""
                    console.print(stage + _started(event), highlight=False, markup=False, soft_wrap=not live)
                    print_warnings(event.warnings, console)
                    bar.update(task, description=escape(shown), total=event.steps, completed=event.step)
                    printed = 0
                case Going():
                    rate = "" if event.rate is None else f" · rate {event.rate:.2e}"
                    going = f"loss {event.loss:.4f}{rate} · {size(event.tokens_per_second)} {event.unit}/s"
                    bar.update(task, completed=event.step, going=going)
                    # A step of a model that counts may have no text left to read.
                    if not live and event.tokens_per_second and event.step * LINES // event.steps > printed:
                        printed = event.step * LINES // event.steps
                        console.out(f"{shown}: step {event.step}/{event.steps} · {going}", highlight=False)
                case Evaluated():
                    found = [(find_metric(measure, metrics), value) for measure, value in event.values.items()]
                    figures = " · ".join(f"{metric.title} {metric.show(value)}" for metric, value in found)
                    line = f"step {event.step}, valid: {figures}{', the best so far' * event.best}"
                    line = line if live else f"{shown}: {line}"
                    console.print(line, highlight=False, markup=False, soft_wrap=not live)
                case Finished():
                    finished = event
                    rising = ", while the learning rate was still rising: lower plan.warmup" * event.rising
                    line = f"{shown}: ended at step {event.step} by plan.{event.reason}{rising}"
                    console.print(line, highlight=False, markup=False, soft_wrap=not live)
    assert finished is not None
    return finished


def _started(event: Started) -> str:
    before = f"resumed at step {event.step}, " if event.step else ""
    if event.over:
        before = f"finished at step {event.step} (plan.{event.over}), only evaluated again: "
    place = event.device if event.ranks == 1 else f"{event.ranks} ranks, this one on {event.device}"
    dropped = f", {event.dropped:,} too long and left out" if event.dropped else ""
    what = "a model of counts" if event.counts else f"{size(event.parameters)} parameters"
    return (
        f"{event.path}: {before}{what} on {place} ({event.precision}), "
        f"{many(event.examples, 'example', 'examples')}{dropped}, {many(event.epoch, 'batch', 'batches')} of "
        f"{many(event.shapes, 'shape', 'shapes')}"
        + ("" if event.vectors is None else f", word vectors for {event.vectors:.1%} of the vocabulary")
        + ("" if event.known is None else f", {event.known:.1%} of the training words are known to the model of from=")
    )


def print_warnings(warnings: Iterable[str], console: Console) -> None:
    """Print warnings on standard error, unless the console is quiet."""
    for line in () if console.quiet else warnings:
        notice(f"warning: {line}")


def fetch_data(data: object, console: Console) -> None:
    """Download the missing files of the data, with a progress bar for each and a line when it is complete."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: DownloadProgress) -> None:
            name, sha256 = progress.name, progress.sha256
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=progress.total)
            bars.update(tasks[name], completed=progress.bytes)
            if sha256 is not None:
                remote = REMOTE_FILES.get(name)
                checked = "as expected" if remote and remote.sha256 else "not checked, written to a file beside it"
                line = f"{name}: {progress.bytes:,} bytes from {progress.url}, SHA-256 {sha256}, {checked}"
                console.out(line, highlight=False)

        download(data, show)
