"""Scores of outputs, against their definitions and against sums done by hand."""

import math
import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from growth import is_linear
from regard.errors import UserError
from regard.metrics import (
    METRICS,
    Bleu,
    bleu,
    chrf,
    edit_distance,
    exact_match,
    perplexity,
    phoneme_error,
    word_error,
)

short = st.text("abc", max_size=7)


def definition(a: str, b: str) -> int:
    """Edit distance as it is defined, by recursion."""

    @cache
    def between(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        change = between(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(change, between(i - 1, j) + 1, between(i, j - 1) + 1)

    return between(len(a), len(b))


@settings(max_examples=300)
@given(short, short)
def test_edit_distance_is_its_definition(a: str, b: str) -> None:
    assert edit_distance(a, b) == definition(a, b)
    assert edit_distance(list(a), list(b)) == definition(a, b)


@given(short, short, short)
def test_edit_distance_is_a_distance(a: str, b: str, c: str) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_many_words_take_time_in_proportion_to_their_number() -> None:
    rng = random.Random(0)

    def words() -> list[str]:
        return [" ".join(rng.choices("ABCDEFGHIJ", k=rng.randint(3, 12))) for _ in range(3_200)]

    hyps, refs = words(), [(word,) for word in words()]
    assert phoneme_error(hyps, refs) > 0.5
    assert is_linear(lambda count: phoneme_error(hyps[:count], refs[:count]), len(hyps))


def test_any_accepted_answer_is_exact() -> None:
    assert exact_match(["2021-02-03", "x"], [("2021-02-03",), ("y", "z")]) == 0.5
    assert exact_match(["z"], [("y", "z")]) == 1
    assert exact_match([], []) == 0


def test_pronunciations_are_judged_by_the_nearest_accepted_one() -> None:
    hyps = ["K AE T", "T AH M EY T OW", "R UH"]
    refs = [("K AE T",), ("T AH M AA T OW", "T AH M EY T OW"), ("R AY T", "R UH T")]
    assert word_error(hyps, refs) == pytest.approx(1 / 3)
    assert phoneme_error(hyps, refs) == pytest.approx(1 / (3 + 6 + 3))  # a phoneme is a word here, not a letter
    assert phoneme_error(["A B C D"], [("X",)]) == 4  # more edits than phonemes
    assert word_error([" K  AE T "], [("K AE T",)]) == 0


def test_bleu_of_a_line_worked_by_hand() -> None:
    hyp, ref = "the old boat left the quiet harbour today", "the old boat left a quiet harbour today"
    # matched n-grams of 8, 7, 6, 5: 7, 5, 3, 1; equal lengths, so no penalty
    expected = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** 0.25
    scored = bleu([hyp], [(ref,)])
    assert scored.score == pytest.approx(expected)
    assert "case:mixed" in scored.signature
    assert "tok:13a" in scored.signature


def test_bleu_is_cased_and_takes_uneven_references() -> None:
    line, other = "A small dog ran home fast", "five tall ships came in early"
    assert bleu([line, other], [(line, "something else"), (other,)]).score == pytest.approx(100)
    assert bleu([line.lower()], [(line,)]).score < 100
    assert chrf([line], [(line,)]).score == pytest.approx(100)
    assert chrf(["zzz"], [("aaa",)]).score == 0
    assert "chrF" not in bleu([line], [(line,)]).signature
    assert "nc:6" in chrf([line], [(line,)]).signature


def test_perplexity_of_even_odds_is_the_number_of_choices() -> None:
    assert perplexity(10 * math.log(1 / 7), 10) == pytest.approx(7)
    assert perplexity(-1e9, 1) == math.inf
    assert math.isnan(perplexity(0.0, 0))


@pytest.mark.parametrize("metric", [exact_match, word_error, phoneme_error, bleu, chrf])
def test_unpaired_lines_are_refused(metric: object) -> None:
    with pytest.raises(UserError, match="1 outputs but 2 references"):
        metric(["a"], [("a",), ("b",)])  # type: ignore[operator]


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(UserError, match="no outputs to score"):
        bleu([], [])


def test_sacrebleu_is_loaded_only_when_used() -> None:
    code = "import sys, regard.metrics; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- The table ---------------------------------------------------------------------------------------------------------


def test_every_metric_has_a_title_of_its_own_and_a_direction() -> None:
    titles = [metric.title for metric in METRICS.values()]
    assert len(set(titles)) == len(titles)
    lower = {name for name, metric in METRICS.items() if metric.lower_is_better}
    assert lower == {"loss", "perplexity", "forward", "backward", "mse", "word_error", "phoneme_error", "aer"}
    percent = {name for name, metric in METRICS.items() if metric.format == "percent"}
    rates = {"accuracy", "recalled", "exact", "word_error", "phoneme_error", "alignment", "chance", "aer"}
    assert percent == rates | {
        *("em", "answer_f1", "sentences", "replaced_precision", "replaced_recall"),
        "f1_micro",
        "f1_macro",
        "f1_weighted",
        "rouge1",
        "rouge2",
        "rougeL",
        "pointing",
        "pointing_chance",
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "sentences",
        "filled",
        "replaced_precision",
        "replaced_recall",
    }


@pytest.mark.parametrize(
    ("name", "value", "deviation", "shown"),
    [
        ("loss", 1.23456789, None, "1.235"),
        ("loss", 1.23456789, 0.0123, "1.235 ± 0.01"),
        ("perplexity", 12345.6, None, "1.235e+04"),
        ("exact", 0.98765, None, "98.77%"),
        ("exact", 0.98765, 0.0123, "98.77 ± 1.23 %"),
        ("bleu", 34.5678, None, "34.57"),
        ("bleu", 34.5678, 0.5, "34.57 ± 0.50"),
        ("aer", None, None, "–"),
        ("aer", None, 0.5, "–"),
        ("accuracy", 1.0, None, "100.00%"),
        ("accuracy", 0.0, 0.0, "0.00 ± 0.00 %"),
    ],
)
def test_a_value_is_shown_as_people_read_it(
    name: str, value: float | None, deviation: float | None, shown: str
) -> None:
    assert METRICS[name].show(value, deviation) == shown


def test_metrics_of_sums_are_means_over_their_counts() -> None:
    sums, counts = {"nll": 6.0, "right": 2.0, "overlap": 9.0}, {"nll": 4, "overlap": 8}
    assert METRICS["loss"].compute(sums, counts) == 1.5
    assert METRICS["perplexity"].compute(sums, counts) == pytest.approx(math.exp(1.5))
    assert METRICS["accuracy"].compute(sums, counts) == 0.5
    assert METRICS["accuracy"].compute({"nll": 6.0}, counts) is None  # an objective that does not count it


def test_metrics_of_answers_compare_texts_with_all_references() -> None:
    texts, references = ["a b", "c"], [("x", "a b"), ("d",)]
    assert METRICS["exact"].compute(texts, references) == 0.5
    assert METRICS["word_error"].compute(texts, references) == word_error(texts, references)
    assert isinstance(METRICS["bleu"].compute(texts, references), Bleu)


def test_metrics_of_weights_compare_tables_with_links() -> None:
    """Two target units; the first has its most weight where the gold link is, the second has it elsewhere."""
    weights = [np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])]
    links = [frozenset({(0, 0), (2, 1)})]
    assert METRICS["alignment"].compute(weights, links) == 0.5
    assert METRICS["chance"].compute(weights, links) == pytest.approx(1 / 3)
    assert METRICS["aer"].compute(weights, links) == pytest.approx(0.5)
    for name in ("alignment", "chance"):
        assert METRICS[name].compute(weights, [frozenset()]) is None


def test_an_axis_of_a_metric_has_the_ends_of_its_range() -> None:
    """Of shares and correlations 0 and 1; of BLEU 0; those of losses follow from the values."""
    ends = {name: metric.ends for name, metric in METRICS.items()}
    assert ends["exact"] == ends["alignment"] == ends["accuracy"] == ends["pearson"] == ends["matthews"] == (0.0, 1.0)
    assert ends["bleu"] == ends["chrf"] == (0.0, None)
    assert ends["loss"] == ends["perplexity"] == ends["mse"] == (None, None)
