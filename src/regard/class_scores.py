"""Precision, recall and F1 of classes, and their averages."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Precision, recall and F1 of each class, (C,), and how many examples have it. A score without a value is 0."""

    precision: Floats
    recall: Floats
    f1: Floats
    support: NDArray[np.int64]


def class_scores(found: Flags, gold: Flags) -> ClassScores:
    """The scores of classes: which of them N examples are found to have and which they have, (N, C) each.

    precision = hits / found, recall = hits / support, F1 = 2 · hits / (found + support).
    """
    hits, predicted, support = (found & gold).sum(0), found.sum(0), gold.sum(0)
    return ClassScores(_ratio(hits, predicted), _ratio(hits, support), _ratio(2 * hits, predicted + support), support)


def micro_average(found: Flags, gold: Flags) -> ClassScores:
    """The scores of all classes together, (1,): those of one class that has every pair of an example and a class."""
    return class_scores(found.reshape(-1, 1), gold.reshape(-1, 1))


def macro_average(found: Flags, gold: Flags) -> ClassScores:
    """The mean scores of the classes, (1,). A class that no example has and that is never found is left out."""
    there = (found | gold).any(0)
    scores, classes = class_scores(found[:, there], gold[:, there]), max(int(there.sum()), 1)
    precision, recall, f1 = (np.array([one.sum() / classes]) for one in (scores.precision, scores.recall, scores.f1))
    return ClassScores(precision, recall, f1, scores.support.sum(keepdims=True))


def weighted_average(found: Flags, gold: Flags) -> ClassScores:
    """The mean scores of the classes, (1,), each weighted by the number of examples that have it."""
    scores = class_scores(found, gold)
    total = max(int(scores.support.sum()), 1)
    precision, recall, f1 = (
        np.array([one @ scores.support / total]) for one in (scores.precision, scores.recall, scores.f1)
    )
    return ClassScores(precision, recall, f1, scores.support.sum(keepdims=True))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), 0.0)
