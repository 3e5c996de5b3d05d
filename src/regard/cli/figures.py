"""Measures as text, with the metrics of all tables of kinds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regard.cli.options import all_kinds

if TYPE_CHECKING:
    from regard.metrics import Metric


def _metric(name: str) -> "Metric":
    from regard.report.figures import find_metric

    return find_metric(name, all_kinds()["metric"])


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
