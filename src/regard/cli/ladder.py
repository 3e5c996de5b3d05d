"""`regard ladder`: several models under one budget."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar

import typer
from rich.markup import escape

from regard.cli import options
from regard.cli.console import LastingConsole, before_first_step, kept_if_stopped, ready
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.recipes import Recipe
    from regard.report.sections import Section
    from regard.training.ladder.side_by_side import Climb

MINUTES = 5.0  # of a cell of sequences
Result = TypeVar("Result")

What = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FILE|sequences|pretrain",
        help="dates, multi30k, another recipe, your pairs, sequences or pretrain.",
    ),
]
Rungs = Annotated[str | None, typer.Option(help="Only these rungs, such as additive,general. Default: all.")]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Seeds of each rung; of pretrain, seeds of the fine-tuning. Default: 3; of sequences 1."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps of each run: plan.steps.")]
Beam = Annotated[int, typer.Option(min=1, help="The beam size for the test set.")]
Quality = Annotated[
    float | None,
    typer.Option(help="The value of plan.select for the time to quality. Default: 95 % of the best rung's."),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="The time limit of each cell. Default: of sequences 5, with the trials; of pretrain none."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="For sequences and pretrain: how many processes share the device.")]
Trials = Annotated[
    int | None,
    typer.Option(min=1, max=4, help="For sequences: how many settings of each family are tried. Default: 4."),
]
Out = Annotated[
    Path | None,
    typer.Option(callback=options.writable, help="The directory of the ladder. Default: runs/ladder-RECIPE."),
]


def ladder(
    what: What,
    settings: options.Settings = None,
    rungs: Rungs = None,
    seeds: Seeds = None,
    steps: Steps = None,
    beam: Beam = 1,
    quality: Quality = None,
    minutes: Minutes = None,
    jobs: Jobs = 1,
    trials: Trials = None,
    out: Out = None,
    json: options.Json = False,
    device: options.MaybeDevice = None,
) -> None:
    """Compare models of one size trained on the same tokens: no attention, then every score and window.

    For a recipe with a Transformer, the rungs are families of models: no attention, additive and general attention,
    GNMT, ConvS2S, the Transformer with sinusoidal and with learned positions, and with 1, 2 and 8 heads. Widths are
    chosen so that parameters agree within 5 %. A rung learns at the rate that suits its family; a plan.* setting that
    you give applies to every rung. Finished cells are kept: the same command continues where it stopped. The result is
    a table (mean ± standard deviation over the seeds, operations per token, seconds of training to a given quality and
    to the best value of the weakest rung with attention, published figures where there are any), ladder.json and
    ladder.html.

    `sequences` is another ladder: RNN, GRU, LSTM, TCN and Transformer of equal size on the tasks of Bai et al. 2018
    (adding, copy, smnist, pmnist, jsb, nottingham, ptb, ptb-char). Words after `sequences` name tasks and models;
    without such words, all are compared. Each family of a task is tuned by the same short trials and then trained, both
    within --minutes. The figures are those of the validation sets, beside the published ones of the test sets.

    `pretrain` is a ladder of pre-trained models: gpt, transformer-xl, lstm, bert, roberta, albert, electra, masked-lstm
    and t5, with equal parameters (albert shares its layers and has fewer), on the text data.train=FILE with one
    tokenizer and one budget, plan.steps or --minutes. Pairs differ in one setting: next-sentence, masks,
    sentence-order, shared-layers and all-tokens. Words after `pretrain` name families and pairs; without such words,
    all are compared. With probe.train=FILE (and probe.valid=FILE), each model is then fine-tuned on 1,000 labelled
    texts (probe.labels) with each of the --seeds, and the same network learns them from scratch.

    \b
    Examples:
      regard ladder dates --steps 400
      regard ladder sounds --seeds 5 --device cuda
      regard ladder multi30k --rungs additive,transformer-sinusoidal
      regard ladder multi30k data.target=fr --out runs/ladder-en-fr
      regard ladder pairs.tsv data.source_tokens=char plan.steps=2000
      regard ladder sequences --jobs 8 --device cuda
      regard ladder sequences jsb tcn lstm --minutes 2 --seeds 3
      regard ladder pretrain data.train=text.txt probe.train=labelled.tsv --minutes 10 --device cuda
      regard ladder pretrain bert electra next-sentence data.train=text.txt plan.steps=2000
    """
    flags = {"steps": steps, "device": device}
    given = [*(settings or []), *(f"plan.{name}={value}" for name, value in flags.items() if value is not None)]
    console = LastingConsole(stderr=json)
    ready(console, what)
    with before_first_step(console):
        if what == "sequences":
            if rungs is not None or beam != 1 or quality is not None:
                raise UserError("--rungs, --beam and --quality: are for other ladders; name tasks and models instead.")
            done = _sequences(given, seeds or 1, minutes or MINUTES, jobs, trials, out, console)
        elif what == "pretrain":
            if rungs is not None or beam != 1 or quality is not None or trials is not None:
                raise UserError(
                    "--rungs, --beam, --quality and --trials: are for other ladders; name families instead."
                )
            done = _pretraining(given, seeds or 3, minutes, jobs, out, console)
        else:
            if minutes is not None or jobs != 1 or trials is not None:
                raise UserError(
                    "--minutes, --jobs and --trials: are for regard ladder sequences or pretrain; leave them out."
                )
            done = _of_recipe(what, given, rungs, seeds or 3, beam, quality, out, console)
    _conclude(done, json, console)


class Standing(Protocol):
    """What a ladder measured."""

    @property
    def numbers(self) -> dict[str, Any]:
        """As ladder.json has them."""

    def tables(self) -> "list[Section]":
        """For the terminal."""

    def sections(self) -> "list[Section]":
        """For the page."""


class Done(NamedTuple):
    """A ladder whose cells are all measured."""

    name: str
    place: Path
    standing: Standing
    cells: Mapping[str, Any] = {}  # what ladder.json has beside the numbers that --json prints


def _conclude(done: Done, json: bool, console: LastingConsole) -> None:
    """Write ladder.json and ladder.html, and print the result: its numbers as JSON, or its tables."""
    from regard.file_io import write_json
    from regard.render.html import save_report
    from regard.render.terminal import sections_text

    numbers = done.standing.numbers
    write_json(done.place / "ladder.json", {**numbers, **done.cells})
    page = save_report(done.place / "ladder.html", f"Ladder: {done.name}", done.standing.sections())
    if json:
        print_line({**numbers, "page": page})
        return
    console.print("", sections_text(done.standing.tables()))
    console.print(f"The page: [bold]{escape(str(page))}[/]", highlight=False, soft_wrap=True)


def _of_recipe(
    what: str,
    settings: list[str],
    names: str | None,
    seeds: int,
    beam: int,
    quality: float | None,
    out: Path | None,
    console: LastingConsole,
) -> Done:
    """Train every rung of a recipe, or of a file of pairs, with every seed."""
    from regard.cli.progress import follow
    from regard.config import override
    from regard.recipes import KINDS, RECIPES, find_recipe
    from regard.report.ladder import Results, Standing
    from regard.training.ladder.cells import cells, measure
    from regard.training.ladder.rungs import published

    pairs = [f"data.train={what}"] if what not in RECIPES and (Path(what).exists() or Path(what).suffix) else []
    recipe = override(find_recipe("translate" if pairs else what), [*pairs, *settings], KINDS)
    place = out or Path("runs") / f"ladder-{recipe.name}"
    results: Results = defaultdict(list)
    with kept_if_stopped(console, place):
        wanted = cells(recipe, _rungs(recipe, settings, names), seeds, place, beam)
        for number, cell in enumerate(wanted, 1):
            name = f"{cell.name}, seed {cell.seed} ({number}/{len(wanted)})"
            results[cell.name].append(measure(cell, partial(follow, console=console, name=name)))
    trained = {cell.name: cell.recipe for cell in wanted}
    standing = Standing(recipe, trained, results, published(recipe), quality, place)
    every = [one for seeds_of_rung in results.values() for one in seeds_of_rung]
    return Done(recipe.name, place, standing, {"cells": every})


def _rungs(recipe: "Recipe", settings: list[str], names: str | None) -> dict[str, "Recipe"]:
    """The rungs of these names. The plan settings of the user override those of a rung."""
    from regard.config import override
    from regard.recipes import KINDS
    from regard.training.ladder.rungs import rungs, select_rungs

    found = rungs(recipe)
    plan = [setting for setting in settings if setting.startswith("plan.")]
    wanted = found if names is None else select_rungs(found, names.split(","))
    return {name: override(rung, plan, KINDS) for name, rung in wanted.items()}


def _sequences(
    words: list[str],
    seeds: int,
    minutes: float,
    processes: int,
    trials: int | None,
    out: Path | None,
    console: LastingConsole,
) -> Done:
    """Train every family on every task that `words` name; the other words are settings."""
    from regard.recipes import KINDS, change, find_recipe
    from regard.report.sequences import SequenceStanding, cell_line
    from regard.training.ladder.sequences import FAMILIES, TRIALS, climb, jobs, select

    names, settings = _names_and_settings(words, ("model",))
    tried, place = trials or len(TRIALS), out or Path("runs") / "ladder-sequences"
    rows, families = select(names)
    recipes = {row.name: change(find_recipe(row.name), settings, KINDS) for row in rows}
    with kept_if_stopped(console, place):
        every, total = jobs(recipes, names, seeds, minutes, tried, place), len(rows) * len(families)
        found = _results(climb, every, total, processes, cell_line, console)
    order = [(row.name, family) for row in rows for family in FAMILIES]
    found.sort(key=lambda one: order.index((one.row.name, one.family)))
    return Done("sequences", place, SequenceStanding(found, minutes, tried, settings))


def _pretraining(
    words: list[str], seeds: int, minutes: float | None, processes: int, out: Path | None, console: LastingConsole
) -> Done:
    """Pre-train and probe every family and pair that `words` name; the other words are settings."""
    from regard.report.pretraining import PretrainingStanding, result_line
    from regard.training.ladder.pretraining import climb, jobs, probe_of, select

    names, settings = _names_and_settings(words, ("model=", "data=", "objective", "head"))
    probe = probe_of([one for one in settings if one.startswith("probe")])
    entries, pairs = select(names)
    place = out or Path("runs") / "ladder-pretrain"
    with kept_if_stopped(console, place):
        recipe = [one for one in settings if not one.startswith("probe")]
        every = jobs(recipe, probe, entries, seeds, minutes, place)
        found = _results(climb, every, len(entries), processes, result_line, console)
    order = [entry.name for entry in entries]
    found.sort(key=lambda one: order.index(one.entry.name))
    return Done("pre-training", place, PretrainingStanding(found, pairs, probe, minutes, settings))


def _names_and_settings(words: Sequence[str], own: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The words that are names, and the settings; those that the ladder sets for each cell are refused.

    They are `own`, which every family has, and those of the budget.
    """
    names, settings = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    for setting in settings:
        if setting.startswith((*own, "plan.minutes", "plan.epochs", "plan.seed")):
            cure = "use --minutes and --seeds" if setting.startswith("plan.") else "every family has its own"
            raise UserError(f"{setting}: the ladder sets this for each cell; leave it out ({cure}).")
    return names, settings


def _results(
    climb: "Climb[Any, Result]",
    every: Iterable[Any],
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
