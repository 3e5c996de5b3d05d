"""How soon a model was how good: its measures against the seconds that it was trained for."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.metrics import METRICS

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
        return METRICS[self.measure].lower_is_better

    def reached(self, points: Iterable[Point]) -> float | None:
        """The seconds of training after which an evaluation first found it."""
        good = (point for point in points if (point.value <= self.value if self.less else point.value >= self.value))
        return next((point.seconds for point in good), None)


def goal(measure: str, rungs: Iterable[Sequence[Sequence[Point]]]) -> Goal | None:
    """95 % of what the best rung came to, in the mean over its seeds; of a measure like the loss, the best / 95 %.

    None where no rung has the measure (one without attention has no alignment), or none came to anything.
    """
    pick = min if METRICS[measure].lower_is_better else max
    finals = [statistics.fmean(pick(one.value for one in seed) for seed in seeds) for seeds in rungs if all(seeds)]
    best = pick(finals, default=0.0)
    if best <= 0:
        return None
    return Goal(measure, best / SHARE if METRICS[measure].lower_is_better else best * SHARE)


def curve(log: Lines, measure: str) -> list[Point]:
    """Every evaluation of a run by the time spent training before it, judging and saving apart."""
    found = [line for line in judgements(log) if isinstance(line.get(measure), int | float)]
    return [Point(line["step"], line["training"], line[measure]) for line in found]


def judgements(log: Lines) -> Lines:
    """The lines of a log that tell of an evaluation."""
    return [line for line in log if line["kind"] == "valid"]


def averaged(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean over several seeds, which were all judged at the same steps."""
    return [
        Point(points[0].step, *(statistics.fmean(each) for each in zip(*((one.seconds, one.value) for one in points))))
        for points in zip(*seeds)
    ]


def read_log(run: Path) -> Lines:
    """The lines of metrics.jsonl, if there are any yet, but for one that a kill left half-written."""
    path, found = run / "metrics.jsonl", []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
