"""What the topics of `regard explain` share: options, a progress bar, and the output of results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.explain.experiment import Experiment
    from regard.render.report import Section

T = TypeVar("T")
TableCells = tuple[list[str], list[list[str]]]  # the column names and the rows


def _check_suffix(out: Path | None) -> Path | None:
    if out is not None and out.suffix.lower() != ".html":
        raise UserError(f"--out {out}: the page is HTML; end its name in .html.")
    return out


Run = Annotated[
    Path | None, typer.Argument(metavar="DIR", help="A Transformer; if missing, a small one is trained now.")
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="The text that the model in DIR reads.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", callback=_check_suffix, help="Write a page, one .html file.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="The seed of initial weights and examples.")]
Steps = Annotated[int, typer.Option(min=0, help="Training steps of each network.")]


@dataclass(frozen=True)
class TopicResult:
    """The result of a topic in three formats: data for JSON, renderables for the terminal, sections for the page."""

    title: str
    data: Mapping[str, Any]
    terminal: Sequence[RenderableType]
    sections: "Sequence[Section]"


def show(result: TopicResult, out: Path | None, json: bool) -> None:
    """Writes the page if ``out`` is given, then prints JSON or the version for the terminal."""
    if out is not None:
        from regard.render.files import write
        from regard.render.report import report_html

        write(out, report_html(result.title, result.sections))
    if json:
        print_line({**result.data, "page": out})
        return
    console = Console()
    for at, part in enumerate(result.terminal):
        if at:
            console.print()
        console.print(part, highlight=False)
    if out is not None:
        console.print(f"\nThe page: [bold]{escape(str(out))}[/]", highlight=False, soft_wrap=True)


def run_with_progress(experiment: "Experiment[T]") -> T:
    """Runs an experiment and returns its result; each network that trains has a progress bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}
        while True:
            try:
                progress = next(experiment)
            except StopIteration as end:
                result: T = end.value
                return result
            if progress.name not in tasks:
                tasks[progress.name] = bar.add_task(escape(progress.name), total=progress.steps, loss=progress.loss)
            bar.update(tasks[progress.name], completed=progress.step, loss=progress.loss)


def join_paragraphs(*paragraphs: str) -> str:
    """One text, with blank lines between the paragraphs."""
    return "\n\n".join(paragraphs)
