"""How soon a model was how good: its measures against the seconds that it was trained for."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.recipes import MEASURES

SHARE = 0.95  # of the best rung's quality: what the others are timed to reach

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    step: int
    seconds: float  # of training before it
    value: float


@dataclass(frozen=True)
class Goal:
    """A quality that is worth waiting for."""

    measure: str
    value: float

    @property
    def less(self) -> bool:
        """Whether less of it is better."""
        return MEASURES[self.measure]

    def reached(self, points: Iterable[Point]) -> float | None:
        """The seconds of training after which an evaluation first found it."""
        good = (point for point in points if (point.value <= self.value if self.less else point.value >= self.value))
        return next((point.seconds for point in good), None)


def goal(measure: str, rungs: Iterable[Sequence[Sequence[Point]]]) -> Goal | None:
    """95 % of what the best rung came to, in the mean over its seeds; of a measure like the loss, the best / 95 %.

    None where no rung has the measure (one without attention has no alignment), or none came to anything.
    """
    pick = min if MEASURES[measure] else max
    finals = [statistics.fmean(pick(one.value for one in seed) for seed in seeds) for seeds in rungs if all(seeds)]
    best = pick(finals, default=0.0)
    if best <= 0:
        return None
    return Goal(measure, best / SHARE if MEASURES[measure] else best * SHARE)


def curve(log: Lines, measure: str) -> list[Point]:
    """Every evaluation of a run by the time spent training before it."""
    seconds = training_seconds(log)
    found = [line for line in log if line["kind"] == "valid" and isinstance(line.get(measure), int | float)]
    return [Point(line["step"], seconds[line["step"]], line[measure]) for line in found]


def training_seconds(log: Lines) -> dict[int, float]:
    """Step of each report → seconds of training up to it.

    The log's own seconds run on while the model is judged and saved. An interval between two reports in which that
    happened therefore counts as its steps at the median pace of the other intervals.
    """
    told = [line for line in log if line["kind"] == "train"]
    judged = {line["step"] for line in log if line["kind"] == "valid"}
    before = [(0, 0.0), *((line["step"], line["seconds"]) for line in told[:-1])]
    spans = [(line["step"] - at, line["seconds"] - then, at in judged) for line, (at, then) in zip(told, before)]
    pace = statistics.median(seconds / steps for steps, seconds, paused in spans if not paused)
    found, total = {}, 0.0
    for line, (steps, seconds, paused) in zip(told, spans):
        total += min(seconds, pace * steps) if paused else seconds
        found[line["step"]] = total
    return found


def averaged(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean over several seeds, which were all judged at the same steps."""
    return [
        Point(points[0].step, *(statistics.fmean(each) for each in zip(*((one.seconds, one.value) for one in points))))
        for points in zip(*seeds)
    ]


def read_log(run: Path) -> Lines:
    """The lines of metrics.jsonl, but for one that a kill left half-written."""
    found = []
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
