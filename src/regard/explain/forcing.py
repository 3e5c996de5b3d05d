"""Teacher forcing and exposure bias: the error against the position.

With teacher forcing a decoder reads the true tokens in training (Williams & Zipser 1989). In use it reads its own
tokens, with mistakes that training did not show it, so one mistake can cause others: this is exposure bias. Scheduled
sampling (Bengio et al. 2015) lets the decoder read its own tokens in training, with a probability that grows.

Shown is the error at every position of the target, once with the true tokens before it (forced) and once with the
model's own tokens (free). Four models learn to write dates as ISO 8601. They read the true token always (ratio 1), half
of the time (0.5), never (0), or ever less often (from 1 to 0). Each is trained with several seeds; the numbers are
means, and “±” is the standard deviation over the seeds. Training is short, so that the models still make mistakes.

With directories of trained runs, such as three seeds of `regard train multi30k`, the same is measured for these runs on
their validation data. Runs with the same ratio are one line.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, cast

from regard.data.batches import IGNORED, Batch
from regard.data.dates import Dates
from regard.device import single_thread
from regard.errors import UserError
from regard.explain.experiment import train_prepared
from regard.explain.options import ForcingOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.models import Seq2SeqConfig
from regard.objectives import Exposure, Objective, TeacherForcing, exposure
from regard.objectives.objective import CausalModel
from regard.recipes import Plan, Recipe
from regard.report.figures import deviation, with_spread
from regard.report.sections import Cell, Curve, Line, Section, Table
from regard.training.evaluate import evaluation_batches
from regard.training.prepare import prepare
from regard.verbs import load

READING = """
With the true tokens before it, earlier mistakes do not change the error of a position. With the model's own tokens the
error of most later positions is larger, because they follow earlier mistakes: the difference of the two is the exposure
bias. It is largest in the model that always reads the true tokens, and smaller in those that read their own in
training. But these models have no smaller error with the true tokens, and that of ratio 0 is larger, so the free errors
of all models differ little. Where the spreads of two models overlap, their difference may come from the seeds alone.

In dates the bias is small: a digit depends on the source and on its position, and little on the digits before it. In a
translation, one word too many shifts all that follows, and every later position counts as an error.
"""
SHOWN = 11  # positions of a table
CHANCE = "chance"
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class ByPosition:
    """The errors of models that were trained in the same way with several seeds: means, and their spread."""

    name: str
    runs: int
    forced: list[float]  # the error at each position, given the true tokens before it
    forced_spread: list[float]
    free: list[float]  # … given the model's own tokens
    free_spread: list[float]
    all_forced: list[float]  # over all positions, one number for each run
    all_free: list[float]


def run(options: ForcingOptions, report: Report = no_report) -> Result:
    """Measures the error by position of models that are trained now, or of given runs."""
    found, chance, about = _given_runs(options) if options.runs else _trained_now(options, report)
    models = [_by_position(name, each) for name, each in found.items()]
    length = min(len(chance), *(len(one.free) for one in models))
    every = range(1, length + 1)
    shown = sorted({round(at * (length - 1) / (min(SHOWN, length) - 1 or 1)) for at in range(min(SHOWN, length))})
    first, label = models[0], "error (bars: ± standard deviation)" if max(one.runs for one in models) > 1 else "error"
    columns = ["", *(str(at + 1) for at in shown)]

    def rows(part: str) -> list[list[str]]:
        means = [(one.name, one.forced if part == "forced" else one.free) for one in models]
        return [
            [name, *(f"{100 * values[at]:.1f}".replace("100.0", "100") for at in shown)]
            for name, values in (*means, (CHANCE, chance))
        ]

    totals: list[list[Cell]] = [
        [
            one.name,
            one.runs,
            *(with_spread(values, 2, 100) for values in (one.all_forced, one.all_free)),
            with_spread(bias, 2, 100),
        ]
        for one in models
        for bias in [[free - forced for free, forced in zip(one.all_free, one.all_forced)]]
    ]
    sections: list[Section] = [
        prose(__doc__),
        Curve(
            f"Error by position, {first.name}",
            "position in the target",
            label,
            [
                Line("forced: the true tokens before", every, first.forced[:length], first.forced_spread[:length]),
                Line("free: its own tokens before", every, first.free[:length], first.free_spread[:length]),
                Line(CHANCE, every, chance[:length]),
            ],
            ends=(0, 1),
        ),
        Curve(
            "Error by position, free",
            "position in the target",
            label,
            [Line(one.name, every, one.free[:length], one.free_spread[:length]) for one in models],
            ends=(0, 1),
        ),
        Table("Error by position, %: forced", columns, rows("forced")),
        Table(
            "Error by position, %: free",
            columns,
            rows("free"),
            "Chance is the error of a guess that always names the commonest token of a position.",
        ),
        Table("Error over all positions, %", ["", "seeds", "forced", "free", "free − forced"], totals),
        reading(READING, options),
    ]
    data = {"seed": options.seed, "models": models, "chance": chance}
    return Result("Teacher forcing and exposure bias", about, data, sections)


def _trained_now(options: ForcingOptions, report: Report) -> tuple[dict[str, list[Exposure]], list[float], str]:
    """Trains all models on dates: the measured runs by the name of the objective, the chance errors, and a text."""
    steps, seeds = options.steps, range(options.seed, options.seed + options.seeds)
    recipe = Recipe(
        name="dates",
        title="dates to ISO 8601",
        data=Dates(languages=("en", "fr", "de", "es"), train=4000, valid=min(400, options.count), test=0),
        model=Seq2SeqConfig(width=64, embed=32, decoder="luong", capacity=64, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(
            steps=max(1, steps),
            batch_tokens=768,
            rate=8e-3,
            schedule="linear",
            warmup=steps // 10,
            decay=0.0,
            device="cpu",
        ),
        metrics=("exact",),
    )
    objectives = (
        *(TeacherForcing(ratio=ratio) for ratio in (1.0, 0.5, 0.0)),
        TeacherForcing(schedule="linear", over=max(1, steps)),
    )
    prepared, found, batches = prepare(recipe), dict[str, list[Exposure]](), list[Batch]()
    with single_thread():
        for objective in objectives:
            for seed in seeds:
                name, plan = name_of(objective), replace(prepared.recipe.plan, seed=seed)
                one = replace(prepared, recipe=replace(prepared.recipe, objective=objective, plan=plan))
                model = train_prepared(f"{name}, seed {seed}", one, steps, report)
                batches = batches or [*evaluation_batches(model, prepared.corpus.valid, BATCH_TOKENS)]
                found.setdefault(name, []).append(exposure(cast(CausalModel, model.module), batches))
    about = (
        f"Recurrent translators of dates (GRU, width 64, Luong's decoder), {len(objectives)} ways to train with "
        f"{len(seeds)} seeds each, {options.seed} to {seeds[-1]}. The networks are trained now for {steps} steps and "
        f"measured on {len(prepared.corpus.valid)} dates. Chance is the error of a guess that always names the "
        "commonest token of a position."
    )
    return found, _chance(batches), about


def _given_runs(options: ForcingOptions) -> tuple[dict[str, list[Exposure]], list[float], str]:
    """Measures trained runs on their validation data."""
    found, paths, batches = dict[str, list[Exposure]](), list[str](), list[Batch]()
    for path in options.runs:
        model = load(path, "cpu")
        if model.recipe is None or not model.module.config.causal:
            raise UserError(f"{path}: {model.kind} is not a run that generates text; give a run of regard train.")
        examples: Sequence[Any] = model.corpus().valid[: options.count]
        if not examples:
            raise UserError(f"{path}: its data has no validation examples to measure; give another run.")
        batches = [*evaluation_batches(model, examples, BATCH_TOKENS)]
        found.setdefault(name_of(model.recipe.objective), []).append(exposure(cast(CausalModel, model.module), batches))
        paths.append(f"{path} ({model.recipe.name}, step {model.step})")
    about = (
        f"The models are runs: {', '.join(paths)}. They are measured on up to {options.count} validation examples. "
        "Chance is the error of a guess that always names the commonest token of a position."
    )
    return found, _chance(batches), about


def name_of(objective: Objective) -> str:
    """How a model was trained, for a reader."""
    if not isinstance(objective, TeacherForcing):
        return type(objective).__name__
    if objective.schedule == "constant":
        return f"ratio {objective.ratio:g}"
    return f"ratio {objective.ratio:g} → {objective.floor:g}"


def _chance(batches: Sequence[Batch]) -> list[float]:
    """For each position, the error of always naming its commonest token."""
    counts: dict[int, Counter[int]] = {}
    for batch in batches:
        for row in batch["targets"].tolist():
            for at, token in enumerate(row):
                if token != IGNORED:
                    counts.setdefault(at, Counter())[token] += 1
    return [1 - max(counts[at].values()) / counts[at].total() for at in sorted(counts)]


def _by_position(name: str, runs: Sequence[Exposure]) -> ByPosition:
    """The means and spreads over runs; a position counts if all runs have it."""

    def positions(part: str) -> tuple[list[float], list[float]]:
        found = [*zip(*(getattr(one, part) for one in runs))]
        return [mean(at) for at in found], [deviation(at) or 0.0 for at in found]

    def overall(part: str) -> list[float]:
        return [sum(e * n for e, n in zip(getattr(one, part), one.count)) / sum(one.count) for one in runs]

    forced, free = "forced_error", "free_error"
    return ByPosition(name, len(runs), *positions(forced), *positions(free), overall(forced), overall(free))
