"""Exact match and F1 of answers: those of SQuAD's script."""

import random

import pytest

from regard.answer_scores import exact, mean_score, normalized, word_f1
from regard.metrics import METRICS


def test_articles_punctuation_case_and_spaces_do_not_count() -> None:
    assert normalized("  The cat,  AN apple & a-b!") == "cat apple ab"
    assert normalized("theatre an") == "theatre"
    assert exact("the Normans.", "Normans") == 1


@pytest.mark.parametrize(
    ("answer", "accepted", "f1"),
    [
        ("in the 10th century", "10th and 11th centuries", 2 * 1 / (3 + 4)),  # in 10th century; one word is the same
        ("cat cat dog", "cat dog dog", 2 * 2 / 6),  # repeated words count as often as they occur in both
        ("", "", 1),
        ("", "cat", 0),
        ("the", "", 1),  # nothing is left of it
        ("Paris", "Rome", 0),
    ],
)
def test_f1_by_hand(answer: str, accepted: str, f1: float) -> None:
    assert word_f1(answer, accepted) == pytest.approx(f1)


def test_the_best_of_several_accepted_answers_counts_and_no_answer_accepts_only_nothing() -> None:
    answers = ["the Seine", "Rome", "", "", "x"]
    accepted = [("river Seine", "Seine"), ("Paris",), (), ("Paris",), ("the", "a")]
    assert mean_score(exact, answers, accepted) == pytest.approx((1 + 0 + 1 + 0 + 0) / 5)
    assert METRICS["em"].compute(answers, accepted) == pytest.approx(2 / 5)
    assert METRICS["answer_f1"].compute(["a big dog"], [("dog", "big cat dog")]) == pytest.approx(4 / 5)
    assert mean_score(exact, [], []) is None
    assert mean_score(exact, ["", "Paris"], [("the", "Paris")] * 2) == 0.5  # "the" has no words, and is not accepted


def test_scores_are_those_of_torchmetrics() -> None:
    squad = pytest.importorskip("torchmetrics.functional.text").squad
    draw = random.Random(1)
    words = ["the", "a", "An", "Seine", "river,", "of", "Paris.", "10th", "centuries", "—", "it's", "U.S."]

    def text() -> str:
        return " ".join(draw.choices(words, k=draw.randint(1, 4))) + " Rome"  # never only articles

    answers = [text() for _ in range(200)]
    accepted = [tuple(text() for _ in range(draw.randint(1, 3))) for _ in answers]
    targets = [
        {"answers": {"answer_start": [0] * len(golds), "text": list(golds)}, "id": str(number)}
        for number, golds in enumerate(accepted)
    ]
    found = squad([{"prediction_text": one, "id": str(n)} for n, one in enumerate(answers)], targets)
    assert 100 * METRICS["em"].compute(answers, accepted) == pytest.approx(float(found["exact_match"]))
    assert 100 * METRICS["answer_f1"].compute(answers, accepted) == pytest.approx(float(found["f1"]), rel=1e-5)
