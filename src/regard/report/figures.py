"""Measures, times and sizes as text."""

import statistics
from collections.abc import Mapping, Sequence

from regard.metrics import Metric
from regard.recipes import KINDS, Recipe
from regard.recipes.recipe import shown_name
from regard.report.sections import Curve, Line

Metrics = Mapping[str, Metric]
DECADE = 10.0  # how many times its lowest value a loss must be for a logarithmic axis


def find_metric(name: str, metrics: Metrics) -> Metric:
    """The metric of this name; any other number is shown with four digits."""
    return metrics.get(name) or Metric(name, "sums", lambda sums, counts: None, lower_is_better=True)


def metric_curve(title: str, x_label: str, measure: Metric, lines: Sequence[Line]) -> Curve:
    """The values of a metric: on the axis that the metric has, logarithmic where losses span a decade or more."""
    values = [y for line in lines for y in line.ys if y > 0]
    free = measure.ends == (None, None) and measure.lower_is_better
    decades = bool(values) and max(values) >= DECADE * min(values)
    return Curve(title, x_label, measure.title, lines, log_y=free and decades, ends=measure.ends)


def settings_line(recipe: Recipe, parameters: int) -> str:
    """The settings of a recipe that matter most, in one line."""
    model, data = (shown_name(getattr(recipe, part), KINDS[part]) for part in ("model", "data"))
    return f"model={model} with {parameters:,} parameters · data={data} · {recipe.plan.steps:,} steps"


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several runs; one run has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def with_spread(values: Sequence[float], decimals: int, factor: float = 1.0) -> str:
    """The mean times a factor, ± the standard deviation: 93.8 ± 4.3; of one value, the value alone."""
    spread = "" if (found := deviation(values)) is None else f" ± {factor * found:.{decimals}f}"
    return f"{factor * statistics.fmean(values):.{decimals}f}{spread}"


def mean_line(name: str, xs: Sequence[float], samples: Sequence[Sequence[float]]) -> Line:
    """A line of the mean of several runs at each x, with their standard deviations as bars."""
    return Line(name, xs, [*map(statistics.fmean, samples)], [deviation(each) or 0.0 for each in samples])


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
