"""Scores of classes and correlations, against their definitions."""

import itertools

import numpy as np
import pytest

from regard.class_scores import class_scores, macro_average, micro_average
from regard.metrics import METRICS, pearson, spearman

GOLD = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0]], bool)
FOUND = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0], [1, 1, 0]], bool)


def test_precision_recall_and_f1_by_hand() -> None:
    scores = class_scores(FOUND, GOLD)
    np.testing.assert_allclose(scores.precision, [2 / 2, 2 / 3, 0])  # nothing is found of the third class
    np.testing.assert_allclose(scores.recall, [2 / 3, 2 / 3, 0])
    np.testing.assert_allclose(scores.f1, [4 / 5, 4 / 6, 0])
    assert scores.support.tolist() == [3, 3, 0]
    macro, micro = macro_average(FOUND, GOLD), micro_average(FOUND, GOLD)
    np.testing.assert_allclose(macro.f1, [(4 / 5 + 4 / 6) / 2])  # without the third class, which is not there
    np.testing.assert_allclose([micro.precision[0], micro.recall[0], micro.f1[0]], [4 / 5, 4 / 6, 8 / 11])
    assert METRICS["f1_micro"].compute(FOUND, GOLD) == pytest.approx(8 / 11)
    assert METRICS["f1_macro"].compute(FOUND, GOLD) == pytest.approx((4 / 5 + 4 / 6) / 2)


def test_averages_without_any_class_are_zero() -> None:
    nothing = np.zeros((3, 2), bool)
    for average in (macro_average, micro_average):
        scores = average(nothing, nothing)
        assert [float(each[0]) for each in (scores.precision, scores.recall, scores.f1)] == [0.0] * 3


def test_with_one_class_per_example_micro_is_the_accuracy() -> None:
    names = np.arange(4)
    found, gold = (np.random.default_rng(n).integers(4, size=50)[:, None] == names for n in (1, 2))
    micro = micro_average(found, gold)
    accuracy = (found & gold).any(1).mean()
    assert [float(each[0]) for each in (micro.precision, micro.recall, micro.f1)] == pytest.approx([accuracy] * 3)


def test_correlations_by_definition() -> None:
    x, y = np.array([3.0, 1.0, 1.0, 8.0, 2.0]), np.array([2.0, 1.5, -1.0, 4.0, 2.0])
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    # The rank of a number: how many are smaller, half of the equal ones, its own half included.
    ranks = [[sum(b < a for b in v) + sum(b == a for b in v) / 2 + 0.5 for a in v] for v in (x, y)]
    assert ranks[0] == [4.0, 1.5, 1.5, 5.0, 3.0]
    assert spearman(x, y) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert spearman(x, np.exp(x)) == pytest.approx(1.0)  # ranks alone count
    for constant in (1.0, 0.1, 1 / 3):  # the mean of five times 1/3 is not 1/3
        assert pearson(x, np.full(5, constant)) is None
        assert pearson(np.full(3, constant), np.arange(3.0)) is None
    for shift, scale in itertools.product((0.0, 7.0), (0.5, -3.0)):
        assert pearson(x, shift + scale * x) == pytest.approx(np.sign(scale))
    for size in (1e-200, 1e200):  # whose squares are 0 or infinite
        assert pearson(size * x, y) == pytest.approx(pearson(x, y))
    broken = np.where(x == x.max(), np.nan, x)  # of a model that diverged: no rank
    assert np.isnan([spearman(broken, y), pearson(broken, y)]).all()
