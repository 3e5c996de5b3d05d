"""Time to quality: what a log says of it."""

import json
from pathlib import Path

import pytest

from regard.training.ladder.quality import Goal, Point, averaged, curve, evaluations, goal, read_log, weakest

# Half a second a step. Judging after step 4 takes ten seconds, and after step 8 five.
LOG = [
    {"kind": "train", "step": 4, "seconds": 2.0},
    {"kind": "valid", "step": 4, "bleu": 10.0, "seconds": 12.0, "training": 2.0},
    {"kind": "train", "step": 8, "seconds": 14.0},
    {"kind": "valid", "step": 8, "bleu": 30.0, "seconds": 19.0, "training": 4.0},
]


def test_judging_is_no_training() -> None:
    assert evaluations(LOG) == LOG[1::2]
    assert curve(LOG, "bleu") == [Point(4, 2.0, 10.0), Point(8, 4.0, 30.0)]
    assert curve(LOG, "aer") == []


def test_the_first_evaluation_that_is_good_enough_counts() -> None:
    points = [Point(1, 10.0, 0.5), Point(2, 20.0, 0.9), Point(3, 30.0, 0.8)]
    assert Goal("exact", 0.8).reached(points) == 20.0
    assert Goal("exact", 0.95).reached(points) is None
    assert Goal("loss", 0.5).reached(points) == 10.0  # less is better
    assert Goal("loss", 0.4).reached(points) is None


def test_the_goal_is_near_the_best_rung() -> None:
    weak = [[Point(1, 1.0, 10.0)], [Point(1, 1.0, 20.0)]]
    strong = [[Point(1, 1.0, 40.0), Point(2, 2.0, 30.0)], [Point(1, 1.0, 20.0)]]
    best = goal("bleu", [weak, strong])
    assert best is not None
    assert best.value == pytest.approx(0.95 * 30)  # the mean of each seed's best
    lowest = goal("loss", [weak, strong])
    assert lowest is not None
    assert lowest.value == pytest.approx(15 / 0.95)
    without = goal("aer", [[[]], [[Point(1, 1.0, 0.19)]]])  # the first rung has no attention to judge
    assert without is not None
    assert without.value == pytest.approx(0.2)
    assert goal("aer", [[[]]]) is None
    assert goal("bleu", [[[Point(1, 1.0, 0.0)]]]) is None  # 95 % of nothing


def test_the_weakest_of_several_rungs() -> None:
    weak = [[Point(1, 1.0, 10.0), Point(2, 2.0, 8.0)], [Point(1, 1.0, 20.0)]]
    strong = [[Point(1, 1.0, 40.0)]]
    assert weakest("bleu", [strong, weak]) == Goal("bleu", 15.0)  # the mean of each seed's best
    assert weakest("loss", [strong, weak]) == Goal("loss", 40.0)
    assert weakest("bleu", [strong]) is None
    assert weakest("bleu", [strong, [[]]]) is None
    assert weakest("bleu", [strong, [[Point(1, 1.0, 0.0)]]]) is None  # all reach nothing


def test_the_mean_of_several_seeds() -> None:
    assert averaged([[Point(5, 1.0, 0.2)], [Point(5, 3.0, 0.6)]]) == [Point(5, 2.0, 0.4)]


def test_a_log_with_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LOG) + '{"kind": "tr')
    assert read_log(tmp_path) == LOG
    assert read_log(tmp_path / "not yet") == []


@pytest.mark.parametrize("value", ["{}", "[1]", '"0.5"', "true", "NaN", "1e999", "1" * 400])
def test_a_value_of_a_log_that_is_no_number_is_skipped(tmp_path: Path, value: str) -> None:
    line = f'{{"kind": "valid", "step": 4, "loss": {value}, "bleu": 10.0, "aer": null, "training": 2, "notes": {{}}}}\n'
    (tmp_path / "metrics.jsonl").write_text(line)
    assert read_log(tmp_path) == [{"kind": "valid", "step": 4, "bleu": 10.0, "aer": None, "training": 2}]


@pytest.mark.parametrize(
    "line", ["7", '"text"', "[1]", "[" * 100_000, '{"kind": "valid"}', '{"kind": ["valid"], "step": 1}']
    + [f'{{"kind": "valid", "step": {step}}}' for step in ("-1", "1.5", "null", "{}", '"1"')],
)  # fmt: skip
def test_a_line_of_a_log_without_a_kind_and_a_step_is_skipped(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f"{one}\n" for one in (line, json.dumps(LOG[0]), line)))
    assert read_log(tmp_path) == LOG[:1]
