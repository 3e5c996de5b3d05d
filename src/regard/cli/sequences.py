"""`regard ladder sequences`: families of models on the tasks of Bai et al. 2018."""

from pathlib import Path

from regard.cli.console import LastingConsole, before_first_step, kept_if_stopped
from regard.cli.ladder_jobs import print_standing, refuse_settings, results_of

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
        from regard.training.ladder.sequences import FAMILIES, TRIALS, climb, jobs, select

        names, settings = [word for word in words if "=" not in word], [word for word in words if "=" in word]
        refuse_settings(settings, ("model",))
        limit, tried, place = minutes or MINUTES, trials or len(TRIALS), out or Path("runs") / "ladder-sequences"
        rows, families = select(names)
        recipes = {row.name: change(find_recipe(row.name), settings, KINDS) for row in rows}
        with kept_if_stopped(console, place):
            every, total = jobs(recipes, names, seeds, limit, tried, place), len(rows) * len(families)
            found = results_of(climb, every, total, processes, cell_line, console)
    order = [(row.name, family) for row in rows for family in FAMILIES]
    found.sort(key=lambda one: order.index((one.row.name, one.family)))
    standing = SequenceStanding(found, limit, tried, settings)
    write_json(place / "ladder.json", standing.numbers)
    page = save_report(place / "ladder.html", "Ladder: sequences", standing.sections())
    print_standing(console, standing.numbers, standing.tables(), page, json)
