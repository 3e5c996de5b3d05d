"""Metrics of texts and classes whose reference is another package: ROUGE, Matthews correlation, weighted F1."""

import random

import numpy as np
import pytest

from regard.class_scores import weighted_average
from regard.errors import UserError
from regard.metrics import METRICS, common_length, matthews, rouge_words, text_spearman

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "slept", "well-fed", "café", "42", "U.S.")


def sentences(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 12))) for _ in range(count)]


def test_rouge_is_that_of_rouge_score() -> None:
    """F1 without stemming, averaged over the outputs; of several references the best counts."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed")
    theirs = scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    hyps, refs = sentences(1, 60), list(zip(sentences(2, 60), sentences(3, 60)))
    found = [theirs.score_multi(list(accepted), hyp) for hyp, accepted in zip(hyps, refs)]
    for name in ("rouge1", "rouge2", "rougeL"):
        expected = sum(one[name].fmeasure for one in found) / len(found)
        assert 0.02 < expected < 0.98
        assert METRICS[name].compute(hyps, refs) == pytest.approx(expected, abs=1e-12)


def test_rouge_of_a_line_worked_by_hand() -> None:
    hyp, ref = ["The cats sat, down"], [("the cat sat down",)]  # 3 of 4 words, 1 of 3 pairs, "the sat down"
    assert METRICS["rouge1"].compute(hyp, ref) == pytest.approx(3 / 4)  # "cats" is not "cat": no stemming
    assert METRICS["rouge2"].compute(hyp, ref) == pytest.approx(1 / 3)
    assert METRICS["rougeL"].compute(hyp, ref) == pytest.approx(3 / 4)
    assert METRICS["rougeL"].compute(["b a"], [("a b",)]) == 0.5  # the order counts
    assert METRICS["rouge1"].compute(["", "x"], [("a",), ("",)]) == 0
    assert rouge_words("U.S. café-bar 3.5") == ["u", "s", "caf", "bar", "3", "5"]
    assert common_length("abcbdab", "bdcaba") == 4
    with pytest.raises(UserError, match="1 outputs but 2 references"):
        METRICS["rouge1"].compute(["a"], [("a",), ("b",)])


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_matthews_and_weighted_f1_are_those_of_scikit_learn(classes: int) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(classes)
    gold = rng.integers(classes, size=80)
    found = np.where(rng.random(80) < 0.4, gold, rng.integers(classes, size=80))
    names = np.arange(classes)
    flags = found[:, None] == names, gold[:, None] == names
    assert matthews(*flags) == pytest.approx(sklearn.matthews_corrcoef(gold, found))
    weighted = weighted_average(*flags)
    for name in ("precision", "recall", "f1"):
        score = getattr(sklearn, f"{name}_score")(gold, found, average="weighted")
        assert getattr(weighted, name)[0] == pytest.approx(score)
    assert METRICS["f1_weighted"].compute(*flags) == pytest.approx(weighted.f1[0])
    assert METRICS["f1_macro"].compute(*flags) == pytest.approx(sklearn.f1_score(gold, found, average="macro"))


def test_matthews_of_one_class_is_zero_and_of_right_answers_one() -> None:
    gold = np.array([0, 1, 1, 0])[:, None] == np.arange(2)
    constant = np.array([1, 1, 1, 1])[:, None] == np.arange(2)
    assert matthews(constant, gold) == 0 == matthews(gold, constant)
    assert (matthews(gold, gold), matthews(~gold, gold)) == (1, -1)


def test_numbers_as_text_are_ranked_and_other_texts_are_last() -> None:
    gold = [("0.5",), ("2",), ("3.5",), ("5.0",)]
    assert text_spearman(["1", "1.5", " 3 ", "4e0"], gold) == pytest.approx(1)
    assert text_spearman(["yes", "1", "2", "3"], gold) == pytest.approx(1)  # "yes" is below 1
    assert text_spearman(["1", "2", "3", "nan"], gold) == pytest.approx(-0.2)
    assert text_spearman(["a", "b", "c", "d"], gold) is None  # all have the same rank
    assert text_spearman(["1", "2"], [("good",), ("1",)]) is None
    assert text_spearman([], []) is None
