"""ULMFiT's stages in one run: a language model of the texts, then the classifier. Each can be stopped and left out."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import load
from regard.config import format_value, override
from regard.data.batches import Batches
from regard.errors import UserError
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.stored import stored_recipe
from regard.training import run as run_module
from regard.training.estimate import estimate
from regard.training.events import Finished, Progress
from regard.training.folder import TUNED
from regard.training.optim import rate_at
from regard.training.prepare import prepare
from regard.training.run import Run
from regard.training.tuning import tuning_recipe
from regard.training.warm_start import warm_start_from, warm_started

TINY = ("plan.batch_tokens=64", "plan.threads=1", "plan.device=cpu", "plan.evaluate=4")
MODEL = ("model.width=8", "model.embed=8", "model.hidden=10", "model.layers=2")
LAST = "steps/000008/weights.safetensors"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a general text, labelled texts, and a run of the recipe ulmfit."""
    place = tmp_path_factory.mktemp("ulmfit")
    (place / "text.txt").write_text("the cat sat on the mat . a dog ran to the good house .\n" * 30)
    lines = [f"{('good', 'bad')[n % 2]}\tthe {('fine', 'poor')[n % 2]} cat sat on {n % 5}\n" for n in range(40)]
    (place / "labelled.tsv").write_text("".join(lines))
    settings = [f"data.train={place / 'text.txt'}", "data.window=8", "data.vocab=60", *TINY, *MODEL, "plan.steps=2"]
    list(Run(override(find_recipe("ulmfit"), settings, KINDS), place / "general"))
    return place


@pytest.fixture
def started(place: Path) -> Callable[..., tuple[Recipe, object]]:
    """The recipe of a classifier from the run, and its warm start."""

    def make(*settings: str, start: str = "general") -> tuple[Recipe, object]:
        stated = [f"data.train={place / 'labelled.tsv'}", f"data.valid={place / 'labelled.tsv'}", *TINY, *settings]
        path = place / start
        return warm_started(find_recipe("classify"), stated, warm_start_from(path), path)

    return make


def test_a_run_brings_its_settings_to_a_classifier_which_may_change_each(started) -> None:
    recipe, given = started("plan.unfreeze=0")
    plan, head = recipe.plan, recipe.head
    assert (plan.tune_lm, plan.epochs, plan.schedule, plan.unfreeze) == (10, 10, "triangular", 0)
    assert plan.layer_decay == pytest.approx(1 / 2.6, abs=1e-4)
    assert (head.pool, head.hidden, head.inner, head.bias) == ("concat", "relu", 50, True)
    assert plan.betas == (0.7, 0.99)
    assert "plan.unfreeze=epoch" not in given.finetune
    recipe, _ = started("plan.steps=8")
    assert (recipe.plan.steps, recipe.plan.epochs) == (8, None)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("foo", "plan.finetune=foo: give settings of a classifier, such as"),
        ("plan.rate", "plan.finetune=plan.rate: give settings"),
        ("plan.rats=1", "plan.finetune=plan.rats=1: rats=1: no such setting"),
        ("plan.rate=-1", "plan.finetune=plan.rate=-1: rate=-1.0: give a number above 0"),
    ],
)
def test_settings_for_a_classifier_are_checked_when_they_are_given(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(find_recipe("ulmfit"), [f"plan.finetune={setting}"], KINDS)


def test_a_setting_that_the_head_refuses_is_told_with_its_run(place: Path) -> None:
    given = warm_start_from(place / "general")._replace(finetune=("head.pool=nowhere",))
    with pytest.raises(UserError, match=r"^from=general: the plan.finetune of this run has head.pool=nowhere: "):
        warm_started(find_recipe("classify"), [f"data.train={place / 'labelled.tsv'}"], given, "general")


@pytest.mark.parametrize(("text", "warned"), [("the γάτα sat", True), ("the cat sat", False)])
def test_texts_in_unknown_characters_are_warned_of(place: Path, started, text: str, warned: bool) -> None:
    (place / "texts.tsv").write_text(f"good\t{text}\nbad\t{text} .\n" * 20, encoding="utf-8")
    recipe, given = started(f"data.train={place / 'texts.tsv'}")
    warnings = prepare(recipe, given=given).warnings
    assert any("% of the tokens of the training texts are not in the vocabulary" in one for one in warnings) == warned


def test_the_settings_for_a_classifier_can_be_stated_as_a_setting() -> None:
    recipe = find_recipe("ulmfit")
    stated = f"plan.finetune={format_value(recipe.plan.finetune)}"
    assert "plan.betas=0.7,0.99" in recipe.plan.finetune
    assert override(recipe, [stated], KINDS) == recipe


def test_another_task_of_language_takes_none_of_these_settings(place: Path) -> None:
    settings = [f"data.train={place / 'text.txt'}"]
    recipe, given = warm_started(find_recipe("text"), settings, warm_start_from(place / "general"), place / "general")
    assert given.finetune == ()
    assert recipe.plan == find_recipe("text").plan


def test_both_stages_are_those_of_two_runs(place: Path, started, tmp_path: Path) -> None:
    """The language model by data=texts, the classifier from=… it: the same weights as one run with plan.tune_lm."""
    recipe, given = started("plan.steps=8", "plan.tune_lm=1")
    run = Run(recipe, tmp_path / "one", init=given)
    list(run)
    lm = stored_recipe(tmp_path / "one" / TUNED)
    assert (lm.data.of, lm.plan.unfreeze, lm.plan.schedule) == (recipe.data, 0, "triangular")
    assert (lm.plan.layer_decay, lm.objective) == (recipe.plan.layer_decay, given.objective)
    list(Run(lm, tmp_path / "lm", init=warm_start_from(place / "general")))
    recipe, _ = started("plan.steps=8", "plan.tune_lm=0")
    list(Run(recipe, tmp_path / "two", init=warm_start_from(tmp_path / "lm")))
    assert (tmp_path / "one" / LAST).read_bytes() == (tmp_path / "two" / LAST).read_bytes()
    model = load(tmp_path / "one", "cpu").module
    assert model.head.hidden.in_features == 3 * 8


def stopped(run: Run, after: int) -> None:
    """Iterate over so many events, then stop as Ctrl-C does."""
    events = iter(run)
    for _ in range(after):
        next(events)
    events.close()


def test_a_run_that_is_stopped_in_either_stage_is_bit_equal(started, tmp_path: Path) -> None:
    recipe, given = started("plan.steps=8", "plan.tune_lm=1", "plan.log=1", "plan.unfreeze=2")
    whole = list(Run(recipe, tmp_path / "whole", init=given))
    for after in (1, 3, len(whole) - 4):
        out = tmp_path / f"cut-{after}"
        stopped(Run(recipe, out, init=given), after)
        list(Run(None, out, "resume"))
        for file in (LAST, f"{TUNED}/{LAST}".replace("000008", f"{max_step(out):06d}")):
            assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), (after, file)


def max_step(out: Path) -> int:
    return max(int(path.name) for path in (out / TUNED / "steps").glob("[0-9]*"))


def test_the_minutes_are_those_of_both_stages(started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves one second with every batch: each stage has 6 of the 12 seconds, and a whole triangle."""
    now, real = [0.0], Batches.batch

    def batch(*given: Any) -> Any:
        now[0] += 1.0
        return real(*given)

    monkeypatch.setattr(run_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Batches, "batch", batch)
    settings = ["plan.steps=100", "plan.tune_lm=100", "plan.minutes=0.2", "plan.log=1", "plan.cut=0.5"]
    recipe, given = started(*settings, "plan.unfreeze=0")
    events = list(Run(recipe, tmp_path / "run", init=given))
    assert [(one.step, one.reason, one.seconds) for one in events if isinstance(one, Finished)] == [
        (6, "minutes", 6.0),
        (6, "minutes", 12.0),
    ]
    rates = [event.rate for event in events if isinstance(event, Progress)]
    assert rates[:6] == pytest.approx(rates[6:])
    assert rates[0] == pytest.approx(recipe.plan.rate / recipe.plan.ratio)
    out = tmp_path / "cut"
    stopped(Run(recipe, out, init=given), events.index(events[-1]) - 5)
    state = Run(None, out, "resume").state
    assert (state.tuning, state.seconds, state.step > 0) == (6.0, 6.0 + state.step, True)


def test_an_estimate_has_both_stages(started) -> None:
    recipe, given = started("plan.steps=8", "plan.tune_lm=2", "plan.minutes=5")
    found, alone = (estimate(each, given) for each in (recipe, replace(recipe, plan=replace(recipe.plan, tune_lm=0.0))))
    assert (found.steps, found.parameters, alone.tuning_steps) == (8, alone.parameters, 0)
    first = prepare(tuning_recipe(recipe, given, KINDS), given=given)
    assert found.tuning_steps == first.recipe.plan.steps
    assert found.tuning_seconds > 0


def test_a_language_model_of_the_texts_needs_no_other_run(place: Path, tmp_path: Path) -> None:
    data = [f"data.train={place / 'labelled.tsv'}", f"data.valid={place / 'labelled.tsv'}"]
    recipe = change(find_recipe("classify"), [*data, "model=lstm", *MODEL, *TINY, "plan.steps=2"], KINDS)
    tuned = change(recipe, ["plan.tune_lm=1", "plan.layer_decay=0.5"], KINDS)
    list(Run(tuned, tmp_path / "tuned"))
    assert stored_recipe(tmp_path / "tuned" / TUNED).plan.layer_decay == 1  # new weights
    list(Run(recipe, tmp_path / "run"))
    first, second = (load(tmp_path / name / "steps/000000", "cpu").module for name in ("tuned", "run"))
    assert first.config == second.config
    weights = [(first.get_parameter(name), weight) for name, weight in second.named_parameters()]
    assert [torch.equal(*pair) for pair in weights].count(False) > 4
    with pytest.raises(UserError, match=r"plan\.tune_lm=1: model=kim is no language model"):
        Run(change(tuned, ["model=kim"], KINDS), tmp_path / "kim")


def test_a_leftover_of_the_first_stage_is_replaced_and_other_files_are_refused(started, tmp_path: Path) -> None:
    recipe, given = started("plan.steps=2", "plan.tune_lm=1")
    out = tmp_path / "run"
    list(Run(recipe, out, init=given))
    one_stage, start = started("plan.steps=2", "plan.tune_lm=0")
    (out / TUNED / "notes.txt").write_text("mine")
    list(Run(one_stage, out, "overwrite", init=start))
    assert [path.name for path in (out / TUNED).iterdir() if not path.name.startswith(".")] == ["notes.txt"]
    other = tmp_path / "other"
    (other / TUNED).mkdir(parents=True)  # alone, it is what a run leaves that is killed while it begins
    (other / TUNED / "notes.txt").write_text("mine")
    for folder, named in ((out, out / TUNED), (other, other)):
        with pytest.raises(UserError, match=rf"^{re.escape(str(named))}: holds other files and no run"):
            Run(recipe, folder, "overwrite", init=given)


def test_the_triangle_is_the_formula_of_the_paper() -> None:
    plan = override(
        find_recipe("classify"), ["plan.schedule=triangular", "plan.steps=200", "plan.rate=0.01"], KINDS
    ).plan
    cut = int(200 * 0.1)
    for t in range(200):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert rate_at(plan, t, 1) == pytest.approx(0.01 * (1 + p * (32 - 1)) / 32, rel=1e-12)
    for setting, message in (
        ("plan.cut=1", r"plan\.cut=1\.0: give a number between 0 and 1"),
        ("plan.ratio=0.5", r"plan\.ratio=0\.5: give 1 or more"),
        ("plan.unfreeze=epok", r"plan\.unfreeze=epok: expected"),
    ):
        with pytest.raises(UserError, match=message):
            override(find_recipe("classify"), [setting], KINDS)


def test_one_layer_an_epoch_is_unfrozen_from_the_last_on(started, tmp_path: Path) -> None:
    recipe, given = started("plan.epochs=3", "plan.tune_lm=0")
    run = Run(recipe, tmp_path / "run", init=given)
    epoch = len(run.prepared.batches)
    groups = run.trainer.optimizer.param_groups
    starts = {name: group["start"] for name, weight in run.model.named_parameters() for group in groups
              if any(weight is one for one in group["params"])}  # fmt: skip
    layers = ["body.embedding", "body.rnn.onward.0", "body.rnn.onward.1", "head"]
    found = [{start for name, start in starts.items() if name.startswith(f"{layer}.")} for layer in layers]
    assert found == [{3 * epoch}, {2 * epoch}, {epoch}, {0}]
    (warning,) = (one for one in run.prepared.warnings if one.startswith("plan.unfreeze"))
    after = f"plan.unfreeze: the next layer trains after every {epoch} steps; the run has {3 * epoch} steps"
    assert warning == f"{after}, so body.embedding would never train; raise plan.epochs, or set plan.unfreeze=0."
    recipe, given = started("plan.epochs=3.5", "plan.tune_lm=0")
    longer = Run(recipe, tmp_path / "longer", init=given).prepared
    assert not [one for one in longer.warnings if one.startswith("plan.unfreeze")]


def test_a_resumed_language_model_has_the_plan_that_the_command_changes(started, tmp_path: Path) -> None:
    recipe, given = started("plan.steps=8", "plan.tune_lm=2")
    first = Run(recipe, tmp_path / "run", init=given)
    events = iter(first)
    next(event for event in events if isinstance(event, Progress))
    events.close()
    changed = replace(recipe, plan=replace(recipe.plan, threads=2, keep=3, log=1))
    again = Run(changed, tmp_path / "run", "resume")
    tuned = again._tuning.recipe.plan
    assert (tuned.threads, tuned.keep, tuned.log) == (2, 3, 1)
    assert (tuned.patience, tuned.epochs) == (0, 2)
