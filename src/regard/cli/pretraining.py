"""`regard ladder pretrain`: families of pre-trained models on one text, and pairs that differ in one setting."""

from pathlib import Path

from regard.cli.console import LastingConsole, before_first_step, kept_if_stopped
from regard.cli.ladder_jobs import print_standing, refuse_settings, results_of

SEEDS = 3  # of the probe


def ladder_of_pretraining(
    words: list[str],
    seeds: int | None,
    minutes: float | None,
    processes: int,
    out: Path | None,
    json: bool,
    console: LastingConsole,
) -> None:
    """Pre-train and probe every family and pair that `words` name; the other words are settings."""
    with before_first_step(console):
        from regard.file_io import write_json
        from regard.render.html import save_report
        from regard.report.pretraining import PretrainingStanding, result_line
        from regard.training.ladder.pretraining import climb, jobs, probe_of, select

        names, settings = [word for word in words if "=" not in word], [word for word in words if "=" in word]
        recipe = [one for one in settings if not one.startswith("probe")]
        refuse_settings(recipe, ("model=", "data=", "objective", "head"))
        probe = probe_of([one for one in settings if one.startswith("probe")])
        entries, pairs = select(names)
        place = out or Path("runs") / "ladder-pretrain"
        with kept_if_stopped(console, place):
            every = jobs(recipe, probe, entries, seeds or SEEDS, minutes, place)
            found = results_of(climb, every, len(entries), processes, result_line, console)
    order = [entry.name for entry in entries]
    found.sort(key=lambda one: order.index(one.entry.name))
    standing = PretrainingStanding(found, pairs, probe, minutes, settings)
    write_json(place / "ladder.json", standing.numbers)
    page = save_report(place / "ladder.html", "Ladder: pre-training", standing.sections())
    print_standing(console, standing.numbers, standing.tables(), page, json)
