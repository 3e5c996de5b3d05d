"""Quality over time: the metrics of a run by its seconds of training."""

import json
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.file_io import is_number, is_whole, read_bytes
from regard.metrics import METRICS

SHARE = 0.95  # the goal, as a fraction of the best rung's quality

Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Point:
    """One evaluation."""

    step: int
    seconds: float  # of training before the evaluation
    value: float


@dataclass(frozen=True)
class Goal:
    """A value of a metric; runs are compared by the time they need to reach it."""

    measure: str
    value: float

    @property
    def less(self) -> bool:
        """Whether a lower value is better."""
        return METRICS[self.measure].lower_is_better

    def reached(self, points: Iterable[Point]) -> float | None:
        """The seconds of training before the first evaluation that reached the value; None if none did."""
        good = (point for point in points if (point.value <= self.value if self.less else point.value >= self.value))
        return next((point.seconds for point in good), None)


def goal(measure: str, rungs: Iterable[Sequence[Sequence[Point]]]) -> Goal | None:
    """95 % of the value of the best rung, in the mean over its seeds; the value / 95 % if lower is better.

    None if no rung has the metric (one without attention has no alignment), or if the best value is 0.
    """
    pick = min if METRICS[measure].lower_is_better else max
    best = pick(_finals(measure, rungs), default=0.0)
    if best <= 0:
        return None
    return Goal(measure, best / SHARE if METRICS[measure].lower_is_better else best * SHARE)


def weakest(measure: str, rungs: Iterable[Sequence[Sequence[Point]]]) -> Goal | None:
    """The best value of the weakest of several rungs, in the mean over its seeds.

    None if there are fewer than two, or if the value is 0.
    """
    finals = _finals(measure, rungs)
    value = max(finals, default=0.0) if METRICS[measure].lower_is_better else min(finals, default=0.0)
    return Goal(measure, value) if len(finals) > 1 and value > 0 else None


def _finals(measure: str, rungs: Iterable[Sequence[Sequence[Point]]]) -> list[float]:
    """The best value of each rung that has the metric, in the mean over its seeds."""
    pick = min if METRICS[measure].lower_is_better else max
    return [statistics.fmean(pick(one.value for one in seed) for seed in seeds) for seeds in rungs if all(seeds)]


def curve(log: Lines, measure: str) -> list[Point]:
    """The evaluations of a run by the time of training before them, without the time of evaluation and saving."""
    found = [line for line in evaluations(log) if line.get(measure) is not None]
    return [Point(line["step"], line["training"], line[measure]) for line in found]


def values(log: Lines, kind: str, name: str) -> list[float]:
    """The values with this name in the lines of a kind that have it."""
    return [line[name] for line in log if line["kind"] == kind and line.get(name) is not None]


def evaluations(log: Lines) -> Lines:
    """The lines of a log that are evaluations."""
    return [line for line in log if line["kind"] == "valid"]


def averaged(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean of the curves of several seeds, which were evaluated at the same steps."""
    return [
        Point(points[0].step, *(statistics.fmean(each) for each in zip(*((one.seconds, one.value) for one in points))))
        for points in zip(*seeds)
    ]


def read_log(run: Path) -> Lines:
    """The lines of metrics.jsonl, if the file exists: its one reader.

    Each has a kind and a step, and numbers or null. A damaged line is skipped, and so is a value that is no number.
    """
    path = run / "metrics.jsonl"
    lines = map(_read_line, read_bytes(path).splitlines() if path.exists() else [])
    return [line for line in lines if line is not None]


def _read_line(text: bytes) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):  # also if it is not UTF-8
        line = json.loads(text)
        if isinstance(line, dict) and isinstance(line.get("kind"), str) and is_whole(line.get("step")):
            values = {name: value for name, value in line.items() if value is None or is_number(value)}
            return {**values, "kind": line["kind"]}
    return None
