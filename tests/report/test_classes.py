"""The report by class: the confusion matrix, and its form for many classes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regard.data.fields import LabelField
from regard.report.classes import MOST_CLASSES, ClassReport, class_report


def report(gold: list[int], found: list[int], classes: int) -> ClassReport:
    names = np.arange(classes)
    flags = (np.array(each)[:, None] == names for each in (found, gold))
    return ClassReport(tuple("abcdefghijklmnop"[:classes]), *flags, several=False)


def test_a_row_is_a_true_class() -> None:
    one = report(gold=[0, 0, 0, 1], found=[0, 1, 1, 1], classes=2)
    assert one.confusion.tolist() == [[1, 2], [0, 1]]
    table, picture = one.confusion_table(), one.heatmap()
    assert table is not None
    assert picture is not None
    assert table.rows == [["a", 1, 2], ["b", 0, 1]]
    np.testing.assert_allclose(picture.heatmaps[0].values, [[1 / 3, 2 / 3], [0, 1]])
    assert [row[0] for row in one.table().rows] == ["a", "b", "(macro average)", "(micro average)"]


def test_of_many_classes_the_most_frequent_confusions_are_listed() -> None:
    classes = MOST_CLASSES + 1
    one = report(gold=[3, 3, 3, 5, 0, 1], found=[4, 4, 3, 0, 0, 1], classes=classes)
    table = one.confusion_table()
    assert table is not None
    assert table.rows == [["d", "e", 2, 3], ["f", "a", 1, 1]]


def test_the_surest_mistakes_come_first() -> None:
    names = np.arange(2)
    found, gold = ([1, 0, 1, 1], [0, 0, 0, 0])
    flags = (np.array(each)[:, None] == names for each in (found, gold))
    probabilities = np.array([[0.4, 0.6], [0.9, 0.1], [0.1, 0.9], [0.3, 0.7]])
    one = ClassReport(("a", "b"), *flags, several=False, probabilities=probabilities, texts=["p", "q", "r" * 300, "s"])
    table = one.mistakes()
    assert table is not None
    assert [row[1:] for row in table.rows] == [["a", "b", "90.0%"], ["a", "b", "70.0%"], ["a", "b", "60.0%"]]
    assert [row[0] for row in table.rows][1:] == ["s", "p"]
    assert table.rows[0][0] == "r" * 199 + "…"
    assert table.note.startswith("3 of 4 predictions are wrong")
    assert one.to_json()["mistakes"][1] == {"text": "s", "true": "a", "predicted": "b", "probability": 0.7}
    alone = replace(one, found=one.found[1:3], gold=one.gold[1:3], probabilities=probabilities[1:3], texts=["q", "r"])
    assert (table := alone.mistakes()) is not None
    assert table.note.startswith("1 of 2 predictions is wrong")


def test_probabilities_of_large_logits_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a model that is very sure: e to the power of such a logit is infinite."""
    logits, targets = np.array([[1000.0, 1001.0], [-900.0, 900.0]]), np.array([0, 1])
    monkeypatch.setattr("regard.report.classes.outputs", lambda *given: (logits, targets))
    config, task = SimpleNamespace(one_per_text=True, threshold=0.5), SimpleNamespace(head="class")
    fields = {"label": LabelField(("a", "b"))}
    model: Any = SimpleNamespace(fields=fields, module=SimpleNamespace(config=config), task=task)
    one = class_report(model, ["p", "q"])
    assert one is not None
    assert one.probabilities is not None
    np.testing.assert_allclose(one.probabilities, [[0.26894142, 0.73105858], [0.0, 1.0]], atol=1e-8)


def test_without_a_mistake_there_is_no_table_of_mistakes() -> None:
    right = report(gold=[0, 1], found=[0, 1], classes=2)
    assert replace(right, probabilities=np.eye(2), texts=["p", "q"]).mistakes() is None
    assert right.mistakes() is None
