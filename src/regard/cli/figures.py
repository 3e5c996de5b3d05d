"""Measures as text."""

import statistics
from collections.abc import Mapping, Sequence

PERCENT = ("exact", "accuracy", "alignment", "chance", "word_error", "phoneme_error", "aer")
TITLES = {
    "loss": "loss",
    "perplexity": "perplexity",
    "exact": "exact match",
    "accuracy": "accuracy",
    "bleu": "BLEU",
    "chrf": "chrF",
    "word_error": "word error",
    "phoneme_error": "phoneme error",
    "alignment": "alignment",
    "chance": "(by chance)",
    "aer": "alignment error rate",
}


def title(name: str) -> str:
    """The title of a measure."""
    return TITLES.get(name, name)


def figure(name: str, value: float | None) -> str:
    """A measure: a share as a percentage, BLEU and chrF with two decimals, the rest with four digits."""
    if value is None:
        return "–"
    if name in PERCENT:
        return f"{value:.2%}"
    return f"{value:.2f}" if name in ("bleu", "chrf") else f"{value:.4g}"


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
    if sd is None:
        return figure(name, mean)
    if name in PERCENT:
        return f"{100 * mean:.2f} ± {100 * sd:.2f} %"
    return f"{mean:.2f} ± {sd:.2f}" if name in ("bleu", "chrf") else f"{mean:.4g} ± {sd:.1g}"


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
