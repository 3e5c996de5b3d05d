"""Models of numbers from the command line, and the ladder of sequences."""

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regard import load
from regard.data.synthetic import Adding, CopyMemory
from regard.errors import UserError
from regard.recipes import KINDS, RECIPES, find_recipe, find_task, model_config
from regard.report.sequences import SequenceStanding, cell_line
from regard.training.chance import describe_chance
from regard.training.ladder.cells import parameters
from regard.training.ladder.sequences import (
    FAMILIES,
    NOTE,
    ROWS,
    TRIALS,
    Climbed,
    Row,
    _fitted,
    best_trial,
    jobs,
    select,
)

Regard = Callable[..., "Said"]  # noqa: F821

TINY = ["data.train=16", "data.valid=6", "data.test=4", "plan.steps=2", "plan.evaluate=2", "plan.batch_tokens=128"]
NET = ["model.width=8", "model.embed=8", "model.layers=2", "model.kernel=3"]
SHORT = {"adding": "data.length=10", "copy": "data.delay=2", "clips": "data.frames=4"}


@pytest.mark.parametrize("recipe", SHORT)
def test_a_model_of_sequences_is_trained_and_evaluated(regard: Regard, recipe: str) -> None:
    net = NET if recipe != "clips" else ["model.width=8", "model.embed=8"]
    said = regard("train", recipe, SHORT[recipe], *TINY, *net, "--out", "run")
    assert said.code == 0, said.err
    assert "Chance: a model that" in said.out
    assert "regard doctor run" in said.out
    assert "echo" not in said.out  # there is no text to give it
    found = json.loads(regard("eval", "run", "--json").out)
    assert (found["examples"], found["truncated"]) == (4, 0)
    assert set(found["scores"]) == {"loss", *find_recipe(recipe).metrics}  # no perplexity: it predicts no tokens
    if recipe == "copy":
        return
    for verb in ("generate", "classify", "embed", "look"):
        refused = regard(verb, "run", "-")
        assert refused.code == 2, refused.out
        assert refused.err.count("\n") == 1
        assert "regard eval run" in refused.err


def test_a_clip_is_captioned_with_attention_over_its_frames(regard: Regard) -> None:
    net = ["model.width=8", "model.embed=8"]
    assert regard("train", "clip-captions", "data.frames=8", *TINY, *net, "--out", "run").code == 0
    scores = json.loads(regard("eval", "run", "--json").out)["scores"]
    assert {"exact", "pointing", "pointing_chance", "bleu4", "cider"} <= set(scores)
    said = regard("caption", "run", "run/example.png", "--target", "a cross moves up", "--json", "-o", "clip.html")
    found = json.loads(said.out)
    assert found["grid"] == [1, 8]
    assert [len(row) for row in found["weights"]] == [8] * 4
    assert Path("clip.html").is_file()
    longer = regard("train", "clip-captions", "data.frames=13", *TINY, *net, "--out", "longer")
    assert longer.code == 2
    assert "an image of 13 × 64 numbers: model.encoder=frames reads 12 × 64; set model.encoder and" in longer.err


def test_a_model_of_tokens_does_not_read_numbers(regard: Regard) -> None:
    said = regard("train", "clips", "model=kim", "--out", "run")
    assert said.code == 2
    assert said.err.startswith("error: model=kim: does not fit data=clips; use model=rnn or ")
    assert "structured" not in said.err


@pytest.fixture
def run(regard: Regard) -> Path:
    assert regard("train", "adding", "data.length=10", *TINY, *NET, "--out", "run").code == 0
    return Path("run")


def test_numbers_are_given_as_numbers(run: Path) -> None:
    model = load(run)
    assert model.logits(torch.rand(3, 5, 2)).shape == (3,)
    for wrong in (torch.rand(3, 5), torch.rand(3, 5, 3), torch.ones(3, 5, 2, dtype=torch.long)):
        with pytest.raises(UserError, match=r"reads numbers of shape \(rows, length, 2\)"):
            model.logits(wrong)


def test_a_transformer_cuts_sequences_that_are_too_long(regard: Regard) -> None:
    model = ["model=gpt", "model.width=8", "model.heads=2", "model.layers=1", "model.inner=8", "model.context=8"]
    assert regard("train", "clips", "data.frames=8", *TINY, *model, "--out", "run").code == 0
    recipe = json.loads(Path("run/recipe.json").read_text(encoding="utf-8"))
    recipe["data"]["frames"] = 12
    Path("run/recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    assert json.loads(regard("eval", "run", "--json").out)["truncated"] == 4


def test_chance_levels(run: Path) -> None:
    model = load(run)
    examples = Adding(train=1, valid=50, length=4).load().valid
    numbers = [one.number for one in examples]
    said = describe_chance(model, examples)
    assert f"answers {np.mean(numbers):.4g}, the mean, has mean squared error {np.var(numbers):.4g}." in said


def test_the_chance_of_tags_and_of_recalled_symbols(regard: Regard) -> None:
    said = regard("train", "copy", "data.delay=2", *TINY, *NET, "--out", "run")
    assert said.code == 0, said.err
    loss = 10 * math.log(8) / 22  # 10 of 22 places have one of 8 symbols
    words = " ".join(said.out.split())
    assert "always answers “0”, the most frequent class, has accuracy 54.5%" in words
    assert f"which places are blank and guesses the others has loss {loss:.4f}." in words


def test_the_chance_of_keys() -> None:
    keys = np.zeros((4, 88))
    keys[:2, 5] = 1  # half of the steps: ln 2
    model: Any = SimpleNamespace(
        fields={"values": None, "keys": None}, task=find_task(find_recipe("jsb"), KINDS), target_tokenizer=None
    )
    assert "has loss 0.693." in describe_chance(model, [SimpleNamespace(values=keys, keys=keys)])


# The ladder

COMMAND = ["ladder", "sequences", "copy", "data.delay=1", "plan.batch_tokens=168", *TINY[:-1], "--out", "lad"]


def test_a_ladder_of_sequences_resumes(regard: Regard) -> None:
    first = regard(*COMMAND, "tcn", "rnn", "--trials", 2)
    assert first.code == 0, first.err
    assert "2/2: copy, TCN: loss" in first.out
    assert "on 6 validation examples" in first.out
    assert "published, test" in first.out
    ladder = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))
    assert [(row["task"], row["model"]) for row in ladder["rows"]] == [("copy", "rnn"), ("copy", "tcn")]
    assert [row["published_test"] for row in ladder["rows"]] == [0.0202, 3.5e-5]
    for row in ladder["rows"]:
        assert row["part"] == "valid"
        assert list(row["trials"]) == [trial.name for trial in TRIALS[:2]]
        assert row["winner"] in row["trials"]
        (cell,) = row["cells"]
        assert abs(cell["parameters"] / 16_000 - 1) <= 0.05
        assert (cell["part"], cell["examples"], cell["steps"]) == ("valid", 6, 2)
        rate = find_recipe("copy").plan.rate * (3 if row["winner"] == "rate × 3" else 1)
        assert cell["recipe"]["plan"]["rate"] == pytest.approx(rate)
        assert row["mean"] == cell["scores"]["loss"]
    page = Path("lad/ladder.html").read_text(encoding="utf-8")
    assert "seconds of training" in page
    assert "Trials" in page
    Path("lad/cells/copy/tcn/trial-1.json").unlink()  # as if stopped before this trial was written down
    again = regard(*COMMAND, "tcn", "rnn", "--trials", 2, "--json")
    assert again.err.count("parameters on") == 1  # nothing else was run again
    means = [row["mean"] for row in ladder["rows"]]
    assert [row["mean"] for row in json.loads(again.out)["rows"]] == pytest.approx(means, rel=1e-5)


def test_the_best_trial_must_be_better_than_the_settings_as_given_by_more_than_chance() -> None:
    rows = {row.name: row for row in ROWS}
    for tried, best in (
        ({"as given": 0.1731, "rate × 3": 0.1724}, "as given"),
        ({"as given": 0.1731, "rate × 3": 0.1700}, "rate × 3"),
        ({"as given": 0.1731, "rate × 3": 0.1700, "deeper": 0.16}, "deeper"),
        ({"as given": None, "rate × 3": 0.2, "deeper": math.inf}, "rate × 3"),
        ({"as given": None}, None),
    ):
        assert best_trial(rows["adding"], tried) == best
    assert best_trial(rows["smnist"], {"as given": 0.9760, "rate × 3": 0.9762}) == "as given"  # of 240 errors two less
    assert best_trial(rows["smnist"], {"as given": 0.9760, "rate × 3": 0.9780}) == "rate × 3"


@pytest.mark.slow
def test_cells_run_side_by_side(regard: Regard) -> None:
    said = regard(*COMMAND, "tcn", "gru", "lstm", "--trials", 1, "--jobs", 2, "--seeds", 2)
    assert said.code == 0, said.err
    rows = json.loads(Path("lad/ladder.json").read_text(encoding="utf-8"))["rows"]
    assert [row["model"] for row in rows] == ["gru", "lstm", "tcn"]
    assert all(row["seeds"] == 2 and row["sd"] is not None and row["trials"] == {} for row in rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["coppy"], 'Did you mean "copy"?'),
        (["model.width=3"], "every family has its own"),
        (["plan.minutes=1"], "use --minutes and --seeds"),
        (["--beam", "2"], "--rungs, --beam and --quality"),
        (["copy", "data.frames=3"], "data.frames"),
    ],
)
def test_what_the_ladder_of_sequences_refuses(regard: Regard, words: list[str], told: str) -> None:
    said = regard("ladder", "sequences", *words)
    assert (said.code, said.err.count("\n"), told in said.err) == (2, 1, True), said.err
    assert not Path("runs").exists()


def test_the_limits_of_sequences_are_refused_elsewhere(regard: Regard) -> None:
    said = regard("ladder", "dates", "--minutes", 1)
    assert said.code == 2
    assert "--minutes, --jobs and --trials" in said.err


def test_every_task_and_model_can_be_named() -> None:
    rows, families = select([])
    assert families == list(FAMILIES)
    assert [row.name for row in rows] == [row.name for row in ROWS if row.name in RECIPES]
    rows, families = select(["lstm", "jsb", "adding", "rnn"])
    assert [row.name for row in rows] == ["adding", "jsb"]
    assert families == ["rnn", "lstm"]


SIZES: dict[str, dict[str, int]] = {  # of the fields of each task, as its data have them
    "adding": {"values": 2, "number": 1},
    "copy": {"text": 14, "tags": 9},
    **{name: {"values": 1, "label": 10} for name in ("smnist", "pmnist")},
    **{name: {"values": 88, "keys": 88} for name in ("jsb", "nottingham")},
    "ptb": {"text": 10_000},
    "ptb-char": {"text": 50},
}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_families_have_the_published_size(row: Row) -> None:
    recipe, sizes = find_recipe(row.name), SIZES[row.name]
    for family, models in row.models().items():
        for trial in (TRIALS[0], TRIALS[3]):
            task = find_task(recipe, KINDS)
            changed = _fitted(row, family, trial, recipe, task, sizes)
            config = model_config(changed, task, KINDS).with_sizes(sizes)
            assert abs(parameters(config) / row.parameters - 1) <= 0.05
            assert changed.model.layers == models[0].layers + trial.layers


def test_the_rows_are_those_of_the_paper() -> None:
    """Bai et al. 2018, table 1: the sizes and the figures of RNN, GRU, LSTM and TCN; relative attention for JSB."""
    assert {row.name: (row.parameters, *row.published.values()) for row in ROWS} == {
        "adding": (70_000, 0.177, 5.3e-5, 0.164, 5.8e-5),
        "copy": (16_000, 0.0202, 0.0197, 0.0204, 3.5e-5),
        "smnist": (70_000, 0.215, 0.962, 0.872, 0.990),
        "pmnist": (70_000, 0.253, 0.873, 0.857, 0.972),
        "jsb": (300_000, 8.91, 8.43, 8.45, 8.10),
        "nottingham": (1_000_000, 4.05, 3.46, 3.29, 3.07),
        "ptb": (13_000_000, 114.50, 92.48, 78.93, 88.68),
        "ptb-char": (3_000_000, 1.48, 1.37, 1.36, 1.31),
    }
    assert {row.name for row in ROWS if row.transformer.positions == "relative"} == {"jsb"}
    data = {row.name: find_recipe(row.name).data for row in ROWS}
    assert (data["adding"].length, data["copy"].delay) == (600, 1000)


def test_gates_start_with_a_memory_as_long_as_the_sequences() -> None:
    """Not in rows of music and text, whose next step depends on a few before it; an RNN has no gates."""
    steps = {"adding": 600, "copy": 1020, "smnist": 784, "pmnist": 784}
    for row in ROWS:
        models = row.models()
        assert [models[cell][0].chrono for cell in ("rnn", "gru", "lstm")] == [0, *[steps.get(row.name, 0)] * 2]


def test_the_minutes_are_shared_by_trials_and_runs(tmp_path: Path) -> None:
    recipe = replace(find_recipe("copy"), data=CopyMemory(train=4, valid=2, test=0, delay=1))
    (job,) = jobs({"copy": recipe}, ["copy", "rnn"], 2, 8.0, 4, tmp_path)
    assert {cell.recipe.plan.minutes for cell in job.trials.values()} == {0.5}  # a quarter of the time, for four
    assert {cell.recipe.plan.minutes for cells in job.cells.values() for cell in cells} == {6.0}
    assert [cell.seed for cell in job.cells["as given"]] == [1, 2]
    (alone,) = jobs({"copy": recipe}, ["copy", "rnn"], 1, 8.0, 1, tmp_path)
    assert (alone.trials, alone.cells["as given"][0].recipe.plan.minutes) == ({}, 8.0)


def test_a_family_that_diverged_is_shown() -> None:
    one = Climbed(ROWS[0], "rnn", {"as given": None}, "as given", [], diverged=1)
    assert cell_line(one) == "adding, RNN: training diverged"
    standing = SequenceStanding([one], 1.0, 4)
    assert standing.numbers["rows"][0]["mean"] is None
    assert standing.note == NOTE
    shorter = SequenceStanding([one], 1.0, 4, ["data.length=9", "plan.clip=1"])
    assert "data.length=9: the task is not the published one" in shorter.tables()[0].note
    assert shorter.numbers["settings"] == ["data.length=9", "plan.clip=1"]
    assert standing.sections()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_the_ladder_outlives_it(tmp_path: Path, number: signal.Signals) -> None:
    """The first ends by its handler, the second without one; the processes that it started end in both cases."""
    words = ["ladder", "sequences", "adding", "rnn", "gru", "lstm", "data.length=20", "--trials", "1", "--jobs", "2"]
    command = [sys.executable, "-m", "regard", *words, "--minutes", "60", "--out", str(tmp_path / "out")]
    ladder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    children = Path(f"/proc/{ladder.pid}/task/{ladder.pid}/children")
    wait_until(lambda: len(list(tmp_path.glob("out/cells/adding/*/seed-1/metrics.jsonl"))) == 2)
    started = [int(child) for child in children.read_text(encoding="ascii").split()]
    assert len(started) >= 2
    ladder.send_signal(number)
    said, _ = ladder.communicate(timeout=600)
    assert ladder.returncode == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    assert number == signal.SIGKILL or "keeps what was done" in said
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in started))


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not reached():
        assert time.monotonic() < deadline, "not reached in ten minutes"
        time.sleep(0.1)
