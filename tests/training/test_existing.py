"""A directory that has a run already: the same command again, other settings, another length."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.config import override
from regard.errors import UserError
from regard.file_io import load_tensors, read_json
from regard.recipes import KINDS, find_recipe
from regard.stored import asked_recipe, stored_recipe
from regard.training.events import Finished, Saved, Started
from regard.training.folder import lock_run
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs import load


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


def test_auto_compares_the_settings_of_the_first_weights_and_resume_keeps_those_of_the_run(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"the cat {n} sat on the mat\n" for n in range(30)))
    settings = [f"data.train={tmp_path / 'text.txt'}", "model=gru", "model.width=8", "model.embed=8", "plan.steps=2"]
    settings += ["plan.device=cpu", "data.tokens=word", "data.vocab=20"]

    def text(chrono):
        return override(find_recipe("text"), [*settings, f"model.chrono={chrono}"], KINDS)

    list(Run(text(5), tmp_path / "run", "auto"))
    with pytest.raises(UserError, match=r"model.chrono=9: the run in .* was started with 5"):
        Run(text(9), tmp_path / "run", "auto")
    assert Run(text(9), tmp_path / "run", "resume").recipe.model.chrono == 5


def test_a_repeated_command_deletes_the_old_steps_that_a_killed_process_has_left(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe(), out))
    shutil.copytree(out / "steps/000004", out / "steps/000002")
    (out / "steps/.000002.0.half").mkdir()
    list(Run(recipe(), out, "auto"))
    assert sorted(path.name for path in (out / "steps").iterdir()) == ["000004", "000008"]


def test_auto_takes_a_setting_that_is_left_out_as_its_default_and_not_as_that_of_the_run(recipe, tmp_path):
    list(Run(recipe("model.width=24", "plan.steps=2"), tmp_path / "run", "auto"))
    with pytest.raises(UserError, match=r"model.width=16: the run in .* was started with 24"):
        Run(recipe("plan.steps=2"), tmp_path / "run", "auto")


def test_under_auto_the_command_says_what_changes_no_update(recipe, tmp_path):
    """A setting that is left out means its default, also if the run had another value meanwhile."""
    out = tmp_path / "run"
    stop(Run(recipe(), out, "auto"), 4)
    stop(Run(recipe("plan.keep=5", "plan.minutes=9"), out, "auto"), 8)
    assert (stored_recipe(out).plan.keep, stored_recipe(out).plan.minutes) == (5, 9.0)
    run = Run(recipe(), out, "auto")
    assert (run.recipe.plan.keep, run.recipe.plan.minutes) == (2, None)
    list(Run(recipe("plan.keep=3"), out, "resume"))
    assert asked_recipe(out).plan.keep == 5  # of the last command, not of a resume
    assert Run(recipe(), out, "auto").recipe.plan.keep == 2


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


def test_auto_compares_the_model_that_the_run_started_from(recipe, tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        list(Run(recipe("plan.steps=2", f"plan.seed={seed}"), tmp_path / name))

    def run(given, out="run", existing="auto"):
        if given is None:
            return Run(recipe(), tmp_path / out, existing)
        asked, start = warm_started(recipe(), [], warm_start_from(tmp_path / given), tmp_path / given)
        return Run(asked, tmp_path / out, existing, start)

    stop(run("one"), 4)
    assert run("one").resumed
    with pytest.raises(
        UserError, match=r"from=.*two: the run in .*run was started from .*one, which had other weights"
    ):
        run("two")
    with pytest.raises(UserError, match=r"run: the run was started from a model; add from=.*one"):
        run(None)
    shutil.move(tmp_path / "one", tmp_path / "moved")
    assert run("moved").resumed  # the same weights
    stop(run(None, "fresh"), 4)
    with pytest.raises(UserError, match=r"from=.*two: the run in .*fresh was started from no model; leave it out"):
        run("two", "fresh")
    stored_before = read_json(tmp_path / "fresh/recipe.json")
    assert stored_before["from"] == {"path": "", "sha256": ""}
    del stored_before["from"]  # as an earlier version wrote it
    (tmp_path / "fresh/recipe.json").write_text(json.dumps(stored_before))
    assert run(None, "fresh").resumed


def test_auto_does_not_replace_a_run_that_another_process_began_meanwhile(recipe, tmp_path):
    late = Run(recipe(), tmp_path / "run", "auto")
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    with pytest.raises(UserError, match="another process has started this run meanwhile; repeat the command"):
        list(late)
    assert stored_recipe(tmp_path / "run").plan.steps == 2


def test_a_choice_that_does_not_exist_is_refused(recipe, tmp_path):
    with pytest.raises(UserError, match=r"existing='Auto': no such choice. Did you mean \"auto\"\?"):
        Run(recipe(), tmp_path / "run", "Auto")


def test_what_a_damaged_file_says_was_asked_is_read_only_to_resume(recipe, tmp_path):
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    path = tmp_path / "run/recipe.json"
    path.write_text(json.dumps(read_json(path) | {"asked": {"kind": "recipe", "plan": 3}}))
    assert load(tmp_path / "run").step == 2
    for existing in ("resume", "auto"):
        with pytest.raises(UserError, match=r"recipe.json: "):
            Run(recipe("plan.steps=2"), tmp_path / "run", existing)


def test_a_run_of_an_earlier_version_has_no_asked_recipe_until_a_command_is_repeated(tmp_path):
    """Its metrics were left out because its tags name no entities."""
    (tmp_path / "tags.txt").write_text("the D\ndog N\n\na D\ncat N\n\n" * 20)
    settings = [f"data.{part}={tmp_path / 'tags.txt'}" for part in ("train", "valid")]
    settings += ["plan.steps=2", "plan.batch_tokens=64", "plan.device=cpu", "plan.threads=1", "model.width=8"]
    asked = override(find_recipe("tag"), settings, KINDS)
    list(Run(asked, tmp_path / "run", "auto"))
    path = tmp_path / "run/recipe.json"
    content = read_json(path)
    assert content["metrics"] != content["asked"]["metrics"]
    del content["asked"], content["files"], content["version"]
    path.write_text(json.dumps(content))
    list(Run(None, tmp_path / "run", "resume"))
    assert asked_recipe(tmp_path / "run") is None
    list(Run(asked, tmp_path / "run", "auto"))
    assert asked_recipe(tmp_path / "run") == asked
    list(Run(asked, tmp_path / "run", "auto"))


def test_a_run_that_was_killed_while_it_began_is_started_again(recipe, tmp_path):
    """Its language model has no recipe yet: an empty folder, or step 0."""
    (tmp_path / "run/tuned/steps").mkdir(parents=True)
    list(Run(recipe("plan.steps=2"), tmp_path / "run", "auto"))
    (tmp_path / "other/tuned").mkdir(parents=True)
    (tmp_path / "other/tuned/notes.txt").write_text("x")
    with pytest.raises(UserError, match="holds other files and no run"):
        Run(recipe(), tmp_path / "other", "auto")


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
    assert "the learning rate of the next step is 0.00857, and would have been 0.00667" in warning
    list(run)
    short, long, found = (rates(tmp_path / name) for name in ("short", "long", "run"))
    assert {step: short[step] for step in range(1, 5)} == {step: found[step] for step in range(1, 5)}
    assert {step: long[step] for step in range(5, 17)} == {step: found[step] for step in range(5, 17)}
    assert short[5] != long[5]
    assert stored_recipe(tmp_path / "run").plan.steps == 16
    assert next(iter(Run(None, tmp_path / "run", "resume"))).warnings == ()  # it is said once


def test_a_run_is_not_rescheduled_to_fewer_steps_than_it_has_made_nor_before_it_began(recipe, tmp_path):
    stop(Run(recipe("plan.schedule=cosine"), tmp_path / "run"), 4)
    with pytest.raises(UserError, match=r"plan.steps=3: the run has made 4 steps already; give as many or more"):
        Run(recipe("plan.schedule=cosine", "plan.steps=3"), tmp_path / "run", "resume", reschedule=True)
    with pytest.raises(UserError, match=r"--reschedule \(in Python: reschedule\) is for a run that is resumed"):
        Run(recipe(), tmp_path / "new", reschedule=True)
    with pytest.raises(UserError, match=r"plan.rate=0.5: the run in"):
        Run(recipe("plan.schedule=cosine", "plan.rate=0.5"), tmp_path / "run", "resume", reschedule=True)


def test_a_command_with_another_length_is_repeated(recipe, tmp_path):
    """The length of the last command counts, and --reschedule stays in a command that starts a run."""
    cosine, out = "plan.schedule=cosine", tmp_path / "run"
    stop(Run(recipe(cosine), out, "auto", reschedule=True), 4)
    stop(Run(recipe(cosine, "plan.steps=12"), out, "auto", reschedule=True), 8)
    assert Run(recipe(cosine, "plan.steps=12"), out, "auto").recipe.plan.steps == 12
    with pytest.raises(UserError, match=r"plan.steps=8: the run in .* was started with 12; the learning rate"):
        Run(recipe(cosine), out, "auto")
    with pytest.raises(UserError, match=r"plan.steps=6: the run has made 8 steps already"):
        Run(recipe(cosine, "plan.steps=6"), out, "auto", reschedule=True)
    list(Run(recipe(cosine, "plan.steps=16"), out, "resume", reschedule=True))
    assert Run(recipe(cosine, "plan.steps=16"), out, "auto").recipe.plan.steps == 16


def test_steps_take_the_place_of_epochs(recipe, tmp_path):
    cosine, out = "plan.schedule=cosine", tmp_path / "run"
    first = Run(recipe(cosine, "plan.epochs=1", "plan.evaluate=epoch"), out, "auto")
    stop(first, first.recipe.plan.steps)
    longer = Run(recipe(cosine, "plan.steps=30", "plan.evaluate=epoch"), out, "auto", reschedule=True)
    assert (longer.recipe.plan.steps, longer.recipe.plan.epochs) == (30, None)


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
