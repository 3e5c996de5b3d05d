"""A directory that has a run already: the same command again, other settings, another length."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.config import override
from regard.errors import UserError
from regard.file_io import load_tensors, read_json
from regard.recipes import KINDS, find_recipe
from regard.stored import stored, stored_recipe
from regard.training.events import Finished, Saved, Started
from regard.training.folder import lock_run
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started


def stop(run, step):
    """Train until this step is saved."""
    events = iter(run)
    assert any(isinstance(event, Saved) and event.step == step for event in events)
    events.close()


def same(one, other, step=8):
    ours, theirs = (load_tensors(run / f"steps/{step:06d}/weights.safetensors") for run in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


def test_auto_starts_resumes_and_has_nothing_to_do_at_the_end(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe(), tmp_path / "whole"))
    first = Run(recipe(), out, "auto")
    assert not first.resumed
    stop(first, 4)
    second = Run(recipe(), out, "auto")
    assert second.resumed
    assert next(event for event in second if isinstance(event, Started)).step == 4
    *_, finished = second
    assert isinstance(finished, Finished)
    assert same(out, tmp_path / "whole")
    started, _ = Run(recipe(), out, "auto")
    assert started.over == "steps"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("plan.rate=0.02", r"plan.rate=0.02: the run in .* was started with 0.01"),
        ("model.width=24", r"model.width=24: the run in .* was started with 16"),
        ("plan.seed=7", r"plan.seed=7: the run in .* was started with 1"),
        ("model=gnmt", r"model=gnmt: the run in .* was started with seq2seq"),
        ("plan.steps=9", r"plan.steps=9: the run in .* was started with 8; the learning rate depends on it"),
        ("data.source_tokens=word", r"data.source_tokens=word: the run in .* was started with char"),
    ],
)
def test_auto_refuses_the_run_of_other_settings(recipe, tmp_path, setting, message):
    out = tmp_path / "run"
    stop(Run(recipe(), out, "auto"), 4)
    before = (out / "recipe.json").read_bytes()
    with pytest.raises(UserError, match=message):
        Run(recipe(setting), out, "auto")
    assert (out / "recipe.json").read_bytes() == before


def test_auto_takes_a_setting_that_is_left_out_as_its_default_and_not_as_that_of_the_run(recipe, tmp_path):
    list(Run(recipe("model.width=24", "plan.steps=2"), tmp_path / "run", "auto"))
    with pytest.raises(UserError, match=r"model.width=16: the run in .* was started with 24"):
        Run(recipe("plan.steps=2"), tmp_path / "run", "auto")


def test_auto_may_change_what_changes_no_update(recipe, tmp_path):
    out = tmp_path / "run"
    stop(Run(recipe(), out, "auto"), 4)
    list(Run(recipe("plan.keep=5", "plan.log=1"), out, "auto"))
    assert stored_recipe(out).plan.keep == 5
    assert stored(out).asked.plan.keep == 2
    assert Run(recipe(), out, "auto").recipe.plan.keep == 5  # the command says what it said at the start


def test_auto_compares_what_was_asked_and_not_what_followed_from_the_data(recipe, tmp_path):
    """The steps of an epoch, and the metrics and batches of a small file, differ from what the command says."""
    settings = ("plan.epochs=3", "plan.evaluate=epoch")
    first = Run(recipe(*settings), tmp_path / "run", "auto")
    stop(first, first.recipe.plan.steps // 3)
    run = Run(recipe(*settings), tmp_path / "run", "auto")
    assert run.recipe.plan.steps != recipe(*settings).plan.steps
    list(run)
    with pytest.raises(UserError, match=r"plan.epochs=4.0: the run in .* was started with 3.0"):
        Run(recipe("plan.epochs=4", "plan.evaluate=epoch"), tmp_path / "run", "auto")


def test_auto_with_the_weights_of_another_run(tmp_path):
    """The same call starts from them, and later ignores them."""
    lines = [f"{('good', 'bad')[n % 2]}\tthe {('fine', 'poor')[n % 2]} cat sat on {n % 5}\n" for n in range(40)]
    (tmp_path / "labelled.tsv").write_text("".join(lines))
    (tmp_path / "text.txt").write_text("".join(line.partition("\t")[2] for line in lines))
    tiny = ["plan.steps=2", "plan.batch_tokens=128", "plan.device=cpu", "plan.threads=1"]
    book = ["model=bert", "model.width=16", "model.heads=2", "model.layers=1", "model.context=64", "data=lines"]
    book += ["objective.sentences=none"]
    text = [f"data.train={tmp_path / 'text.txt'}", "data.tokens=word", *book, *tiny]
    list(Run(override(find_recipe("pretrain"), text, KINDS), tmp_path / "lm"))
    settings = [f"data.train={tmp_path / 'labelled.tsv'}", "plan.epochs=2", *tiny[1:]]

    def run():
        start = warm_start_from(tmp_path / "lm")
        asked, start = warm_started(find_recipe("classify"), settings, start, tmp_path / "lm")
        return asked, Run(asked, tmp_path / "run", "auto", start)

    asked, first = run()
    assert first.recipe.plan != asked.plan  # smaller batches, and steps from epochs
    events = iter(first)
    assert any(isinstance(event, Saved) and event.step for event in events)
    events.close()
    _, second = run()
    assert (second.resumed, second.transfer) == (True, None)
    assert second.recipe.plan == first.recipe.plan
    list(second)
    with pytest.raises(UserError, match="a run that is resumed has weights already"):
        Run(asked, tmp_path / "run", "resume", warm_start_from(tmp_path / "lm"))


def test_auto_does_not_replace_a_run_that_another_process_began_meanwhile(recipe, tmp_path):
    late = Run(recipe(), tmp_path / "run", "auto")
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    with pytest.raises(UserError, match="holds a run"):
        list(late)
    assert stored_recipe(tmp_path / "run").plan.steps == 2


def test_auto_refuses_a_run_that_is_trained_and_a_folder_of_other_files(recipe, tmp_path):
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    with lock_run(tmp_path / "run"), pytest.raises(UserError, match="is trained by another process"):
        Run(recipe("plan.steps=2"), tmp_path / "run", "auto")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    with pytest.raises(UserError, match="holds other files and no run"):
        Run(recipe(), tmp_path / "mine", "auto")


# -- another length ----------------------------------------------------------------------------------------------------


def rates(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["rate"] for line in lines if line["kind"] == "train"}


def test_a_rescheduled_run_has_the_rates_of_the_new_length_from_there_on(recipe, tmp_path):
    linear = ("plan.schedule=linear", "plan.log=1")
    list(Run(recipe(*linear), tmp_path / "short"))
    list(Run(recipe(*linear, "plan.steps=16"), tmp_path / "long"))
    stop(Run(recipe(*linear), tmp_path / "run"), 4)
    longer = recipe(*linear, "plan.steps=16")
    with pytest.raises(UserError, match=r"plan.steps=16: .*the learning rate depends on it; add --reschedule"):
        Run(longer, tmp_path / "run", "resume")
    run = Run(longer, tmp_path / "run", "resume", reschedule=True)
    started = next(iter(run))
    (warning,) = [line for line in started.warnings if line.startswith("plan.steps=16")]
    assert "the learning rate of the next step is 85.7% of plan.rate, and would have been 66.7%" in warning
    list(run)
    short, long, found = (rates(tmp_path / name) for name in ("short", "long", "run"))
    assert {step: short[step] for step in range(1, 5)} == {step: found[step] for step in range(1, 5)}
    assert {step: long[step] for step in range(5, 17)} == {step: found[step] for step in range(5, 17)}
    assert short[5] != long[5]
    assert stored_recipe(tmp_path / "run").plan.steps == 16
    assert next(iter(Run(None, tmp_path / "run", "resume"))).warnings == ()  # it is said once


def test_a_run_is_not_rescheduled_to_fewer_steps_than_it_has_made_nor_before_it_began(recipe, tmp_path):
    stop(Run(recipe("plan.schedule=cosine"), tmp_path / "run"), 4)
    with pytest.raises(UserError, match=r"plan.steps=3: the run has made 4 steps already; give 4 or more"):
        Run(recipe("plan.schedule=cosine", "plan.steps=3"), tmp_path / "run", "resume", reschedule=True)
    with pytest.raises(UserError, match=r"--reschedule \(in Python: reschedule\) is for a run that is resumed"):
        Run(recipe(), tmp_path / "new", reschedule=True)
    with pytest.raises(UserError, match=r"plan.rate=0.5: the run in"):
        Run(recipe("plan.schedule=cosine", "plan.rate=0.5"), tmp_path / "run", "resume", reschedule=True)


def test_epochs_are_rescheduled(recipe, tmp_path):
    settings = ("plan.schedule=cosine", "plan.evaluate=epoch")
    run = Run(recipe(*settings, "plan.epochs=2"), tmp_path / "run")
    stop(run, run.recipe.plan.steps // 2)
    longer = Run(recipe(*settings, "plan.epochs=4"), tmp_path / "run", "resume", reschedule=True)
    assert longer.recipe.plan.steps == 2 * run.recipe.plan.steps
    *_, finished = longer
    assert finished.step == longer.recipe.plan.steps


def test_files_of_a_run_say_which_version_wrote_them(recipe, tmp_path):
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    for place in ("recipe.json", "steps/000002/manifest.json"):
        assert read_json(tmp_path / "run" / place)["version"] == regard.__version__
    content = read_json(tmp_path / "run/recipe.json") | {"version": "99.0"}
    Path(tmp_path / "run/recipe.json").write_text(json.dumps(content))
    assert replace(stored_recipe(tmp_path / "run")).name == "tiny"  # any version may have written a format
