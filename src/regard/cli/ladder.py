"""`regard ladder`: several models under one budget."""

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.console import LastingConsole, before_first_step, kept_if_stopped, ready
from regard.cli.ladder_jobs import print_standing
from regard.cli.pretraining import ladder_of_pretraining
from regard.cli.sequences import ladder_of_sequences
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.recipes import Recipe


What = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FILE|sequences|pretrain",
        help="dates, multi30k, another recipe, your pairs, sequences or pretrain.",
    ),
]
Rungs = Annotated[str | None, typer.Option(help="Only these, such as additive,general; all if not given.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="Runs of each rung, of pretrain runs of the probe, each with its seed; else 3, sequences 1."
    ),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Of each run: plan.steps.")]
Beam = Annotated[int, typer.Option(min=1, help="With which the test set is decoded in the end.")]
Quality = Annotated[
    float | None, typer.Option(help="Of plan.select, that rungs are timed to reach; else 95 % of the best one's.")
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="The limit of each cell: of sequences with its trials, else 5; of pretrain, else none."
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Of sequences and pretrain: processes that share the device.")]
Trials = Annotated[
    int | None, typer.Option(min=1, max=4, help="Of sequences: settings that each family is tried with; else 4.")
]
Out = Annotated[Path | None, typer.Option(help="Where it goes; default: runs/ladder-RECIPE.")]


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
    to the best of the weakest rung that attends, published figures where there are any), ladder.json and ladder.html.

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
    if what == "sequences":
        if rungs is not None or beam != 1 or quality is not None:
            raise UserError("--rungs, --beam and --quality: are for other ladders; name tasks and models instead.")
        ladder_of_sequences(given, seeds or 1, minutes, jobs, trials, out, json, console)
        return
    if what == "pretrain":
        if rungs is not None or beam != 1 or quality is not None or trials is not None:
            raise UserError("--rungs, --beam, --quality and --trials: are for other ladders; name families instead.")
        ladder_of_pretraining(given, seeds, minutes, jobs, out, json, console)
        return
    if minutes is not None or jobs != 1 or trials is not None:
        raise UserError("--minutes, --jobs and --trials: are for regard ladder sequences or pretrain; leave them out.")
    ladder_of_recipe(what, given, rungs, seeds or 3, beam, quality, out, json, console)


def ladder_of_recipe(
    what: str,
    settings: list[str],
    names: str | None,
    seeds: int,
    beam: int,
    quality: float | None,
    out: Path | None,
    json: bool,
    console: LastingConsole,
) -> None:
    """Train every rung of a recipe, or of a file of pairs, with every seed."""
    with before_first_step(console):
        from regard.cli.progress import follow
        from regard.config import override
        from regard.file_io import write_json
        from regard.recipes import KINDS, RECIPES, find_recipe
        from regard.render.html import save_report
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
    standing = Standing(recipe, trained, results, published(recipe), quality)
    every = [one for seeds_of_rung in results.values() for one in seeds_of_rung]
    write_json(place / "ladder.json", {**standing.numbers, "cells": every})
    page = save_report(place / "ladder.html", f"Ladder: {recipe.name}", standing.sections(place))
    print_standing(console, standing.numbers, standing.tables(), page, json)


def _rungs(recipe: "Recipe", settings: list[str], names: str | None) -> dict[str, "Recipe"]:
    """The rungs of these names. The plan settings of the user override those of a rung."""
    from regard.config import override
    from regard.recipes import KINDS
    from regard.training.ladder.rungs import rungs, select_rungs

    found = rungs(recipe)
    plan = [setting for setting in settings if setting.startswith("plan.")]
    wanted = found if names is None else select_rungs(found, names.split(","))
    return {name: override(rung, plan, KINDS) for name, rung in wanted.items()}
