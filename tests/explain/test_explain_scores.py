"""The scores, their names, and the weights that they compute."""

import pytest

from regard.explain import scores
from regard.explain.options import ScoresOptions
from regard.report.sections import Table
from regard.scores import OTHER_NAMES, SCORES


def test_every_score_stands_beside_its_other_names() -> None:
    result = scores.run(ScoresOptions())
    names, weights = (section for section in result.sections if isinstance(section, Table))
    rows = {row[0]: str(row[1]).split(", ") for row in names.rows}
    assert list(rows) == list(SCORES) == list(scores.FORMULAS)
    assert all(other in rows[ours] for other, ours in OTHER_NAMES.items())
    assert "concat" in rows["additive"]
    assert "multiplicative" in rows["general"]
    assert "content-based" in rows["cosine"]
    for name, *cells, longer in weights.rows:
        assert sum(float(cell) for cell in cells) == pytest.approx(1.0, abs=0.01)
        assert (cells[-1] == longer) == (name in ("cosine", "location"))
