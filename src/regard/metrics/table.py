"""What a metric is, and the literal table of all metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from regard.alignment import aer, chance_accuracy, correct_targets, links_from
from regard.metrics.text import bleu, chrf, exact_match, perplexity, phoneme_error, word_error

Format = Literal["percent", "points", "digits"]


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is.

    `compute` gets what the metric needs:
    sums     (sums, counts): what the objective adds up over all examples, and how many there are of each term
    answers  (texts, references): what the model generates, and for each example the texts that are accepted
    weights  (weights, links): attention weights (target units, source units) of each example, and its gold links

    It returns a number, a `Bleu` (a number and how it was computed), or None where the metric does not exist.
    """

    title: str  # the heading of its column
    needs: Literal["sums", "answers", "weights"]
    compute: Callable[[Any, Any], Any]
    lower_is_better: bool
    format: Format = "digits"

    def show(self, value: float | None, deviation: float | None = None) -> str:
        """The value as people read it, and its standard deviation over several runs if it is given."""
        if value is None:
            return "–"
        scale, unit = (100, " %") if self.format == "percent" else (1, "")
        if deviation is None:
            return f"{value:.4g}" if self.format == "digits" else f"{scale * value:.2f}{unit.strip()}"
        if self.format == "digits":
            return f"{value:.4g} ± {deviation:.1g}"
        return f"{scale * value:.2f} ± {scale * deviation:.2f}{unit}"


def _mean_nll(sums: Any, counts: Any) -> float:
    return float(sums["nll"] / counts["nll"])


def _perplexity(sums: Any, counts: Any) -> float:
    return perplexity(-sums["nll"], counts["nll"])


def _accuracy(sums: Any, counts: Any) -> float | None:
    return sums["right"] / counts["nll"] if "right" in sums else None


def _alignment(weights: Any, links: Any) -> float | None:
    """How often a target unit with gold links looks most at a source unit that is linked to it."""
    found = [correct_targets(table, gold) for table, gold in zip(weights, links)]
    targets = sum(count for _, count in found)
    return sum(right for right, _ in found) / targets if targets else None


def _chance(weights: Any, links: Any) -> float | None:
    """What `alignment` would be if every target unit looked at a random source unit."""
    counts = [correct_targets(table, gold)[1] for table, gold in zip(weights, links)]
    hits = (count * chance_accuracy(gold, table.shape[1]) for count, table, gold in zip(counts, weights, links))
    return sum(hits, 0.0) / sum(counts) if sum(counts) else None


def _alignment_error(weights: Any, links: Any) -> float:
    return aer(links, links, [links_from(table) for table in weights]).aer


METRICS: dict[str, Metric] = {
    "loss": Metric("loss", "sums", _mean_nll, lower_is_better=True),
    "perplexity": Metric("perplexity", "sums", _perplexity, lower_is_better=True),
    "accuracy": Metric("accuracy", "sums", _accuracy, lower_is_better=False, format="percent"),
    "exact": Metric("exact match", "answers", exact_match, lower_is_better=False, format="percent"),
    "bleu": Metric("BLEU", "answers", bleu, lower_is_better=False, format="points"),
    "chrf": Metric("chrF", "answers", chrf, lower_is_better=False, format="points"),
    "word_error": Metric("word error", "answers", word_error, lower_is_better=True, format="percent"),
    "phoneme_error": Metric("phoneme error", "answers", phoneme_error, lower_is_better=True, format="percent"),
    "alignment": Metric("alignment", "weights", _alignment, lower_is_better=False, format="percent"),
    "chance": Metric("(by chance)", "weights", _chance, lower_is_better=False, format="percent"),
    "aer": Metric("alignment error rate", "weights", _alignment_error, lower_is_better=True, format="percent"),
}
