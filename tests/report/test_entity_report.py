"""The report by type of entity."""

from regard.entities import EntityScores
from regard.report.entities import EntityReport, Mistake


def test_each_type_has_a_row_and_all_of_them_the_last() -> None:
    scores = {
        "": EntityScores(0.5, 0.25, 1 / 3, 8),
        "LOC": EntityScores(1.0, 0.5, 2 / 3, 4),
        "PER": EntityScores(0, 0, 0, 4),
    }
    one = EntityReport(scores, (Mistake(3, 0.9, "LOC Ada", "PER Ada", "… Ada wrote"),))
    by_type, wrong = one.tables()
    assert by_type.rows == [
        ["LOC", "100.00%", "50.00%", "66.67%", 4],
        ["PER", "0.00%", "0.00%", "0.00%", 4],
        ["(all)", "50.00%", "25.00%", "33.33%", 8],
    ]
    assert wrong.rows == [["0.900", "LOC Ada", "PER Ada", "… Ada wrote"]]
    assert len(EntityReport(scores, ()).tables()) == 1
