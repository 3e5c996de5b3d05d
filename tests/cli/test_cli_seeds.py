"""`regard train --seeds`: several runs, their mean and standard deviation."""

import json
import shlex
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


def test_the_command_that_goes_on_with_several_seeds_has_all_settings_and_the_model_of_from(
    regard: Regard, opinions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ["plan.steps=2", "plan.evaluate=2", "model.width=8", "model.embed=8", "data.tokens=word", "data.vocab=40"]
    assert regard("train", "text", f"data.train={opinions[0].partition('=')[2]}", *text, "--out", "lm").code == 0
    command = ["train", "classify", opinions[0], "plan.steps=2", "plan.epochs=none", "plan.evaluate=2", "from=lm"]
    command += ["--seeds", "2"]
    assert regard(*command, "--out", "whole").code == 0
    with monkeypatch.context() as patch:
        patch.setattr("regard.report.run.conclude", raise_interrupt)
        said = regard(*command, "--out", "cut")  # the second run does not begin
    (again,) = [line.partition("continue with: ")[2] for line in said.out.splitlines() if "continue with" in line]
    resumed = regard("train", "classify", "--resume", "--seeds", "2", "--out", "cut")
    assert resumed.code == 2
    message = "cut/seed-2: has not begun, and --resume does not read the model of from=lm; repeat the command"
    assert message in resumed.err
    words = shlex.split(again)
    said = regard(*words[words.index("train") :])
    assert said.code == 0, said.err
    assert said.out.count("from=lm:") == 1
    weights = "seed-2/steps/000002/weights.safetensors"
    assert Path("whole", weights).read_bytes() == Path("cut", weights).read_bytes()


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_seeds_that_are_not_there_are_not_resumed(regard: Regard, opinions: list[str]) -> None:
    for more in ([], ["--dry-run"]):
        said = regard("train", "classify", "--resume", "--seeds", "2", "--out", "none", *more)
        assert (said.code, said.err) == (2, "error: none: holds no run to resume; leave out --resume to start one.\n")
    assert not Path("none").exists()


def test_a_seed_that_has_not_begun_is_started_beside_one_that_is_rescheduled(
    regard: Regard, opinions: list[str]
) -> None:
    assert regard("train", "classify", *opinions, "plan.schedule=linear", "--seeds", "2").code == 0
    rmtree("runs/classify/seed-2")
    longer = regard("train", "classify", "--resume", "--seeds", "2", "--reschedule", "plan.steps=4")
    assert longer.code == 0, longer.err
    assert sorted(path.name for path in Path("runs/classify").glob("seed-*/steps/000004")) == ["000004"] * 2
