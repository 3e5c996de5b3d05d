"""What the ladders of jobs share: the settings that they refuse, the jobs in one or several processes, the output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rich.markup import escape

from regard.cli.console import LastingConsole
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.report.sections import Section
    from regard.training.ladder.side_by_side import Climb


class Named(Protocol):
    """A job of a ladder."""

    @property
    def name(self) -> str:
        """As it is shown beside its progress."""
        ...


Job = TypeVar("Job", bound=Named)
Result = TypeVar("Result")


def refuse_settings(settings: Sequence[str], own: tuple[str, ...]) -> None:
    """Refuse settings that the ladder sets for each cell: `own`, which every family has, and those of the budget."""
    for setting in settings:
        if setting.startswith((*own, "plan.minutes", "plan.epochs", "plan.seed")):
            cure = "use --minutes and --seeds" if setting.startswith("plan.") else "every family has its own"
            raise UserError(f"{setting}: the ladder sets this for each cell; leave it out ({cure}).")


def results_of(
    climb: "Climb[Job, Result]",
    every: Iterable[Job],
    total: int,
    processes: int,
    line: Callable[[Result], str],
    console: LastingConsole,
) -> list[Result]:
    """The results of all jobs, each with a printed line. One process shows the progress of its runs."""
    from regard.cli.progress import follow
    from regard.training.ladder.side_by_side import side_by_side

    shown = (climb(job, partial(follow, console=console, name=job.name)) for job in every)
    found: list[Result] = []
    for one in side_by_side(climb, every, processes) if processes > 1 else shown:
        found.append(one)
        console.out(f"{len(found)}/{total}: {line(one)}", highlight=False)
    return found


def print_standing(
    console: LastingConsole, numbers: Mapping[str, Any], tables: "Sequence[Section]", page: Path, json: bool
) -> None:
    """Print the result of a ladder: its numbers as JSON, or its tables and where the page is."""
    from regard.render.terminal import sections_text

    if json:
        print_line({**numbers, "page": page})
        return
    console.print("", sections_text(tables))
    console.print(f"The page: [bold]{escape(str(page))}[/]", highlight=False, soft_wrap=True)
