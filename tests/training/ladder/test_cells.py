"""Cells of a ladder: begun again where a kill left nothing to go on from, refused where their times are not known."""

import json
import sys

import numpy as np
import pytest

from regard import load, look
from regard.data.example import Pair
from regard.errors import UserError
from regard.recipes import Recipe
from regard.training.events import Finished
from regard.training.ladder.cells import Cell, measure
from regard.training.ladder.pictured import LONGEST, pictured
from regard.training.ladder.quality import evaluations, read_log
from regard.training.run import Run


def _to_its_end(run: Run) -> Finished:
    *_, finished = run
    assert isinstance(finished, Finished)
    return finished


@pytest.fixture
def cell(recipe, tmp_path) -> Cell:
    made: Recipe = recipe("plan.steps=4", "plan.evaluate=2")
    return Cell("additive", 1, made, tmp_path / "cells/additive/seed-1")


def test_training_is_timed_apart_from_judging(cell: Cell) -> None:
    found = measure(cell, _to_its_end)
    lines = evaluations(read_log(cell.out))
    assert [(point["step"], point["seconds"]) for point in found["curve"]] == [
        (one["step"], one["training"]) for one in lines
    ]
    assert found["training_seconds"] == lines[-1]["training"] < found["seconds"]
    seen = found["attention"]  # of the best step, over an example that the page of the ladder shows
    view = look(load(cell.out), seen["source"], seen["target"])
    assert (seen["rows"], seen["columns"]) == (list(view.rows), list(view.columns))
    assert len(seen["rows"]) > len(seen["target"].split())  # with the end of the target
    np.testing.assert_allclose(seen["weights"], view.matrix().weights, atol=6e-5)
    texts = [("", "1"), ("1", " "), ("12" * LONGEST, "1"), ("123", "1"), ("12", "1")]
    chosen = pictured(load(cell.out), [Pair(*one) for one in texts])
    assert chosen is not None
    assert chosen["source"] == "123"  # the first short one that has both
    assert pictured(load(cell.out), []) is None
    assert pictured(load(cell.out), [Pair("a" * 900, "b")]) is None  # longer than the model reads
    assert measure(cell, lambda run: pytest.fail("it is finished")) == found


def test_a_cell_that_was_killed_before_it_had_its_recipe_begins_again(cell: Cell, monkeypatch) -> None:
    def kill(*_given):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["regard.training.folder"], "write_json", kill)
        with pytest.raises(SystemExit):
            measure(cell, _to_its_end)
    assert (cell.out / "latest").exists()
    assert measure(cell, _to_its_end)["step"] > 0


def test_a_cell_whose_judging_was_not_timed_is_refused(cell: Cell) -> None:
    measure(cell, _to_its_end)
    cell.result.unlink()
    lines = [{name: value for name, value in line.items() if name != "training"} for line in read_log(cell.out)]
    (cell.out / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(UserError, match="seed-1: its log has no time of training; remove it"):
        measure(cell, _to_its_end)
    (cell.out / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="seed-1: its log has no time of training; remove it"):
        measure(cell, _to_its_end)
