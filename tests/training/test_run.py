"""A run: its directory, its events, and what it refuses."""

import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf, nan
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import save

from regard import stored
from regard.checkpoint import FORMAT, read_pointer, resolve
from regard.config import override
from regard.data.batches import Batches
from regard.data.labelled import Labelled
from regard.data.sources import Lines, Pairs
from regard.errors import UserError
from regard.file_io import load_tensors, read_json
from regard.models import LstmnConfig, StructuredConfig
from regard.objectives import Classification, TeacherForcing
from regard.recipes import KINDS, Plan, Recipe
from regard.training import Diverged
from regard.training.estimate import estimate
from regard.training.events import Evaluated, Finished, Progress, Saved, Started
from regard.training.folder import FILES, clear, is_run, read_state, restore
from regard.training.prepare import Prepared
from regard.training.run import Run
from regard.training.warm_start import warm_start_from
from regard.verbs.loaded import load


def _lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _weights(out: Path, step: int) -> dict[str, torch.Tensor]:
    return load_tensors(out / f"steps/{step:06d}/weights.safetensors")


def _equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_tells_what_happens_and_leaves_a_whole_directory(recipe, tmp_path):
    out = tmp_path / "run"
    events = list(Run(recipe(), out))
    started, *_, finished = events
    assert isinstance(started, Started)
    assert (started.step, started.steps, started.examples, started.dropped) == (0, 8, 60, 0)
    assert started.parameters == sum(weight.numel() for weight in _weights(out, 8).values())
    assert [event.step for event in events if isinstance(event, Progress)] == [2, 4, 6, 8]
    assert [event.step for event in events if isinstance(event, Evaluated)] == [4, 8]
    assert [event.step for event in events if isinstance(event, Saved)] == [0, 4, 8]
    assert isinstance(finished, Finished)
    assert (finished.step, finished.reason) == (8, "steps")

    loss_module = {event.step: event.values for event in events if isinstance(event, Evaluated)}
    assert loss_module[8].keys() == {"loss", "exact"}
    assert finished.best == min(values["loss"] for values in loss_module.values())
    assert read_pointer(out, "best") == f"{finished.best_step:06d}"
    assert read_pointer(out, "latest") == "000008"
    assert {path.name for path in (out / "steps").iterdir()} == {"000004", "000008"}  # plan.keep
    files = {str(path.relative_to(out / "steps/000008")) for path in (out / "steps/000008").rglob("*.*")}
    training = {"training/trainer.safetensors", "training/state.json"}
    fields = {"fields/source.json", "fields/target.json"}
    assert files == {"model.json", "weights.safetensors", "manifest.json"} | fields | training
    assert [(line["step"], line["kind"]) for line in _lines(out)] == [
        (2, "train"),
        (4, "train"),
        (4, "valid"),
        (6, "train"),
        (8, "train"),
        (8, "valid"),
    ]
    assert load(out).recipe == recipe()


def test_judging_and_saving_are_timed_apart_from_training(recipe, tmp_path, monkeypatch):
    """A clock that only judging (100), saving (10), steps (1) and what follows an evaluation outside (1000) move on."""
    home, now = sys.modules["regard.training.run"], [0.0]

    def slowed(real, seconds):
        def slow(*given):
            now[0] += seconds
            return real(*given)

        return slow

    monkeypatch.setattr(home.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Run, "evaluate", slowed(Run.evaluate, 100.0))
    monkeypatch.setattr(home, "save", slowed(home.save, 10.0))
    monkeypatch.setattr(Batches, "batch", slowed(Batches.batch, 1.0))
    out = tmp_path / "run"
    for event in Run(recipe("plan.log=1"), out):
        now[0] += 1000.0 * isinstance(event, Evaluated)
        if isinstance(event, Progress) and event.step == 6:
            break  # which saves, and is gone on from
    list(Run(recipe("plan.log=1"), out, "resume"))
    by_step = {line["step"]: line for line in _lines(out) if line["kind"] == "valid"}
    assert (by_step[4]["seconds"], by_step[4]["training"]) == (104.0, 4.0)
    assert (by_step[8]["seconds"], by_step[8]["training"]) == (104.0 + 10.0 + 1000.0 + 4.0 + 100.0, 8.0)
    mark = read_state(out / "steps/000008")
    assert mark.seconds - mark.evaluating == 8.0


def test_the_same_recipe_makes_the_same_run(recipe, tmp_path):
    for name in ("a", "b"):
        list(Run(recipe(), tmp_path / name))
    list(Run(recipe("plan.seed=2"), tmp_path / "c"))
    assert _equal(_weights(tmp_path / "a", 8), _weights(tmp_path / "b", 8))
    assert not _equal(_weights(tmp_path / "a", 8), _weights(tmp_path / "c", 8))


def test_an_existing_run_is_kept_unless_told_otherwise(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4"), out))
    with pytest.raises(UserError, match=r"--resume.*--overwrite"):
        Run(recipe(), out)
    with pytest.raises(UserError, match=r"data.train=.*nowhere|nowhere"):
        Run(recipe("data.train=nowhere.tsv"), out, "overwrite")
    assert read_pointer(out, "latest") == "000004"  # a recipe that fails has replaced nothing
    run = Run(recipe("plan.steps=2"), out, "overwrite")
    assert read_pointer(out, "latest") == "000004"
    list(run)
    assert read_pointer(out, "latest") == "000002"
    assert {line["step"] for line in _lines(out)} == {2}


def test_other_peoples_files_are_never_overwritten(recipe, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.tex").write_text("years of work")
    for existing in ("refuse", "resume", "overwrite"):
        with pytest.raises(UserError, match="holds other files"):
            Run(recipe(), out, existing)
    with pytest.raises(UserError, match="this is a file"):
        Run(recipe(), out / "chapter1.tex")


@pytest.mark.parametrize("content", ['{"name": "soup", "steps": ["boil"]}', "[]", "{", '{"format": 2, "kind": "soup"}'])
def test_a_directory_with_another_recipe_is_not_overwritten(recipe, tmp_path, content):
    out = tmp_path / "kitchen"
    (out / "steps").mkdir(parents=True)
    (out / "recipe.json").write_text(content)
    (out / "steps/boil.txt").write_text("ten minutes")
    with pytest.raises(UserError, match=r"kitchen: its recipe.json is not that of a run .* it is not overwritten"):
        Run(recipe(), out, "overwrite")
    assert (out / "recipe.json").read_text() == content
    assert sorted(path.name for path in out.rglob("*")) == ["boil.txt", "recipe.json", "steps"]


def test_overwriting_removes_what_the_run_has_written_and_nothing_else(recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4"), out))
    kept = ("notes.txt", "steps/notes.txt", "steps/000009.txt", "baseline/notes.txt")
    for name in (*kept, "report.html"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    folder = sys.modules["regard.training.folder"]
    for calls in (
        1,
        2,
        3,
    ):  # killed before the pointers, the steps or the files go: it can be overwritten again
        with monkeypatch.context() as patch:
            discarded, real = [], folder.discard

            def dying(paths, discarded=discarded, calls=calls, real=real):
                discarded.append(paths)
                if len(discarded) == calls:
                    raise SystemExit
                real(paths)

            patch.setattr(folder, "discard", dying)
            with pytest.raises(SystemExit):
                list(Run(recipe("plan.steps=2"), out, "overwrite"))
    list(Run(recipe("plan.steps=2"), out, "overwrite"))
    assert sorted(path.name for path in (out / "steps").iterdir()) == ["000000", "000002", "000009.txt", "notes.txt"]
    assert {(out / name).read_text() for name in kept} == {"mine"}
    names = {".lock", "baseline", "best", "latest", "metrics.jsonl", "notes.txt", "recipe.json", "steps"}
    assert {path.name for path in out.iterdir()} == names


def test_the_recipe_is_removed_last_and_no_pointer_is_left_without_its_step(tmp_path, monkeypatch):
    for name in FILES:
        (tmp_path / name).touch()
    (tmp_path / "steps/000002").mkdir(parents=True)
    removed, rename = [], os.rename
    monkeypatch.setattr(os, "rename", lambda old, new: (removed.append(old.name), rename(old, new)))
    clear(tmp_path)
    assert sorted(removed) == sorted([*FILES, "000002"])
    assert {*removed[:2], removed[2]} == {"latest", "best", "000002"}
    assert removed[-1] == "recipe.json"


def test_a_linked_folder_of_steps_is_refused(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    (out / "steps").rename(tmp_path / "elsewhere")
    (out / "steps").symlink_to(tmp_path / "elsewhere")
    for existing in ("resume", "overwrite"):
        with pytest.raises(UserError, match="steps: is a symbolic link"):
            Run(recipe("plan.steps=2"), out, existing)
    assert load(out).step == 2  # reading changes nothing


# -- files that were changed -------------------------------------------------------------------------------------------


def _tamper(run, name, content):
    """Change a file of the latest step, and its fingerprint in the manifest."""
    step = resolve(run, ("latest",))
    manifest = read_json(step / "manifest.json")
    (step / name).write_bytes(content)
    manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (step / "manifest.json").write_text(json.dumps(manifest))


IMPOSSIBLE = [
    *(("step", -5), ("step", 3), ("step", 4.0), ("step", "4"), ("evaluated", 5), ("evaluated", True), ("best", "low")),
    *(("best", None), ("best_loss", []), ("best_step", 3), ("best_step", -4), ("waited", -1), ("seconds", "1")),
    *(("seconds", -1.0), ("evaluating", None), ("tuning", -1.0), ("data", 7), ("batches", 0), ("batches", "1")),
]
HUGE = [("best", 10**400), ("seconds", 10**400)]  # no float is so large
WEIGHT = "optimizer/model.encoder.embedding.weight"
UNFIT = [  # the start of a name, the tensor in its place, the message
    ("", None, r"objective/.* is absent, but the model's is"),
    ("optimizer", None, r"optimizer/.* is absent, but the model's is"),
    (f"{WEIGHT}/exp_avg", None, f"{WEIGHT}/exp_avg is absent"),
    (f"{WEIGHT}/exp_avg", torch.zeros(3), f"{WEIGHT}/exp_avg is 3, but the model's is"),
    (f"{WEIGHT}/step", torch.tensor(-5.0), f"{WEIGHT}/step is -5, but the run has 4 steps"),
    (f"{WEIGHT}/step", torch.tensor(float("nan")), f"{WEIGHT}/step: 1 of its 1 numbers are NaN"),
    (f"{WEIGHT}/step", torch.tensor(4), f"{WEIGHT}/step has numbers of type int64, but the model's are float32"),
    (
        "optimizer/model.other/step",
        torch.tensor(1.0),
        "optimizer/model.other/step is one number",
    ),
    ("elsewhere", torch.zeros(1), "elsewhere is 1, but the model's is absent"),
]


def test_a_state_or_a_trainer_file_that_does_not_fit_is_refused_by_its_field(recipe, tmp_path):
    out, made = tmp_path / "run", recipe("plan.steps=4", "objective=professor", "objective.width=8")
    list(Run(made, out))
    state, trainer = read_json(out / "steps/000004/training/state.json"), Run(made, out, "resume").trainer
    for name, value in HUGE:
        _tamper(out, "training/state.json", json.dumps({**state, name: value}).encode())
        with pytest.raises(UserError, match=rf"state\.json: {name}=1000+.*: cannot be the state"):
            read_state(resolve(out, ("latest",)))
    for name, value in IMPOSSIBLE:
        _tamper(out, "training/state.json", json.dumps({**state, name: value}).encode())
        with pytest.raises(UserError, match=rf"state\.json: {name}={re.escape(repr(value))}: cannot be the state"):
            read_state(resolve(out, ("latest",)))
    with pytest.raises(UserError, match=r"state\.json: batches='1': cannot be the state of a run at step 4; restore"):
        Run(made, out, "resume")
    _tamper(out, "training/state.json", json.dumps(state).encode())
    found = load_tensors(out / "steps/000004/training/trainer.safetensors")
    tensors = {name: tensor.clone() for name, tensor in found.items()}  # the file is mapped, and is written below
    for start, value, message in UNFIT:
        changed = {name: one for name, one in tensors.items() if value is not None or not name.startswith(start)}
        _tamper(out, "training/trainer.safetensors", save(changed if value is None else {**changed, start: value}))
        with pytest.raises(UserError, match=rf"000004/training/trainer\.safetensors: {message}"):
            restore(resolve(out, ("latest",)), trainer, made.objective)
    moment, own = tensors[f"{WEIGHT}/exp_avg_sq"], next(name for name in tensors if name.startswith("objective/"))
    for name, value, message in (
        (f"{WEIGHT}/exp_avg_sq", moment.half(), "has numbers of type float16, but the model's are float32; restore"),
        (f"{WEIGHT}/exp_avg_sq", moment.long(), "has numbers of type int64, but the model's are float32; restore"),
        *((f"{WEIGHT}/exp_avg_sq", moment.clone().fill_(bad), "NaN or infinite; restore") for bad in (inf, nan)),
        (own, torch.full_like(tensors[own], nan), "NaN or infinite; restore"),
    ):
        _tamper(out, "training/trainer.safetensors", save({**tensors, name: value}))
        with pytest.raises(UserError, match=rf"trainer\.safetensors: {name}.*{message} the file or use another"):
            restore(resolve(out, ("latest",)), trainer, made.objective)
    _tamper(out, "training/trainer.safetensors", save({**tensors, "elsewhere": torch.zeros(1)}))
    with pytest.raises(UserError, match=r"trainer\.safetensors: elsewhere is 1"):
        Run(made, out, "resume")


# -- two processes ----------------------------------------------------------------------------------------------------


def test_a_run_that_is_being_trained_is_refused_to_others_and_read_by_all(recipe, tmp_path):
    out = tmp_path / "run"
    first = iter(Run(recipe(), out))
    while not isinstance(next(first), Evaluated):
        pass
    for existing in ("resume", "overwrite"):
        with pytest.raises(UserError, match=rf"run: is trained by another process \(pid {os.getpid()} on .*\); wait"):
            Run(recipe(), out, existing)
    assert load(out).step == 4
    first.close()
    assert isinstance(list(Run(recipe(), out, "resume"))[-1], Finished)


def test_of_two_runs_that_were_prepared_together_only_one_is_trained(recipe, tmp_path):
    out = tmp_path / "run"
    first, second = (Run(recipe("plan.steps=2"), out) for _ in range(2))
    started = iter(first)
    next(started)
    with pytest.raises(UserError, match="is trained by another process"):
        list(second)
    started.close()
    with pytest.raises(UserError, match="holds a run"):
        list(second)
    first, second = (Run(recipe("plan.steps=2"), out, "resume") for _ in range(2))
    list(first)
    before = (out / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match="another process has trained this run meanwhile"):
        list(second)
    assert (out / "metrics.jsonl").read_text() == before


def test_a_run_is_trained_without_a_lock_where_files_cannot_be_locked(recipe, tmp_path, monkeypatch):
    def refuse(*_given):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    list(Run(recipe("plan.steps=2"), tmp_path / "run"))
    assert load(tmp_path / "run").step == 2


def test_a_step_that_is_pruned_while_it_is_read_is_not_missed(recipe, tmp_path, monkeypatch):
    """A reader has found the best step; the run replaces it by a better one, and deletes it, between two files."""
    out = tmp_path / "run"
    events = iter(Run(recipe("plan.keep=1", "plan.evaluate=2", "plan.rate=1e-3"), out))
    while read_pointer(out, "best") is None:
        next(events)
    found, real = [], stored.stored_config

    def training(folder, kinds):
        found.append(folder.name)
        if len(found) == 1:
            for _ in events:
                pass
            assert not folder.exists()
        return real(folder, kinds)

    monkeypatch.setattr(stored, "stored_config", training)
    assert load(out).step == 8
    assert found == ["000002", "000008"]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("model.width=32", r"model.width=32: .* started with 16"),
        ("objective=professor", r"objective=professor: .* started with teacher"),
        ("plan.rate=0.5", r"plan.rate=0.5: .* started with 0.01"),
    ],
)
def test_resuming_with_another_recipe_is_refused_by_setting(recipe, tmp_path, setting, named):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    with pytest.raises(UserError, match=named):
        Run(recipe("plan.steps=2", setting), out, "resume")
    Run(recipe("plan.steps=2", "plan.minutes=5", "plan.keep=4"), out, "resume")  # these may change


def test_resuming_on_other_data_is_refused(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text()[:-8])
    with pytest.raises(UserError, match="not what the run was started with"):
        Run(None, out, "resume")


def test_resuming_a_finished_run_has_nothing_to_do(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe(), out))
    before = _lines(out)
    events = list(Run(None, out, "resume"))
    assert [type(event) for event in events] == [Started, Finished]
    assert _lines(out) == before


def test_a_run_is_made_longer_where_its_rate_does_not_depend_on_the_steps(recipe, tmp_path):
    endless = "plan.schedule=inverse-sqrt"
    list(Run(recipe(endless, "plan.steps=8"), tmp_path / "whole"))
    list(Run(recipe(endless, "plan.steps=4"), tmp_path / "cut"))
    started, *_ = longer = list(Run(recipe(endless, "plan.steps=8"), tmp_path / "cut", "resume"))
    assert (started.step, started.over, longer[-1].reason) == (4, None, "steps")
    assert _equal(_weights(tmp_path / "whole", 8), _weights(tmp_path / "cut", 8))
    assert next(iter(Run(None, tmp_path / "cut", "resume"))).over == "steps"

    list(Run(recipe("plan.schedule=linear", "plan.steps=4"), tmp_path / "fallen"))
    message = r"plan.steps=8: .* was started with 4; the learning rate depends on it; .* from=.*fallen --out NEW"
    with pytest.raises(UserError, match=message):
        Run(recipe("plan.schedule=linear", "plan.steps=8"), tmp_path / "fallen", "resume")
    list(Run(recipe(endless, "plan.warmup=0.5", "plan.steps=4"), tmp_path / "part"))  # the warm-up is 2 steps, or 4
    with pytest.raises(UserError, match=r"plan.steps=8: .* the learning rate depends on it"):
        Run(recipe(endless, "plan.warmup=0.5", "plan.steps=8"), tmp_path / "part", "resume")


def test_there_must_be_something_to_resume(recipe, tmp_path):
    out = tmp_path / "run"
    for given in (None, recipe()):
        with pytest.raises(UserError, match="holds no run to resume; leave out --resume"):
            Run(given, out, "resume")
    list(Run(recipe("plan.steps=2"), out))
    with pytest.raises(UserError, match="a run that is resumed has weights already"):
        Run(None, out, "resume", init=warm_start_from(out))
    (out / "latest").unlink()
    with pytest.raises(UserError, match="no saved step to resume from; start it again with --overwrite"):
        Run(None, out, "resume")
    with pytest.raises(UserError, match="name a recipe"):
        Run(None, tmp_path / "other")


def test_a_run_may_be_called_something_else_when_it_is_resumed(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    list(Run(recipe("plan.steps=2", "name=mine", "title=backwards"), out, "resume"))
    assert (load(out).recipe.name, load(out).recipe.title) == ("mine", "backwards")


@pytest.mark.parametrize("written", [None, 1, FORMAT + 1, "2", True])
def test_a_run_of_another_format_is_refused(recipe, tmp_path, written):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    stored = json.loads((out / "recipe.json").read_text())
    assert stored.pop("format") == FORMAT == 3
    (out / "recipe.json").write_text(json.dumps(stored if written is None else {"format": written, **stored}))
    message = rf"recipe\.json: a run of format {written or 1!r}, but this version reads formats 2 to 3; train it again"
    for use in (
        lambda: load(out),
        lambda: Run(recipe("plan.steps=2"), out, "resume"),
        lambda: Run(None, out, "resume"),
    ):
        with pytest.raises(UserError, match=message):
            use()


def test_a_run_from_before_a_setting_was_known_is_loaded_and_resumed(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    stored = json.loads((out / "recipe.json").read_text())
    del stored["plan"]["patience"], stored["model"]["window"]
    (out / "recipe.json").write_text(json.dumps(stored))
    assert load(out).recipe == recipe("plan.steps=2")
    assert [type(event) for event in Run(recipe("plan.steps=2"), out, "resume")] == [Started, Finished]


def test_what_cannot_be_judged_is_refused_before_training(recipe, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"plan.samples=0: plan.select=exact is measured on samples"):
        Run(recipe("plan.samples=0", "plan.select=exact"), tmp_path / "run")
    *_, finished = Run(recipe("plan.samples=0", "plan.steps=2"), tmp_path / "loss")
    assert finished.best is not None
    corpus = recipe().data.load()
    monkeypatch.setattr(Pairs, "load", lambda data: replace(corpus, valid=[]))
    with pytest.raises(UserError, match="no validation examples"):
        Run(recipe(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_iterating_again_goes_on_and_removes_nothing(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=2"), out))
    run = Run(recipe(), out, "overwrite")
    list(run)
    trained = _weights(out, 8)
    assert [type(event) for event in run] == [Started, Finished]
    assert _equal(_weights(out, 8), trained)
    assert (out / "steps/000004").is_dir()


def test_a_run_stays_where_it_was_started(recipe, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    run = Run(recipe("plan.steps=2"), Path("."))
    monkeypatch.chdir(tmp_path)
    list(run)
    for place, name in {"run": ".", "run/steps": "000002", "run/steps/000002": "."}.items():
        monkeypatch.chdir(tmp_path / place)
        assert load(name).step == 2
        assert load(name).recipe == recipe("plan.steps=2")
    copy = tmp_path / "alone"
    copytree(tmp_path / "run/steps/000002", copy)
    with pytest.raises(UserError, match="a step outside its run"):
        load(copy)


class _Pressed:
    """Ctrl-C in the middle of the n-th step."""

    def __init__(self, monkeypatch, n, number=signal.SIGINT):
        from regard.data.batches import Batches

        batch = Batches.batch

        def pressing(batches, step):
            if step == n:
                signal.raise_signal(number)
            return batch(batches, step)

        monkeypatch.setattr(Batches, "batch", pressing)


def test_an_interrupt_saves_and_the_run_goes_on_bit_equal(recipe, tmp_path, monkeypatch):
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    list(Run(recipe(), tmp_path / "straight"))
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        _Pressed(patch, n=4)
        with pytest.raises(KeyboardInterrupt):
            list(Run(recipe(), out))
    assert read_pointer(out, "latest") == "000005"  # the step that was under way was finished first
    assert signal.getsignal(signal.SIGINT) is before
    list(Run(recipe(), out, "resume"))
    assert _equal(_weights(out, 8), _weights(tmp_path / "straight", 8))
    assert read_pointer(out, "best") == read_pointer(tmp_path / "straight", "best")


def test_a_second_interrupt_waits_until_the_first_has_saved(recipe, tmp_path, monkeypatch):
    """The processes of a ladder get Ctrl-C from the terminal, and SIGTERM from the first process."""
    home, out = sys.modules["regard.training.run"], tmp_path / "run"
    save = home.save

    def pressed(run, state, *given):
        if state.step == 5:
            signal.raise_signal(signal.SIGTERM)
        return save(run, state, *given)

    _Pressed(monkeypatch, n=4)
    monkeypatch.setattr(home, "save", pressed)
    with pytest.raises(KeyboardInterrupt):
        list(Run(recipe(), out))
    assert read_pointer(out, "latest") == "000005"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_as_ctrl_c_does(recipe, tmp_path, monkeypatch, number):
    before = signal.signal(number, signal.SIG_DFL)  # under nohup, SIGHUP is ignored
    try:
        with monkeypatch.context() as patch:
            _Pressed(patch, n=2, number=number)
            with pytest.raises(KeyboardInterrupt):
                list(Run(recipe(), tmp_path / "run"))
        assert read_pointer(tmp_path / "run", "latest") == "000003"
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_under_nohup_a_closed_terminal_does_not_end_a_run(recipe, tmp_path, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _Pressed(monkeypatch, n=1, number=signal.SIGHUP)
        assert list(Run(recipe("plan.steps=2"), tmp_path / "run"))[-1].step == 2
    except KeyboardInterrupt:  # it would end pytest
        pytest.fail("the run was interrupted")
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("full", [lambda: torch.empty(2**60, dtype=torch.uint8), lambda: bytes(2**62)])
def test_out_of_memory_on_a_cpu(recipe, tmp_path, monkeypatch, full):
    from regard.data.batches import Batches

    batch = Batches.batch
    monkeypatch.setattr(Batches, "batch", lambda batches, step: full() if step == 1 else batch(batches, step))
    with pytest.raises(UserError, match=r"out of memory on cpu: lower plan.batch_tokens \(160\)"):
        list(Run(recipe(), tmp_path / "run"))
    assert resolve(tmp_path / "run", ("latest",)).name == "000001"


def test_out_of_memory_names_the_settings_and_saves(recipe, tmp_path, monkeypatch):
    from regard.data.batches import Batches

    def full(*_given):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    message = (
        r"out of memory on cpu: lower plan.batch_tokens \(160\) and raise plan.accumulate \(1\) in proportion to keep "
        r"the size of a step, or set plan.checkpoint=true \(a Transformer\), or make the model smaller"
    )
    batch = Batches.batch
    with monkeypatch.context() as patch:
        patch.setattr(Batches, "batch", lambda batches, step: full() if step == 5 else batch(batches, step))
        with pytest.raises(UserError, match=message):
            list(Run(recipe(), tmp_path / "training"))
    assert resolve(tmp_path / "training", ("latest",)).name == "000005"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", full)
        with pytest.raises(UserError, match=message):
            list(Run(recipe(), tmp_path / "judging"))
    assert resolve(tmp_path / "judging", ("latest",)).name == "000004"
    list(Run(recipe(), tmp_path / "judging", "resume"))
    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "build", full)
        with pytest.raises(UserError, match=message):
            Run(recipe(), tmp_path / "building")
        with pytest.raises(UserError, match=message):
            estimate(recipe())


def test_a_run_is_resumed_with_the_batches_of_its_steps(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4", "plan.accumulate=2", "plan.minutes=9"), out))
    assert Run(None, out, "resume").state.batches == 2
    with pytest.raises(UserError, match=r"plan.accumulate=1 on 1 rank: .* resume with plan.accumulate=2"):
        Run(recipe("plan.steps=4"), out, "resume")


def test_a_step_of_another_format_is_refused(recipe, tmp_path):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4"), out))
    manifest = out / "steps/000004/manifest.json"
    manifest.write_text(json.dumps({"files": json.loads(manifest.read_text())["files"]}))
    with pytest.raises(UserError, match=r"manifest\.json: a run of format 1, but this version reads formats 2 to 3"):
        Run(None, out, "resume")


def test_an_abandoned_run_saves_too(recipe, tmp_path):
    out = tmp_path / "run"
    events = iter(Run(recipe("plan.log=1"), out))
    for event in events:
        if isinstance(event, Progress) and event.step == 3:
            break
    events.close()
    assert read_pointer(out, "latest") == "000003"


def test_an_evaluation_that_was_interrupted_is_made_up_for(recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", lambda run, share: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            list(Run(recipe(), out))
    assert read_pointer(out, "latest") == "000004"
    events = list(Run(recipe(), out, "resume"))
    assert [event.step for event in events if isinstance(event, Evaluated)] == [4, 8]


def test_a_kill_between_the_line_of_an_evaluation_and_its_save_leaves_one_line(recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"

    def interrupted(run, share):
        signal.raise_signal(signal.SIGINT)

    def killed(*given):
        raise SystemExit  # after which nothing is saved, as after a kill

    for name, call in (("evaluate", interrupted), ("_save", killed)):
        run = Run(recipe(), out, "resume" if is_run(out) else "refuse")
        with monkeypatch.context() as patch:
            patch.setattr(Run, name, call)
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                list(run)
    assert read_pointer(out, "latest") == "000004"
    list(Run(recipe(), out, "resume"))
    assert [line["step"] for line in _lines(out) if line["kind"] == "valid"] == [4, 8]


def _write_until(write, deadly, calls, *given):
    calls.append(given)
    if len(calls) >= deadly:
        raise SystemExit  # after which nothing is written, as after a kill
    return write(*given)


def test_a_kill_before_each_write_of_a_resumed_run_leaves_each_line_once(recipe, tmp_path, monkeypatch):
    made, begun, writes = recipe("plan.steps=2", "plan.evaluate=2", "plan.log=1"), tmp_path / "begun", 0
    events = iter(Run(made, begun))
    next(event for event in events if isinstance(event, Progress) and event.step == 2)
    events.close()  # saved and not evaluated
    for deadly in range(1, 99):
        out, calls = copytree(begun, tmp_path / f"run-{deadly}"), []
        with monkeypatch.context() as patch, suppress(SystemExit):
            for home, name in ((os, "rename"), (os, "replace"), (sys.modules["regard.training.run"], "append_line")):
                patch.setattr(home, name, partial(_write_until, getattr(home, name), deadly, calls))
            list(Run(made, out, "resume"))
            writes = len(calls)
        list(Run(made, out, "resume"))
        assert [(line["step"], line["kind"]) for line in _lines(out)] == [(1, "train"), (2, "train"), (2, "valid")]
        if writes:
            break
    assert deadly == writes + 1 > 7


@pytest.mark.parametrize("call", ["append_line", "save", "set_pointer"])
def test_an_interrupt_after_evaluating_waits_until_it_is_written(recipe, tmp_path, monkeypatch, call):
    home, out = sys.modules["regard.training.run"], tmp_path / "run"
    real, evaluate, loss_module = getattr(home, call), Run.evaluate, []

    def pressed(*given):
        if loss_module:
            signal.raise_signal(signal.SIGINT)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", lambda run, share: (evaluate(run, share), loss_module.append(True))[0])
        patch.setattr(home, call, pressed)
        with pytest.raises(KeyboardInterrupt):
            list(Run(recipe(), out))
    assert read_pointer(out, "latest") == read_pointer(out, "best") == "000004"
    list(Run(recipe(), out, "resume"))
    assert [line["step"] for line in _lines(out) if line["kind"] == "valid"] == [4, 8]


def test_an_interrupt_before_a_run_is_replaced_leaves_it_alone(recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"
    list(Run(recipe("plan.steps=4"), out))
    before = _weights(out, 4)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["regard.training.run"], "clear", lambda _: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            list(Run(recipe("model.width=24"), out, "overwrite"))
    assert read_pointer(out, "latest") == "000004"
    assert _equal(_weights(out, 4), before)


def test_early_stopping_waits_as_long_as_its_patience(recipe, tmp_path, monkeypatch):
    from regard.training.evaluate import Scores

    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(Run, "evaluate", lambda run, share: Scores({"loss": next(losses)}))
    out = tmp_path / "run"
    settings = ("plan.steps=20", "plan.evaluate=2", "plan.patience=2")
    *_, finished = Run(recipe(*settings), out)
    assert (finished.step, finished.reason, finished.best_step, finished.best) == (8, "patience", 4, 2.0)
    assert read_pointer(out, "best") == "000004"
    assert (out / "steps/000004").is_dir()  # kept, though older than plan.keep
    assert [type(event) for event in Run(None, out, "resume")] == [Started, Finished]


def test_a_measure_that_grows_selects_the_largest(recipe, tmp_path, monkeypatch):
    from regard.training.evaluate import Scores

    exact = iter([0.5, 0.75, 0.25, 0.5])
    monkeypatch.setattr(Run, "evaluate", lambda run, share: Scores({"loss": 1.0, "exact": next(exact)}))
    *_, finished = Run(recipe("plan.select=exact", "plan.evaluate=2"), tmp_path / "run")
    assert (finished.best_step, finished.best) == (4, 0.75)


def test_minutes_end_a_run_and_count_over_sittings(recipe, tmp_path):
    out = tmp_path / "run"
    *_, finished = Run(recipe("plan.steps=100000", "plan.evaluate=100000", "plan.minutes=0.005"), out)
    assert finished.reason == "minutes"
    assert finished.step == finished.best_step  # judged and saved, though no evaluation was due
    assert finished.seconds >= 0.3
    *_, again = Run(None, out, "resume")
    assert again.step == finished.step


def test_a_place_that_cannot_be_written_is_refused_before_the_data_is_read(recipe, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("regard.training.run.prepare", None)
    with pytest.raises(UserError, match="run: cannot be written: Not a directory; choose a directory"):
        Run(recipe(), tmp_path / "file" / "run")


def test_divergence_leaves_the_last_good_step(recipe, tmp_path, monkeypatch):
    from regard.objectives import TeacherForcing

    call = TeacherForcing.__call__

    def poisoned(objective, model, batch, step, own=None, state=None):
        sums, state = call(objective, model, batch, step, own, state)
        return {"nll": sums["nll"] * float("nan")} if step == 5 and torch.is_grad_enabled() else sums, state

    monkeypatch.setattr(TeacherForcing, "__call__", poisoned)
    out = tmp_path / "run"
    with pytest.raises(Diverged, match="step 6"):
        list(Run(recipe(), out))
    assert resolve(out).name == "000004"
    assert all(weight.isfinite().all() for weight in _weights(out, 4).values())


def test_an_evaluation_without_finite_outputs_is_divergence(recipe, tmp_path, monkeypatch):
    from regard.objectives import TeacherForcing

    call = TeacherForcing.__call__

    def poisoned(objective, model, batch, step, own=None, state=None):
        sums, state = call(objective, model, batch, step, own, state)
        return {"nll": sums["nll"] * (1.0 if torch.is_grad_enabled() else float("nan"))}, state

    monkeypatch.setattr(TeacherForcing, "__call__", poisoned)
    with pytest.raises(Diverged, match=r"step 2: training diverged: on the validation examples, .* lower plan.rate"):
        list(Run(recipe("plan.evaluate=2"), tmp_path / "run"))


def test_starting_from_another_run_takes_its_weights_and_tokenizers(recipe, tmp_path):
    list(Run(recipe("plan.steps=2"), tmp_path / "first"))
    run = Run(recipe("plan.rate=1e-5", "model.width=24"), tmp_path / "second", init=warm_start_from(tmp_path / "first"))
    assert _equal(dict(run.model.state_dict()), _weights(tmp_path / "first", 2))
    assert run.recipe.model == load(tmp_path / "first").module.config  # its settings too, whatever the recipe has


def test_a_start_from_another_run_that_is_killed_leaves_its_weights_or_no_run(recipe, tmp_path, monkeypatch):
    """A kill before each call that writes: what is then there is a run that goes on from them, or free to start in."""

    def kill(*_given):
        raise SystemExit

    list(Run(recipe("plan.steps=2"), tmp_path / "first"))
    calls = {"run": ("make_folder", "save", "open_run"), "folder": ("write_json", "truncate_after")}
    for home, call in ((home, call) for home, names in calls.items() for call in names):
        out = tmp_path / call
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[f"regard.training.{home}"], call, kill)
            with pytest.raises(SystemExit):
                list(Run(recipe(), out, init=warm_start_from(tmp_path / "first")))
        run = Run(None, out, "resume") if is_run(out) else Run(recipe(), out, init=warm_start_from(tmp_path / "first"))
        assert _equal(dict(run.model.state_dict()), _weights(tmp_path / "first", 2)), call
        assert isinstance(list(run)[-1], Finished)


@pytest.mark.parametrize("settings", [("objective=professor", "objective.width=8"), ("objective.ratio=0.5",)])
def test_other_objectives_run_and_resume(recipe, tmp_path, settings):
    list(Run(recipe(*settings), tmp_path / "straight"))
    out = tmp_path / "run"
    events = iter(Run(recipe(*settings, "plan.log=1"), out))
    while not (isinstance(event := next(events), Progress) and event.step == 3):
        pass
    events.close()
    list(Run(recipe(*settings), out, "resume"))
    assert _equal(_weights(out, 8), _weights(tmp_path / "straight", 8))
    training = load_tensors(out / "steps/000008/training/trainer.safetensors")
    assert any(name.startswith("objective/") for name in training) == ("professor" in settings[0])


def test_language_models_and_classifiers_run(tmp_path):
    plan = Plan(steps=4, batch_tokens=160, evaluate=4, warmup=1, threads=1, device="cpu")
    lines = tmp_path / "lines.txt"
    lines.write_text("abab\nbaba\nabba\nbaab\n" * 5)
    model = LstmnConfig(width=8, embed=4, context=16)
    text = Recipe("t", "", Lines(str(lines), str(lines)), model, TeacherForcing(), plan, ("perplexity",))
    *_, evaluated, _, _ = Run(text, tmp_path / "text")
    assert isinstance(evaluated, Evaluated)
    assert 1 < evaluated.values["perplexity"] < 10

    labelled = tmp_path / "labelled.tsv"
    labelled.write_text("".join(f"{'very good' if n % 2 else 'bad'}\tword{n % 2} other{n % 3}\n" for n in range(20)))
    settings = ("plan.steps=80", "plan.rate=2e-2", "plan.evaluate=20", "plan.select=accuracy")
    model = StructuredConfig(width=8, embed=4, hops=2, attention=4)
    data = Labelled(str(labelled), str(labelled))
    labels = Recipe("l", "", data, model, Classification(), plan, ("accuracy",))
    *_, finished = Run(override(labels, settings, KINDS), tmp_path / "labels")
    assert finished.best == 1.0


@pytest.mark.parametrize(
    ("data", "metrics", "message"),
    [
        ("text", ("perplexity", "bleu"), "bleu does not fit the task language"),
        ("text", ("exact",), "metrics=exact: exact does not fit the task language"),
        ("text", ("accuracy",), "metrics=accuracy: accuracy does not fit the task language"),
        ("label", ("bleu",), "bleu does not fit the task classify"),
        ("label", ("accuracy", "alignment"), "metrics=accuracy,alignment: alignment does not fit the task classify"),
        ("pairs", ("exact", "aer"), "aer needs gold links, and the validation examples have none"),
    ],
)
def test_metrics_that_do_not_fit_the_task_are_refused(data, metrics, message, recipe, tmp_path):
    path = tmp_path / "examples.tsv"
    path.write_text("a\tabab\nb\tbaba\n" * 5)
    bases = {
        "text": Recipe("", "", Lines(str(path), str(path)), LstmnConfig(width=8, embed=4, context=16)),
        "label": Recipe("", "", Labelled(str(path), str(path)), StructuredConfig(width=8), Classification()),
        "pairs": recipe(),
    }
    with pytest.raises(UserError, match=rf"{message}; use metrics that fit: loss, perplexity[^\n]*\.$") as caught:
        Run(replace(bases[data], metrics=metrics), tmp_path / "refused")
    assert ("bleu" in str(caught.value).partition("fit: ")[2]) == (data == "pairs")
    assert not (tmp_path / "refused").exists()


def test_examples_past_the_models_limit_are_left_out(recipe, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text(path.read_text() + "abcdeabcdeabcdeabcde\ta\n")
    run = Run(recipe("plan.steps=1"), tmp_path / "run")
    started, *_ = run
    assert (started.examples, started.dropped) == (60, 1)
    assert max(shape[1] for shape in run.prepared.batches.shapes) <= 16


def test_the_shortest_capacity_is_that_of_the_shortest_batch(recipe, tmp_path):
    list(Run(recipe("model.capacity=8", "plan.steps=1"), tmp_path / "run"))
    with pytest.raises(UserError, match=r"model.capacity=7: batches are padded to 8 tokens"):
        Run(recipe("model.capacity=7"), tmp_path / "short")


def test_a_vocabulary_that_is_not_the_datas_is_refused(recipe, tmp_path):
    made = recipe()
    with pytest.raises(UserError, match=r"model.source_vocab=99: the data has 9"):
        Run(replace(made, model=replace(made.model, source_vocab=99)), tmp_path / "run")
