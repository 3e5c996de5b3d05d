"""`regard ladder sequences`: families of models on the tasks of Bai et al. 2018."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from regard.cli.console import LastingConsole, before_first_step, kept_if_stopped
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.report.sections import Section
    from regard.training.ladder.sequences import Climbed, Job

MINUTES = 5.0  # of a cell


def ladder_of_sequences(
    words: list[str],
    seeds: int,
    minutes: float | None,
    processes: int,
    trials: int | None,
    out: Path | None,
    json: bool,
    console: LastingConsole,
) -> None:
    """Train every family on every task that `words` name; the other words are settings."""
    with before_first_step(console):
        from regard.file_io import write_json
        from regard.recipes import KINDS, change, find_recipe
        from regard.render.html import save_report
        from regard.report.sequences import SequenceStanding, cell_line
        from regard.training.ladder.sequences import FAMILIES, TRIALS, jobs, select, side_by_side

        names, settings = [word for word in words if "=" not in word], [word for word in words if "=" in word]
        for setting in settings:
            if setting.startswith(("model", "plan.minutes", "plan.epochs", "plan.seed")):
                cure = "use --minutes and --seeds" if setting.startswith("plan.") else "every family has its own"
                raise UserError(f"{setting}: the ladder sets this for each cell; leave it out ({cure}).")
        limit, tried, place = minutes or MINUTES, trials or len(TRIALS), out or Path("runs") / "ladder-sequences"
        rows, families = select(names)
        recipes = {row.name: change(find_recipe(row.name), settings, KINDS) for row in rows}
        found: list[Climbed] = []
        with kept_if_stopped(console, place):
            every, total = jobs(recipes, names, seeds, limit, tried, place), len(rows) * len(families)
            results = side_by_side(every, processes) if processes > 1 else map(partial(_follow, console), every)
            for number, one in enumerate(results, 1):
                found.append(one)
                console.out(f"{number}/{total}: {cell_line(one)}", highlight=False)
    order = [(row.name, family) for row in rows for family in FAMILIES]
    found.sort(key=lambda one: order.index((one.row.name, one.family)))
    standing = SequenceStanding(found, limit, tried, settings)
    write_json(place / "ladder.json", standing.numbers)
    page = save_report(place / "ladder.html", "Ladder: sequences", standing.sections())
    print_standing(console, standing.numbers, standing.tables(), page, json)


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


def _follow(console: LastingConsole, job: "Job") -> "Climbed":
    """Run a job in this process and show its progress."""
    from regard.cli.progress import follow
    from regard.training.ladder.sequences import climb

    return climb(job, partial(follow, console=console, name=job.name))
