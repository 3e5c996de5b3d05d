"""The report of the ladder of sequences: its numbers, and its sections."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.metrics import METRICS
from regard.report.figures import deviation, duration, metric_curve
from regard.report.glossary import glossary
from regard.report.sections import Curve, Line, Section, Table, Text
from regard.training.ladder.quality import Point, averaged
from regard.training.ladder.sequences import FAMILIES, NOTE, TUNING, Climbed, Row


@dataclass(frozen=True)
class SequenceStanding:
    """Everything that a ladder of sequences measured."""

    results: Sequence[Climbed]
    minutes: float  # the limit of a cell
    trials: int  # how many settings each family was tried with
    settings: Sequence[str] = ()  # those that the user changed, such as data.length=50

    @property
    def rows(self) -> list[Row]:
        """The tasks that have results, in order."""
        return list({one.row.name: one.row for one in self.results}.values())

    @property
    def families(self) -> list[str]:
        """The families that have results, in the order of the table."""
        found = {one.family for one in self.results}
        return [family for family in FAMILIES if family in found]

    @property
    def note(self) -> str:
        """How our figures and the published ones were measured, and whether they are those of the same task."""
        data = " ".join(setting for setting in self.settings if setting.startswith("data."))
        changed = f" {data}: the task is not the published one, so its figures cannot be compared with the published."
        return NOTE + changed if data else NOTE

    @property
    def numbers(self) -> dict[str, Any]:
        """As ladder.json holds them."""
        about = {"minutes": self.minutes, "settings": list(self.settings), "note": self.note}
        return {**about, "rows": [self._number(one) for one in self.results]}

    def _number(self, one: Climbed) -> dict[str, Any]:
        mean = statistics.fmean(one.values) if one.values else None
        found: dict[str, Any] = {"task": one.row.name, "model": one.family, "metric": one.row.title, "part": "valid"}
        found |= {"mean": mean, "sd": deviation(one.values), "seeds": len(one.values), "diverged": one.diverged}
        found |= {"published_test": one.row.published.get(one.family), "trials": one.trials, "winner": one.winner}
        return {**found, "cells": list(one.cells)}

    def tables(self) -> list[Section]:
        """For the terminal: the figures with the published ones below them, then what each cell is."""
        return [self._summary(), self._cells()]

    def sections(self) -> list[Section]:
        """The tables, the trials of each cell, and the curves of each task."""
        limit = f"A cell has {self.minutes:g} minutes at most, and fewer if it reaches plan.steps."
        tuned = (
            f"Each family of a task has the same {self.trials} trials, {TUNING:.0%} of the time together; the settings "
            "of the best trial are those of the long runs."
        )
        what = f"Models of equal size (within 5 %) on the tasks of Bai et al. 2018. {limit}"
        return [
            Text(f"{what} {tuned if self.trials > 1 else ''}\n\n{self.note}", "What is shown", "sequences.md"),
            *self.tables(),
            *([self._trials()] if self.trials > 1 else []),
            *(self._curve(row) for row in self.rows),
            glossary(("chance", "parameters", "loss", "step", "perplexity")),
        ]

    def _summary(self) -> Table:
        """A row for each task with our figures, and below it the published ones."""
        by_cell = {(one.row.name, one.family): one for one in self.results}
        rows = []
        for row in self.rows:
            found = [by_cell.get((row.name, family)) for family in self.families]
            rows.append([f"{row.name}, {row.title}", "valid", *("–" if one is None else _figure(one) for one in found)])
            published = [row.published.get(family) for family in self.families]
            rows.append(["", "published, test", *map(row.show, published)])
        columns = ["task", "part", *(FAMILIES[family] for family in self.families)]
        return Table("Sequences", columns, rows, self.note)

    def _cells(self) -> Table:
        columns = ["task", "model", "ours, valid", "n", "parameters", "steps", "time", "settings"]
        rows = []
        for one in self.results:
            first = one.cells[0] if one.cells else {}
            steps = " ".join(f"{each['steps']:,}" for each in one.cells)
            cut = any(each["steps"] < each["recipe"]["plan"]["steps"] for each in one.cells)
            rows.append(
                [
                    one.row.name,
                    FAMILIES[one.family],
                    _figure(one),
                    f"{first['examples']:,}" if first else "–",
                    f"{first['parameters']:,}" if first else "–",
                    f"{steps or '–'}{' (time)' * cut}",
                    duration(statistics.fmean(each["training_seconds"] for each in one.cells)) if first else "–",
                    one.winner,
                ]
            )
        limits = {one.row.name: one.cells[0]["chance"] for one in self.results if one.cells}
        chances = " ".join(f"{task}: {chance}" for task, chance in limits.items() if chance)
        note = (
            "n: validation examples. (time): the minutes ended before plan.steps. settings: the best trial. " + chances
        )
        return Table("Cells", columns, rows, note)

    def _trials(self) -> Table:
        """The figure of every trial."""
        names = list(dict.fromkeys(name for one in self.results for name in one.trials))
        rows = [
            [one.row.name, FAMILIES[one.family], *(one.row.show(one.trials.get(name)) for name in names), one.winner]
            for one in self.results
        ]
        note = "Figures on the validation set after a short run; –: training diverged, or the task has other trials."
        return Table("Trials", ["task", "model", *names, "best"], rows, note)

    def _curve(self, row: Row) -> Curve:
        """The figure on the validation set against seconds of training, in the mean over the seeds."""
        lines = []
        for one in self.results:
            if one.row.name == row.name and one.cells:
                line = averaged([[Point(**point) for point in cell["curve"]] for cell in one.cells])
                lines.append(Line(FAMILIES[one.family], [p.seconds for p in line], [p.value for p in line]))
        metric = METRICS[row.metric]
        return metric_curve(f"{row.name}: {metric.title}", "seconds of training", metric, lines)


def _figure(one: Climbed) -> str:
    """The mean over the seeds and its standard deviation."""
    if not one.values:
        return "diverged"
    some = f" ({one.diverged} diverged)" if one.diverged else ""
    return one.row.show(statistics.fmean(one.values), deviation(one.values)) + some


def cell_line(one: Climbed) -> str:
    """The result of a family on a task, in one line."""
    if not one.cells:
        return f"{one.row.name}, {FAMILIES[one.family]}: training diverged"
    first = one.cells[0]
    what = f"{one.row.title} {_figure(one)} on {first['examples']:,} validation examples"
    seeds = f", {len(one.cells)} seeds" if len(one.cells) > 1 else ""
    size = f"{first['parameters']:,} parameters, {first['steps']:,} steps in {duration(first['training_seconds'])}"
    return f"{one.row.name}, {FAMILIES[one.family]}: {what}{seeds} ({size}, {one.winner})"
