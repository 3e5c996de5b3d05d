"""`regard train --seeds`: several runs, their mean and standard deviation."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

Regard = Callable[..., "Said"]  # noqa: F821


@pytest.fixture
def opinions(tmp_path: Path) -> list[str]:
    words = {"good": ("fine", "great", "lovely"), "bad": ("poor", "awful", "dull")}
    lines = [f"{label}\t{word} film number {n}\n" for n in range(12) for label in words for word in words[label]]
    file = tmp_path / "opinions.tsv"
    file.write_text("".join(lines))
    return [f"data.train={file}", "model.width=8", "model.embed=8", "plan.steps=2", "plan.evaluate=2", "plan.warmup=0"]


def test_the_number_of_seeds_has_a_limit(regard: Regard, opinions: list[str]) -> None:
    said = regard("train", "classify", *opinions, "--seeds", 10**12)
    assert (said.code, "1000" in said.err) == (2, True)


def test_another_metric_is_refused_when_a_run_is_resumed(regard: Regard, opinions: list[str]) -> None:
    assert regard("train", "classify", *opinions).code == 0
    said = regard("train", "classify", "--resume", "metrics=acc")
    assert said.code == 2
    assert "metrics=acc: the run in runs/classify was started with accuracy" in said.err


def test_the_mean_and_the_deviation_of_seeds(regard: Regard, opinions: list[str]) -> None:
    said = regard("train", "classify", *opinions, "--seeds", "2", "--json")
    assert said.code == 0
    found = json.loads(said.out)
    runs = [found, *found["others"]]
    assert [one["name"] for one in runs] == ["seed 1", "seed 2"]
    losses = [one["scores"]["loss"] for one in runs]
    assert losses[0] != losses[1]
    assert found["seeds"] == 2
    assert found["mean"]["loss"] == pytest.approx(statistics.mean(losses))
    assert found["sd"]["loss"] == pytest.approx(statistics.stdev(losses), rel=1e-4)
    page = Path("runs/classify/report.html").read_text(encoding="utf-8")
    assert "mean ± sd" in page
    message = "runs/classify: a folder of several runs; name one of them, such as runs/classify/seed-1."
    assert regard("eval", "runs/classify").err == f"error: {message}\n"
    rmtree("runs/classify/seed-2")  # as if the second run had not begun
    again = regard("train", "classify", "--resume", "--seeds", "2")
    assert again.code == 0
    assert "finished at step 2" in again.out
    shown = " ".join(again.out.split())
    assert f"{statistics.mean(losses):.4g} ± {statistics.stdev(losses):.1g}" in shown


def test_seeds_need_a_folder_of_their_own(regard: Regard, opinions: list[str]) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    said = regard("train", "classify", *opinions, "--seeds", "2", "--out", "mine")
    assert said.code == 2
    assert "mine: has notes.txt, which is not of runs with --seeds; choose another --out" in said.err
    assert sorted(path.name for path in Path("mine").iterdir()) == ["notes.txt"]
    Path("mine/notes.txt").rename("mine/.report.html.0.half")  # a killed process left it
    assert regard("train", "classify", *opinions, "--seeds", "2", "--out", "mine").code == 0


def test_seeds_and_a_baseline_are_refused(regard: Regard, tiny: list[str]) -> None:
    said = regard("train", "translate", *tiny, "--seeds", "2", "--baseline")
    assert said.code == 2
    assert "regard ladder compares models with seeds" in said.err
