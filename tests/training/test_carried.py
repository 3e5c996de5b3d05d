"""Carried states: each lane of contiguous text continues where it stopped, in training and in evaluation."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from regard.checkpoint import resolve
from regard.data.streams import Streams, Windows, encode_running
from regard.errors import UserError
from regard.file_io import load_tensors
from regard.objectives.loss import token_loss
from regard.training import train
from regard.training.events import Saved
from regard.training.loop import GradientTrainer
from regard.training.prepare import prepare
from regard.training.run import Run

over_models = pytest.mark.parametrize("model", ["lstm", "xl"])


def _files(out):
    folder = resolve(out, ("latest",))
    return [load_tensors(folder / name) for name in ("weights.safetensors", "training/trainer.safetensors")]


def _equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@over_models
def test_a_run_resumes_with_its_carried_states(running, tmp_path, model):
    """20 steps with 2 lanes: several epochs, and a stop in the middle of one."""
    recipe = running(model, "plan.accumulate=2", "plan.steps=20", "plan.evaluate=5")
    straight = Run(recipe, tmp_path / "straight")
    assert isinstance(straight.prepared.batches, Streams)
    assert len(straight.prepared.batches) == 2 * 10
    list(straight)
    for event in Run(recipe, tmp_path / "stopped"):
        if isinstance(event, Saved) and event.step == 15:
            break
    saved = _files(tmp_path / "stopped")[1]
    lanes = [name for name in saved if name.startswith("lanes/")]
    assert {name.split("/")[1] for name in lanes} == {"0", "1"}
    list(Run(recipe, tmp_path / "stopped", "resume"))
    for ours, theirs in zip(_files(tmp_path / "straight"), _files(tmp_path / "stopped")):
        _equal(ours, theirs)
    # A file without some of them is refused.
    run = Run(recipe, tmp_path / "stopped", "resume")
    for changed, found in ((None, "absent"), (torch.zeros(1, 1, 3), "1×1×3")):
        other = {name: value for name, value in _files(tmp_path / "stopped")[1].items() if name != "lanes/1/0"}
        with pytest.raises(UserError, match=rf"lanes/1/0 is {found}, but the model carries"):
            run.trainer.restore(other if changed is None else {**other, "lanes/1/0": changed}, 20)
    lane = saved["lanes/1/0"]
    for changed, found in ((lane * float("nan"), ": .* NaN or infinite"), (lane.long(), " has numbers of type int64")):
        with pytest.raises(UserError, match=f"lanes/1/0{found}"):
            run.trainer.restore({**saved, "lanes/1/0": changed}, 20)
    # A state that is not restored makes a difference.
    run = Run(recipe, tmp_path / "other")
    for event in run:
        if isinstance(event, Saved) and event.step == 15:
            break
    run = Run(recipe, tmp_path / "other", "resume")
    run.trainer._carried.clear()
    list(run)
    weights = _files(tmp_path / "straight")[0]
    assert any(not torch.equal(weights[name], one) for name, one in _files(tmp_path / "other")[0].items())


def test_a_run_is_not_resumed_with_another_number_of_lanes(running, tmp_path):
    list(Run(running("lstm", "plan.accumulate=2", "plan.steps=4"), tmp_path / "run"))
    for count in (1, 4):
        with pytest.raises(UserError, match=rf"plan.accumulate={count} on 1 rank: .* 2 batches a step"):
            Run(running("lstm", f"plan.accumulate={count}", "plan.steps=4"), tmp_path / "run", "resume")


@over_models
def test_training_reads_a_stream_as_one_text(running, model):
    """With a rate of almost 0, the losses of a lane are those of its text read in one piece, in float64."""
    recipe = running(model, "model.dropout=0", "plan.rate=1e-30", "plan.accumulate=2", "plan.decay=0")
    if model == "xl":  # a memory that holds every earlier token: the windows see what the whole text sees
        recipe = replace(recipe, model=replace(recipe.model, memory=200))
    prepared = prepare(recipe)
    loss_module = prepared.build().double()
    batches = prepared.batches
    losses = [step.loss for step in train(loss_module, batches, recipe.plan)]
    tokens, targets = (
        [torch.cat([batches.batch(number)[name] for number in range(lane, 16, 2)], dim=1) for lane in range(2)]
        for name in ("tokens", "targets")
    )
    module = loss_module.model.eval()
    with torch.no_grad():
        features, _ = module.advance(torch.cat(tokens), module.start(rows=16, capacity=64))
        for step, loss in enumerate(losses):
            part = slice(8 * step, 8 * step + 8)
            whole = token_loss(module, features[:, part], torch.cat(targets)[:, part]) / (16 * 8)
            assert loss == pytest.approx(float(whole), abs=1e-9)


@over_models
def test_a_new_epoch_starts_with_a_fresh_state(running, model):
    """The state at the end of an epoch has no effect on the next one."""
    recipe = running(model, "plan.steps=25")
    prepared = prepare(recipe)
    epoch = len(prepared.batches)
    found = []
    for change in (False, True):
        trainer = GradientTrainer(prepared.build(), prepared.batches, recipe.plan)
        for step in islice(trainer.steps(0), epoch + 2):
            if change and step.n == epoch:
                trainer._carried.clear()
        found.append(trainer.state())
    _equal(*found)
    assert any(name.startswith("lanes/0/") for name in found[0])


@over_models
def test_random_windows_carry_nothing(running, tmp_path, model):
    recipe = running(model, "data.order=random", "plan.steps=4")
    run = Run(recipe, tmp_path / "run")
    assert type(run.prepared.batches) is Windows
    list(run)
    assert not any(name.startswith("lanes") for name in run.trainer.state())


def test_a_model_that_carries_nothing_is_refused_for_contiguous_text(running, tmp_path):
    recipe = running("lstm", "model=gpt", "model.width=8", "model.layers=1", "model.context=8", "plan.steps=4")
    with pytest.raises(UserError, match=r"^data\.order=contiguous: this model carries no state .*; use model=lstm"):
        Run(recipe, tmp_path / "run")


@over_models
def test_evaluation_carries_the_state_through_the_validation_text(running, tmp_path, model):
    recipe = running(model, "data.window=4", "plan.steps=4")
    if model == "xl":
        recipe = replace(recipe, model=replace(recipe.model, memory=200))
    run = Run(recipe, tmp_path / "run")
    list(run)
    ids, _ = encode_running(run.prepared.fields["text"].tokenizer, run.prepared.corpus.valid)
    text = torch.from_numpy(ids.astype("int64"))
    length = -(-(len(text) - 1) // 4)  # one lane of four rows: the text is short
    total = 0.0
    with torch.no_grad():
        module = run.model.double().eval()
        for row in range(4):
            part = text[row * length : (row + 1) * length + 1]
            features, _ = module.advance(part[None, :-1], module.start(rows=1, capacity=length))
            total += float(token_loss(module, features, part[None, 1:]))
    found = run.evaluate().values["loss"]
    assert found == pytest.approx(total / (len(text) - 1), rel=1e-6)


def test_the_objective_returns_a_detached_state_and_starts_from_it(running):
    prepared = prepare(running("lstm", "model.dropout=0"))
    loss_module = prepared.build()
    first, second = prepared.batches.batch(0), prepared.batches.batch(1)
    sums, state = loss_module(first, 0)
    assert not state.hidden.requires_grad
    fresh, _ = loss_module(second, 0)
    carried, _ = loss_module(second, 0, state)
    assert carried != fresh
    none, nothing = loss_module(replace(first, segment=None), 0)
    assert nothing is None
    torch.testing.assert_close(none, sums)
