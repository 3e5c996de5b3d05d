"""Measures as text."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.cli.options import all_kinds

if TYPE_CHECKING:
    from regard.metrics import Metric


def _metric(name: str) -> "Metric":
    """The metric of this name; any other number is shown with four digits."""
    from regard.metrics import Metric

    known: Metric | None = all_kinds()["metric"].get(name)
    return known or Metric(name, "sums", lambda sums, counts: None, lower_is_better=True)


def title(name: str) -> str:
    """The heading of a metric."""
    return _metric(name).title


def figure(name: str, value: float | None) -> str:
    """The value of a metric as people read it."""
    return _metric(name).show(value)


def formatted(values: Mapping[str, float]) -> dict[str, str]:
    """The text of every measure, by its title."""
    return {title(name): figure(name, value) for name, value in values.items()}


def figures(values: Mapping[str, float]) -> str:
    """Several measures in one line."""
    return " · ".join(f"{name} {value}" for name, value in formatted(values).items())


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several runs; one run has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def spread(name: str, mean: float, sd: float | None) -> str:
    """A mean ± its standard deviation, if it has one."""
    return _metric(name).show(mean, sd)


def duration(seconds: float) -> str:
    """12 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left:02d} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: float) -> str:
    """A large number in three digits: 912, 45.6k, 1.23M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{letter}"
    return f"{count:.0f}"
