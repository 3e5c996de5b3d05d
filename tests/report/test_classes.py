"""The report by class: the confusion matrix, and its form for many classes."""

import numpy as np

from regard.report.classes import MOST_CLASSES, ClassReport


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
