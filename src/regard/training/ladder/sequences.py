"""The ladder of sequences: the tasks of Bai et al. 2018, table 1, for families of models of equal size.

A row is a task, a column a family. A family of a row is tuned by short trials, then trained with each seed, both under
a limit of minutes. `climb` does the work of one row and family, so that several processes can share a device.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from regard.errors import UserError, nearest
from regard.metrics import METRICS
from regard.models import GptConfig, ModelConfig, RecurrentLmConfig, TcnConfig
from regard.recipes import KINDS, RECIPES, Recipe, change, model_config, with_vocabularies
from regard.tasks import Task
from regard.training.events import Finished
from regard.training.ladder.cells import Cell, fit_size, measured
from regard.training.prepare import prepare
from regard.training.run import Run

FAMILIES = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "tcn": "TCN", "transformer": "Transformer"}
MARGIN = 0.01  # by how much a trial must be better than the settings as given; short trials differ by chance
TUNING = 0.25  # the part of the minutes of a cell in which all its trials run


@dataclass(frozen=True)
class Trial:
    """A change to the settings of a family, tried in a short run."""

    name: str
    rate: float = 1.0  # the learning rate is multiplied by this
    clip: float | None = None  # the largest norm of the gradient; None: that of the recipe
    dropout: float = 0.0  # added to the dropout
    layers: int = 0  # added to the layers

    def apply(self, model: Any, recipe: Recipe) -> Recipe:
        """The recipe with the model and the change."""
        plan = recipe.plan
        plan = replace(plan, rate=plan.rate * self.rate, clip=plan.clip if self.clip is None else self.clip)
        dropout = min(model.dropout + self.dropout, 0.9)
        return replace(recipe, model=replace(model, dropout=dropout, layers=model.layers + self.layers), plan=plan)


TRIALS = (  # the same for every family of a task
    Trial("as given"),
    Trial("rate × 3", rate=3.0),
    Trial("rate ÷ 3, clip 0.25", rate=1 / 3, clip=0.25),
    Trial("deeper, dropout + 0.1", layers=1, dropout=0.1),
)


@dataclass(frozen=True)
class Row:
    """A task: its recipe, the size of all models, and the published results on its test set."""

    name: str  # of the task and of its recipe
    parameters: int
    metric: str  # measured on the validation set
    published: Mapping[str, float]  # by family; on the test set
    tcn: TcnConfig
    recurrent: RecurrentLmConfig
    transformer: GptConfig
    bits: bool = False  # whether the figures are in bits, not nats

    @property
    def title(self) -> str:
        """What is measured."""
        return "bits per token" if self.bits else METRICS[self.metric].title

    @property
    def lower_is_better(self) -> bool:
        return METRICS[self.metric].lower_is_better

    def show(self, value: float | None, deviation: float | None = None) -> str:
        """The value as a text."""
        return METRICS[self.metric].show(value, deviation)

    def value(self, scores: Mapping[str, float]) -> float:
        """The figure of the row among the scores of a cell."""
        return scores[self.metric] / (math.log(2) if self.bits else 1)

    def models(self) -> dict[str, tuple[ModelConfig, ...]]:
        """The model of each family before tuning; its width is still to be fitted.

        An RNN has no gates that could start with a long memory. A narrow convolutional network may have no width that
        is near enough, so it has two other kernels to try.
        """
        kernels = (self.tcn.kernel, max(self.tcn.kernel - 1, 2), self.tcn.kernel + 1)
        return {
            "rnn": (replace(self.recurrent, cell="rnn", chrono=0),),
            "gru": (replace(self.recurrent, cell="gru"),),
            "lstm": (replace(self.recurrent, cell="lstm"),),
            "tcn": tuple(replace(self.tcn, kernel=kernel) for kernel in kernels),
            "transformer": (self.transformer,),
        }


def _published(*values: float) -> dict[str, float]:
    return dict(zip(("rnn", "gru", "lstm", "tcn"), values))


def _row(
    name: str,
    parameters: int,
    metric: str,
    published: Sequence[float],
    transformer: GptConfig,
    layers: int = 1,
) -> Row:
    """A row with the convolutional network of its recipe, and the others beside it, with its dropout.

    The gates of the recurrent networks start with a memory as long as in the recipe.
    """
    recipe = RECIPES[name]()
    tcn, chrono = cast(TcnConfig, recipe.model), change(recipe, ["model=lstm"], KINDS).model.chrono
    recurrent = RecurrentLmConfig(width=tcn.width, embed=tcn.embed, layers=layers, dropout=tcn.dropout, chrono=chrono)
    transformer = replace(transformer, dropout=min(tcn.dropout, 0.3))
    return Row(name, parameters, metric, _published(*published), tcn, recurrent, transformer)


def _lstm(recipe: str) -> RecurrentLmConfig:
    """The LSTM of a recipe."""
    return cast(RecurrentLmConfig, RECIPES[recipe]().model)


SMALL = GptConfig(width=56, heads=4, layers=2, inner=4 * 56, context=1024, positions="sinusoidal")
TINY = replace(SMALL, width=24, heads=2, inner=4 * 24)
MUSIC = replace(SMALL, width=112, inner=4 * 112, context=2048, positions="relative")
TUNES = replace(SMALL, width=168, layers=3, inner=4 * 168, context=2048)
XL = replace(SMALL, width=512, heads=8, layers=4, inner=4 * 512, positions="xl", memory=128, dropout=0.3)
ROWS = (  # Bai et al. 2018, table 1; the convolutional networks are mostly those of table 2
    _row("adding", 70_000, "mse", (0.177, 5.3e-5, 0.164, 5.8e-5), SMALL, layers=2),
    _row("copy", 16_000, "loss", (0.0202, 0.0197, 0.0204, 3.5e-5), TINY),
    _row("smnist", 70_000, "accuracy", (0.215, 0.962, 0.872, 0.990), SMALL),
    _row("pmnist", 70_000, "accuracy", (0.253, 0.873, 0.857, 0.972), SMALL),
    _row("jsb", 300_000, "loss", (8.91, 8.43, 8.45, 8.10), MUSIC),
    _row("nottingham", 1_000_000, "loss", (4.05, 3.46, 3.29, 3.07), TUNES),
    Row(
        "ptb",
        13_000_000,
        "perplexity",
        _published(114.50, 92.48, 78.93, 88.68),
        TcnConfig(width=600, embed=600, layers=4, kernel=3, dropout=0.5, embedding_dropout=0.25, tied=True),
        _lstm("ptb"),
        XL,
    ),
    Row(
        "ptb-char",
        3_000_000,
        "loss",
        _published(1.48, 1.37, 1.36, 1.31),
        TcnConfig(width=390, embed=100, layers=4, kernel=3, dropout=0.05, embedding_dropout=0.0),
        _lstm("ptb-char"),
        replace(XL, width=256, inner=4 * 256, memory=150, dropout=0.15),
        bits=True,
    ),
)
NOTE = (
    "Published: Bai et al. 2018, table 1, on the test sets. Ours: on the validation sets (MNIST: the last 10,000 "
    "training images), which also select the best step and trial: near, but not the same measurement."
)


@dataclass(frozen=True)
class Job:
    """A row and a family: a cell for each trial, and for each trial the cells that follow if it is the best."""

    row: Row
    family: str
    trials: Mapping[str, Cell]  # by the name of the trial; empty: there is one choice
    cells: Mapping[str, Sequence[Cell]]  # by the name of the trial: one for each seed

    @property
    def name(self) -> str:
        return f"{self.row.name}, {FAMILIES[self.family]}"


@dataclass(frozen=True)
class Climbed:
    """What a job found."""

    row: Row
    family: str
    trials: Mapping[str, float | None]  # the figure of each trial; None: training diverged
    winner: str
    cells: Sequence[dict[str, Any]] = field(default_factory=list)  # the results of `measure`; empty: all diverged
    diverged: int = 0  # seeds whose training diverged

    @property
    def values(self) -> list[float]:
        """The figure of each seed."""
        return [self.row.value(one["scores"]) for one in self.cells]


def select(words: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The rows and families with these names; without names of one kind, all of them."""
    rows = {row.name: row for row in ROWS}
    for word in words:
        if word not in rows and word not in FAMILIES:
            near = nearest(word, [*rows, *FAMILIES])
            raise UserError(f"ladder sequences {word}: neither a task nor a model of this ladder.{near}")
    tasks = [row for name, row in rows.items() if name in words] or list(ROWS)
    return tasks, [name for name in FAMILIES if name in words] or list(FAMILIES)


def jobs(
    recipes: Mapping[str, Recipe], words: Sequence[str], seeds: int, minutes: float, trials: int, out: Path
) -> Iterator[Job]:
    """The jobs of the rows and families that `words` name; `recipes` has the recipe of each row."""
    rows, families = select(words)
    tuning = TUNING if trials > 1 else 0.0
    for row in rows:
        grid = TRIALS[:trials]
        recipe = recipes[row.name]
        prepared = prepare(recipe, whole=False)
        sizes = {name: each.size for name, each in prepared.fields.items()}
        for family in families:
            place = out / "cells" / row.name / family
            tried, cells = dict[str, Cell](), dict[str, list[Cell]]()
            for number, trial in enumerate(grid, 1):
                changed = _fitted(row, family, trial, recipe, prepared.task, sizes)
                if tuning:
                    short = _limited(changed, minutes * tuning / len(grid), changed.plan.seed)
                    tried[trial.name] = Cell(family, short.plan.seed, short, place / f"trial-{number}", part="valid")
                long = [_limited(changed, minutes * (1 - tuning), recipe.plan.seed + at) for at in range(seeds)]
                cells[trial.name] = [
                    Cell(family, one.plan.seed, one, place / f"seed-{one.plan.seed}", part="valid") for one in long
                ]
            yield Job(row, family, tried, cells)


def _fitted(row: Row, family: str, trial: Trial, recipe: Recipe, task: Task, sizes: Mapping[str, int]) -> Recipe:
    """The recipe of a trial, with a model of the row's size."""
    for model in row.models()[family]:
        changed = trial.apply(model, recipe)
        headed = model_config(changed, task, KINDS).with_sizes(sizes)
        try:
            fitted, _ = fit_size(f"{row.name} {family}", headed, row.parameters).split()
        except UserError as error:
            refused = error
        else:
            return replace(changed, model=with_vocabularies(fitted))
    raise refused


def _limited(recipe: Recipe, minutes: float, seed: int) -> Recipe:
    return replace(recipe, plan=replace(recipe.plan, minutes=minutes, seed=seed, patience=0))


def climb(job: Job, follow: Callable[[Run], Finished]) -> Climbed:
    """Run the trials of a job, then the cells of the best one. What is on disk already is read."""
    found = {name: measured(cell, follow) for name, cell in job.trials.items()}
    tried = {name: None if one is None else job.row.value(one["scores"]) for name, one in found.items()}
    winner = best_trial(job.row, tried) or next(iter(job.cells))
    cells = [measured(cell, follow) for cell in job.cells[winner]]
    whole = [one for one in cells if one is not None]
    return Climbed(job.row, job.family, tried, winner, whole, len(cells) - len(whole))


def best_trial(row: Row, tried: Mapping[str, float | None]) -> str | None:
    """The name of the best trial; None: all diverged. The first one wins if the best is better by `MARGIN` at most."""
    found = {name: value for name, value in tried.items() if value is not None and math.isfinite(value)}
    costs = {name: value if row.lower_is_better else 1 - value for name, value in found.items()}
    if not costs:
        return None
    first, best = next(iter(tried)), min(costs, key=lambda name: costs[name])
    return first if costs.get(first, math.inf) * (1 - MARGIN) <= costs[best] else best
