"""Showing recipes, and explaining gradients."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.cli.show import HEADINGS, bars, changed
from regard.data.dates import Dates
from regard.data.example import Corpus, Pair
from regard.explain import gradients
from regard.explain.gradients import SYMBOLS, GradientsOptions, RecurrentRecall, gradient_norms, sample_batch
from regard.recipes import KINDS, RECIPES, change, find_recipe, find_task
from regard.training.optim import rate_at

Regard = Callable[..., "Said"]  # noqa: F821


def test_every_recipe_is_listed_under_its_task(regard: Regard) -> None:
    said = regard("show")
    assert {find_task(make(), KINDS).verb for make in RECIPES.values()} == set(HEADINGS)
    assert all(name in said.out for name in RECIPES)
    assert said.out.index("Translate:") < said.out.index("dates") < said.out.index("Classify:")
    assert json.loads(regard("show", "--json").out)["dates"]["task"] == "translate"


def test_the_examples_of_train_have_a_recipe_of_each_verb(regard: Regard) -> None:
    examples = regard("train", "--help").out.partition("Examples:")[2]
    named = {word for line in examples.splitlines() for word in line.split()[2:3] if word in RECIPES}
    verbs = {find_task(find_recipe(name), KINDS).verb for name in named}
    assert set(HEADINGS) - verbs == {"eval"}  # sequences of numbers


def test_a_recipe_shows_every_setting_with_its_changes(regard: Regard) -> None:
    said = regard("show", "dates", "plan.steps=77")
    for expected in ("plan.steps", "77", "updates of the weights", "model.score", "data.first_year"):
        assert expected in said.out
    assert "data=dates: " in said.out
    assert "\nplan: " in said.out  # there is one kind of plan
    assert json.loads(regard("show", "dates", "plan.steps=77", "--json").out)["plan.steps"] == 77


def test_a_run_shows_its_step_scores_and_changes(regard: Regard, trained: Path, pairs: Path) -> None:
    said = regard("show", trained)
    assert said.code == 0, said.err
    run, differ, _ = said.out.split("\n\n", 2)
    rows = [" ".join(line.split()) for line in (*run.splitlines(), *differ.splitlines())]
    assert rows[0] == f"{trained}: a run of translate; scores of valid"
    assert rows[1] == "step 6 of 6"
    assert any(row.startswith("loss ") for row in rows)
    assert f"model.width 16 {find_recipe('translate').model.width}" in rows
    assert "objective" not in differ
    found = json.loads(regard("show", trained, "--json").out)
    assert (found["step"], found["best_step"]) == (6, int((trained / "best").read_text()))
    assert found["scores"]["loss"] > 0
    assert found["changed"]["plan.steps"]["value"] == found["settings"]["plan.steps"] == 6
    assert found["settings"]["data.train"] == str(pairs)
    refused = regard("show", trained, "plan.steps=9")
    assert refused.code == 2
    assert "plan.steps=9: the settings of the run" in refused.err
    assert "this directory has no run; name a run" in regard("show", trained / "steps").err


def test_a_part_of_another_kind_is_compared_with_its_defaults() -> None:
    recipe = change(find_recipe("text"), ["model=lstm", "model.width=64", "plan.epochs=2"], KINDS)
    found = {name: (each["value"], each["recipe"]) for name, each in changed(recipe).items()}
    assert found == {
        "model": ("lstm", "lstmn"),
        "model.width": (64, type(recipe.model).width),
        "plan.epochs": (2.0, None),
    }


def test_choices_are_listed_where_only_some_words_may_stand(regard: Regard) -> None:
    said = " ".join(regard("show", "dates").out.split())
    for choices in (
        "char, word, bpe, byte-bpe",
        "adam, adamw, sgd",
        "auto, float32, bf16",
        "linear, cosine",
        "sigmoid",
    ):
        assert choices in said


def test_the_schedule_is_drawn(regard: Regard) -> None:
    said = regard("show", "dates", "plan.schedule=constant", "--schedule")
    assert "constant" in said.out
    assert "█" in said.out
    assert bars([0.0, 0.5, 1.0], height=2) == ["  █", " ██"]


@pytest.mark.parametrize(
    "settings",
    [
        ["plan.schedule=linear", "plan.warmup=3280", "plan.steps=10000"],
        ["plan.schedule=noam", "plan.warmup=3280", "plan.steps=10000", "plan.rate=1"],
        ["plan.schedule=cosine", "plan.warmup=500", "plan.steps=40"],  # it ends within its warm-up
        ["plan.schedule=constant", "plan.warmup=0", "plan.steps=1"],
    ],
)
def test_the_highest_rate_is_that_of_all_steps(regard: Regard, settings: list[str]) -> None:
    recipe = change(find_recipe("dates"), settings, KINDS)
    plan = recipe.plan
    highest = max(rate_at(plan, step, recipe.model.width) for step in range(plan.steps))
    said = regard("show", "dates", *settings, "--schedule")
    first, *drawn, last = said.out.splitlines()
    assert first == f"rate by step: {plan.schedule} after {plan.warmup} steps of warm-up, highest {highest:.3g}"
    assert (len(drawn), last.split()) == (10, ["0", str(plan.steps)])
    assert len(last) == max(map(len, drawn)) or plan.schedule != "constant"


def test_every_accepted_target_is_an_example(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [Pair("ab", "x", others=("y", "z")), *(Pair(f"source {n}", "t") for n in range(9))]
    monkeypatch.setattr(Dates, "load", lambda self: Corpus(train=pairs, valid=pairs[:2], test=[]))
    title, columns, *rows = regard("show", "dates", "--example").out.splitlines()
    assert title.strip() == "dates: 10 train, 2 valid, 0 test"
    assert columns.split() == ["source", "target"]
    assert [" ".join(row.split()) for row in rows[:5]] == [
        "ab x / y / z", "source 0 t", "source 1 t", "source 2 t", "source 3 t"
    ]  # fmt: skip


def test_examples_are_shown(regard: Regard, pairs: Path) -> None:
    said = regard("show", "translate", f"data.train={pairs}", "--example")
    assert "187 train, 13 valid" in said.out
    first = pairs.read_text(encoding="utf-8").splitlines()[0].split("\t")[0]
    assert first in said.out


def test_gradients_reach_every_input_through_attention() -> None:
    length = 40
    inputs, targets = sample_batch(length, 16, torch.Generator().manual_seed(0))
    assert inputs.shape == (16, length, SYMBOLS + 1)
    marked = inputs[..., -1].argmax(dim=1)
    assert (inputs[range(16), marked, :SYMBOLS].argmax(dim=1) == targets[:, 0]).all()
    torch.manual_seed(0)
    plain, attentive = (
        gradient_norms(RecurrentRecall("lstm", attention), length, seed=1) for attention in (False, True)
    )
    assert plain[0] > 0
    assert attentive[-1] > 100 * plain[-1]


def test_explain_gradients_writes_table_and_page(regard: Regard) -> None:
    said = regard("explain", "gradients", "length=12", "steps=2", "-o", "out/g.html")
    assert said.code == 0
    assert "LSTM + attention" in said.out
    page = Path("out/g.html").read_text(encoding="utf-8")
    assert "After training" in page
    found = json.loads(regard("explain", "gradients", "length=8", "steps=0", "--json").out)
    assert found["page"] is None
    assert [path.name for path in Path.cwd().glob("*.html")] == []  # a page only where one was asked for
    assert [one["name"] for one in found["networks"]] == ["RNN", "LSTM", "LSTM + attention", "Transformer", "TCN"]
    assert all(len(one["before"]) == len(one["after"]) == 8 for one in found["networks"])


def test_explain_respects_every_seed(regard: Regard) -> None:
    def networks(*seed: object) -> object:
        said = regard("explain", "gradients", "length=6", "steps=0", "--json", *seed)
        return json.loads(said.out)["networks"]

    assert networks() == networks("seed=1")
    assert networks("seed=0") == networks("seed=0")
    assert networks("seed=0") != networks("seed=1")


def test_the_seed_decides_what_is_learnt_from() -> None:
    trained = [gradients.run(GradientsOptions(seed, 6, 2)).data for seed in (0, 0, 3)]
    assert trained[0] == trained[1]
    assert trained[0]["networks"] != trained[2]["networks"]


@pytest.mark.parametrize("length", [1, "x"])
def test_explain_refuses_nonsense(regard: Regard, length: object) -> None:
    assert regard("explain", "gradients", f"length={length}").code == 2


def test_a_log_with_damaged_lines_is_read(regard: Regard, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    whole = json.loads(regard("show", run, "--json").out)
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(b'5\n{"step": 9}\n{"kind": "val\n\xff\n')
    assert json.loads(regard("show", run, "--json").out) == whole


@pytest.mark.parametrize("value", ['{"a": 1}', '"low"', "[1, 2]", "1e999"])
def test_a_score_that_is_no_number_is_not_shown(regard: Regard, trained: Path, tmp_path: Path, value: str) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    for kind in ("valid", "train"):
        log = f'{{"kind": "{kind}", "step": 9, "seconds": 1, "loss": {value}}}\n'
        (run / "metrics.jsonl").write_text(log)
        assert regard("show", run).code == 0
        assert json.loads(regard("show", run, "--json").out)["scores"] == {}


def test_options_that_would_be_ignored_are_refused(regard: Regard) -> None:
    assert "--schedule and --json: " in regard("show", "dates", "--schedule", "--json").err
    for options in (["--schedule"], ["--example"], ["--out", "page.html"]):
        assert "are for one recipe; name it" in regard("show", *options).err
