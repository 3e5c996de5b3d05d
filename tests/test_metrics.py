"""Scores of outputs, against their definitions and against sums done by hand."""

import math
import random
import subprocess
import sys
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.metrics.text import bleu, chrf, edit_distance, exact_match, perplexity, phoneme_error, word_error

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


@settings(deadline=None, max_examples=300)
@given(short, short)
def test_edit_distance_is_its_definition(a: str, b: str) -> None:
    assert edit_distance(a, b) == definition(a, b)
    assert edit_distance(list(a), list(b)) == definition(a, b)


@settings(deadline=None)
@given(short, short, short)
def test_edit_distance_is_a_distance(a: str, b: str, c: str) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_ten_thousand_words_are_quick() -> None:
    rng = random.Random(0)

    def words() -> list[str]:
        return [" ".join(rng.choices("ABCDEFGHIJ", k=rng.randint(3, 12))) for _ in range(10_000)]

    hyps, refs = words(), [(word,) for word in words()]
    begun = time.perf_counter()
    assert phoneme_error(hyps, refs) > 0.5
    assert time.perf_counter() - begun < 10


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
