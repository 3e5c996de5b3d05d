"""What the topics of `regard explain` share: options, following an experiment, telling what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from regard.cli.lines import say
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.explain.small import Experiment
    from regard.render.report import Section

T = TypeVar("T")
Rows = tuple[list[str], list[list[str]]]  # the names of columns, and what stands under them


def _page(out: Path | None) -> Path | None:
    if out is not None and out.suffix.lower() != ".html":
        raise UserError(f"--out {out}: the page is HTML; end its name in .html.")
    return out


Run = Annotated[Path | None, typer.Argument(metavar="DIR", help="A Transformer; none: one is trained here.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What that one is to read.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", callback=_page, help="Write a page, one .html file.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="Of everything random: first weights, examples.")]
Steps = Annotated[int, typer.Option(min=0, help="Of training, for each network.")]


@dataclass(frozen=True)
class Findings:
    """One experiment, told three ways: to scripts, to a terminal, to a browser."""

    title: str
    data: Mapping[str, Any]
    terminal: Sequence[RenderableType]
    sections: "Sequence[Section]"


def tell(found: Findings, out: Path | None, json: bool) -> None:
    """The page where one was asked for, then JSON or the terminal's version."""
    if out is not None:
        from regard.render.files import write
        from regard.render.report import report_html

        write(out, report_html(found.title, found.sections))
    if json:
        say({**found.data, "page": out})
        return
    console = Console()
    for at, part in enumerate(found.terminal):
        if at:
            console.print()
        console.print(part, highlight=False)
    if out is not None:
        console.print(f"\nThe page: [bold]{escape(str(out))}[/]", highlight=False, soft_wrap=True)


def follow(experiment: "Experiment[T]") -> T:
    """What an experiment found; while it learns, a bar on standard error for each network."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}
        while True:
            try:
                going = next(experiment)
            except StopIteration as end:
                found: T = end.value
                return found
            if going.what not in tasks:
                tasks[going.what] = bar.add_task(escape(going.what), total=going.steps, loss=going.loss)
            bar.update(tasks[going.what], completed=going.step, loss=going.loss)


def paragraphs(*words: str) -> str:
    """Parted by blank lines."""
    return "\n\n".join(words)
