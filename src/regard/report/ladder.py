"""The report of a ladder: its numbers, and its sections."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.config import format_value, tree
from regard.metrics import METRICS, Metric
from regard.recipes import Recipe
from regard.render import AttentionView, Layer
from regard.report.figures import deviation, duration, find_metric, metric_curve, settings_line, size
from regard.report.glossary import glossary
from regard.report.run import curves
from regard.report.sections import Curve, Folded, Gallery, Line, Pre, Section, Table, Text
from regard.training.ladder.quality import SHARE, Goal, Point, averaged, goal, weakest
from regard.training.ladder.rungs import Published

ATTENTION_NOTE = (
    "Each rung reads the same source and the same right target, with one colour scale. A row is a token of the target, "
    "and its weights are those with which the model looks at the source to predict it. Of several heads it is the "
    "mean; of several layers, the one that aligns best."
)

Results = dict[str, list[dict[str, Any]]]  # by rung, one for each seed
FREE = ("plan.seed", "plan.patience", "name", "title")  # which do not distinguish rungs


@dataclass(frozen=True)
class Standing:
    """Everything that a ladder measured."""

    recipe: Recipe  # the rungs have the size of its model
    rungs: dict[str, Recipe]  # as they were trained, with one of the seeds
    results: Results
    published: Published | None = None
    quality: float | None = None  # the quality to reach; None: a share of the best rung's
    out: Path = Path()  # the folder of the ladder, which has the logs of its cells
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS, repr=False)

    @cached_property
    def points(self) -> dict[str, list[list[Point]]]:
        """The evaluations of every rung and seed."""
        return {
            name: [[Point(**point) for point in one["curve"]] for one in every] for name, every in self.results.items()
        }

    @cached_property
    def goal(self) -> Goal | None:
        """The quality that the rungs are timed to reach."""
        measure = self.recipe.plan.select
        if self.quality is not None:
            return Goal(measure, self.quality)
        return goal(measure, self.points.values())

    @cached_property
    def weakest(self) -> Goal | None:
        """The best value of the weakest rung that attends; None if fewer than two rungs attend."""
        attending = [name for name, every in self.results.items() if every[0].get("attends")]
        return weakest(self.recipe.plan.select, [self.points[name] for name in attending])

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """For each rung the mean over its seeds of everything measured, and the standard deviation of several."""
        found = []
        for name, every in self.results.items():
            first, row = every[0], {"cell": name, "seeds": len(every)}
            row |= {key: first[key] for key in ("parameters", "width")}
            row |= {measure: _mean([one["scores"][measure] for one in every]) for measure in first["scores"]}
            row |= {key: _mean([one[key] for one in every]) for key in ("tokens_per_second", "training_seconds")}
            row |= {"flops": first["flops"]} if first.get("flops") else {}
            row["seconds_to_quality"] = self._seconds(name, self.goal)
            if self.weakest:
                row["seconds_to_weakest"] = self._seconds(name, self.weakest)
            row["published"] = self.published.figures.get(name) if self.published else None
            found.append(row)
        return found

    def _seconds(self, name: str, goal: Goal | None) -> dict[str, Any] | None:
        """The mean time of training of a rung to a goal, and how many seeds reached it; None if no seed did."""
        times = [goal.reached(seed) for seed in self.points[name]] if goal else []
        reached = [seconds for seconds in times if seconds is not None]
        return {**_mean(reached), "reached": len(reached)} if reached else None

    @property
    def numbers(self) -> dict[str, Any]:
        """As ladder.json holds them, beside the cells."""
        about = self.published and {"measure": self.published.measure, "note": self.published.note}
        goals = {name: one and vars(one) for name, one in (("quality", self.goal), ("weakest", self.weakest))}
        return {**goals, "published": about, "rows": self.rows}

    @property
    def heading(self) -> str:
        seeds = max(map(len, self.results.values()))
        over = f"{seeds} seeds, mean ± standard deviation" if seeds > 1 else "one seed"
        title = self.recipe.title
        return f"{title[:1].upper()}{title[1:]}: {self.recipe.plan.steps} steps, {over}"

    def tables(self) -> list[Section]:
        """For the terminal: the rungs, how to read them, and what of their plans differs."""
        own = [row for row in self._differences() if row[0].startswith("plan.")]
        families: dict[tuple[str, ...], list[str]] = {}  # the rungs by what of their plans differs
        for number, name in enumerate(self.rungs, 1):
            families.setdefault(tuple(row[number] for row in own), []).append(name)
        rows = [[", ".join(names), *values] for values, names in families.items()]
        plans = [Table("What suits each family", ["", *(row[0] for row in own)], rows)] if own else []
        return [self._table(self.heading), *plans, *self._elsewhere()]

    def sections(self) -> list[Section]:
        """The table, quality against time, the curves of every rung's first seed, the settings."""
        first = {
            name: self.out / "cells" / name.replace(" ", "-") / f"seed-{every[0]['seed']}"
            for name, every in self.results.items()
        }
        words = "Every rung has the same number of parameters within 5 % and was trained on the same target tokens."
        every = "\n".join(f"{setting.name}={format_value(setting.value)}" for setting in tree(self.recipe))
        return [
            Text(f"{self.heading}.\n\n{words}", "What is shown", "ladder.md"),
            self._table("The ladder"),
            *self._elsewhere(),
            *self._attention(),
            self._timed(),
            *curves(first, ("loss", *self.recipe.metrics), self.metrics),
            Table("Where the rungs differ", ["setting", *self.rungs], self._differences()),
            Folded("Settings", settings_line(self.recipe, self.rows[0]["parameters"]), [Pre(every)]),
            glossary(("chance", "rung", "parameters", "loss", "step", "width", "token", "attention")),
        ]

    def _elsewhere(self) -> list[Section]:
        """The table of published results on other data, if there is one."""
        return [self.published.elsewhere] if self.published and self.published.elsewhere else []

    def _title(self, measure: str) -> str:
        return find_metric(measure, self.metrics).title

    def _table(self, heading: str) -> Table:
        measures = list(dict.fromkeys(name for every in self.results.values() for name in every[0]["scores"]))
        counted = any(row.get("flops") for row in self.rows)
        columns = ["", "parameters", *(["FLOPs/token"] if counted else []), *map(self._title, measures), "tokens/s"]
        goals = {"seconds_to_quality": self.goal, "seconds_to_weakest": self.weakest}
        timed = {key: one for key, one in goals.items() if one}
        for one in timed.values():
            columns.append(f"to {self._title(one.measure)} {find_metric(one.measure, self.metrics).show(one.value)}")
        if self.published:
            columns.append(f"published, {self.published.measure}")
        rows = []
        for row in self.rows:
            found = [(find_metric(name, self.metrics), row.get(name)) for name in measures]
            cells = [metric.show(one["mean"], one["sd"]) if one else "–" for metric, one in found]
            operations = [size(row["flops"]) if row.get("flops") else "–"] if counted else []
            tokens = size(row["tokens_per_second"]["mean"])
            cells = [row["cell"], f"{row['parameters']:,}", *operations, *cells, tokens]
            cells += [_waited(row[key], row["seeds"]) for key in timed]
            if self.published:
                cells.append("–" if row["published"] is None else f"{row['published']:.1f}")
            rows.append(cells)
        best: dict[str, Literal["high", "low"]] = {
            self.metrics[name].title: "low" if self.metrics[name].lower_is_better else "high"
            for name in measures
            if name in self.metrics
        }
        return Table(heading, columns, rows, " ".join(self._notes()), best)

    def _notes(self) -> list[str]:
        """Notes on how to read the table."""
        found = []
        if self.goal:
            share = "" if self.quality is not None else f", {SHARE:.0%} of the best rung's"
            metric = find_metric(self.goal.measure, self.metrics)
            sought = f"validation {metric.title} {metric.show(self.goal.value)}{share}"
            found.append(f"To {sought}: seconds of training, without evaluations, until an evaluation first found it.")
        if self.weakest:
            sought = find_metric(self.weakest.measure, self.metrics).show(self.weakest.value)
            found.append(f"{sought} is the best of the weakest rung that attends.")
        if any(row.get("flops") for row in self.rows):
            found.append("FLOPs/token: of a forward pass with 16 source and 16 target tokens, per target token.")
        first = next(iter(self.results.values()))[0]
        where = f"on {first['part']}, beam {first['beam']}"
        found += [f"{self._title(name)} {where}: {note}." for name, note in first["notes"].items()]
        found += [chance] if (chance := first.get("chance")) else []  # a cell of an earlier release has none
        return [*found, *([self.published.note] if self.published else [])]

    def _differences(self) -> list[list[str]]:
        """The settings in which the rungs differ, the plan's first; – where a model has no such setting."""
        flat = [{setting.name: setting.value for setting in tree(rung)} for rung in self.rungs.values()]
        names = [name for name in dict.fromkeys(name for each in flat for name in each) if name not in FREE]
        texts = {name: [format_value(each[name]) if name in each else "–" for each in flat] for name in names}
        rows = [[name, *values] for name, values in texts.items() if len(set(values)) > 1]
        return sorted(rows, key=lambda row: not row[0].startswith("plan."))

    def _attention(self) -> list[Section]:
        """The attention of the first seed of each rung over one example; cells of earlier versions have none."""
        first = {name: every[0] for name, every in self.results.items() if "attention" in every[0]}
        shown = next((one["attention"] for one in first.values() if one["attention"]), None)
        if shown is None:
            return []
        views = [_view(name, one["attention"], shown) for name, one in first.items()]
        title = f"Attention over an example of {next(iter(first.values()))['part']}: “{shown['source']}”"
        return [Gallery(title, views, ATTENTION_NOTE)]

    def _timed(self) -> Curve:
        """Quality against seconds of training, in the mean over the seeds."""
        measure = self.recipe.plan.select
        found = {name: averaged(seeds) for name, seeds in self.points.items()}
        lines = [Line(name, [p.seconds for p in line], [p.value for p in line]) for name, line in found.items()]
        metric = find_metric(measure, self.metrics)
        return metric_curve(f"Quality against time: {metric.title}", "seconds of training", metric, lines)


def _mean(values: list[float]) -> dict[str, float | None]:
    return {"mean": statistics.fmean(values), "sd": deviation(values)}


def _view(name: str, found: Mapping[str, Any] | None, other: Mapping[str, Any]) -> AttentionView:
    """The attention of a rung; of one without attention, an empty picture with the axes of another rung."""
    one = found or other
    layers = [Layer(found["label"], np.array([found["weights"]]), part=found["part"])] if found else []
    return AttentionView(name, one["rows"], one["columns"], layers)


def _waited(found: dict[str, Any] | None, seeds: int) -> str:
    """The mean time, and the number of seeds that reached the goal where some did not."""
    if found is None:
        return "never"
    some = "" if found["reached"] == seeds else f" ({found['reached']} of {seeds})"
    seconds = found["mean"]
    return (f"{seconds:.1f} s" if seconds < 10 else duration(seconds)) + some
