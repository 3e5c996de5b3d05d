"""Averaged SGD with the non-monotonic trigger: the algorithm, and the run that evaluates and saves the mean."""

import random
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard import load
from regard.config import override
from regard.errors import UserError
from regard.file_io import load_tensors
from regard.recipes import KINDS, Plan, Recipe, find_recipe
from regard.training.events import Evaluated
from regard.training.optim import AveragedSgd, build_optimizer
from regard.training.run import Run

LAST = "steps/000012"


def triggered(losses: list[float], n: int) -> int | None:
    """The evaluation that starts averaging, by algorithm 1 of Merity et al. 2018."""
    logs: list[float] = []
    for t, v in enumerate(losses):
        if t > n and v > min(logs[: t - n]):
            return t
        logs.append(v)
    return None


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_trigger_is_that_of_the_paper(n: int) -> None:
    draw = random.Random(n)
    for _ in range(50):
        losses = [draw.choice([1.0, 2.0, 3.0, 4.0]) for _ in range(9)]
        optimizer = AveragedSgd([{"params": [nn.Parameter(torch.zeros(2))]}], 0.1, n)
        found = None
        for t, loss in enumerate(losses):
            optimizer.evaluated(loss)
            found = t if found is None and optimizer.averaged else found
        assert found == triggered(losses, n), losses


def test_the_mean_is_over_the_weights_from_the_trigger_on_and_can_be_swapped_in() -> None:
    weight = nn.Parameter(torch.tensor([4.0, -2.0], dtype=torch.double))
    optimizer = AveragedSgd([{"params": [weight], "weight_decay": 0.0}], 0.25, 0)
    seen: list[Any] = []
    for step in range(6):
        weight.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            optimizer.evaluated(1.0)
            optimizer.evaluated(2.0)
        if step >= 1:
            seen.append(weight.detach().clone())
    torch.testing.assert_close(weight.detach(), torch.tensor([4.0, -2.0], dtype=torch.double) / 2**6)  # no momentum
    optimizer.swap()
    torch.testing.assert_close(weight.detach(), torch.stack(seen).mean(0))
    optimizer.swap()
    assert torch.equal(weight.detach(), seen[-1])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """An AWD-LSTM of a few words. Its validation text has other words, so that its loss rises, and averaging starts."""
    draw, place = random.Random(1), tmp_path_factory.mktemp("text")
    for name, words in (("train", "cat cat cat cat sat dog"), ("valid", "dog dog cat sat dog dog")):
        (place / name).write_text(" ".join(draw.choice(words.split()) for _ in range(1000)))
    settings = [
        *(f"data.train={place / 'train'}", f"data.valid={place / 'valid'}", "data.window=10", "plan.rate=5"),
        *("model.width=8", "model.embed=8", "model.hidden=12", "plan.batch_tokens=80", "plan.steps=12"),
        *("plan.evaluate=2", "plan.trigger=0"),
        *("plan.device=cpu", "plan.threads=1", "plan.log=2", "plan.keep=9"),
    ]
    return override(find_recipe("awd-lstm"), settings, KINDS)


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Evaluated]]:
    """A run without an interruption, and its evaluations."""
    run = Run(recipe, tmp_path_factory.mktemp("straight") / "run")
    return run, [event for event in run if isinstance(event, Evaluated)]


@pytest.fixture(scope="module")
def straight(finished: tuple[Run, list[Evaluated]]) -> Path:
    """The folder of that run."""
    return finished[0].out


def test_a_run_that_is_stopped_before_or_after_the_trigger_is_bit_equal(
    recipe: Recipe, straight: Path, tmp_path: Path
) -> None:
    for stop, out in ((1, tmp_path / "early"), (9, tmp_path / "late")):
        run = Run(recipe, out)
        events = iter(run)
        while run.state.step < stop:
            next(events)
        events.close()
        resumed = Run(None, out, "resume")
        assert resumed.state.step >= stop
        assert isinstance(resumed.trainer.optimizer, AveragedSgd)  # type: ignore[attr-defined]
        assert bool(resumed.trainer.optimizer.averaged) == (stop == 9)  # type: ignore[attr-defined]
        assert list(resumed)
        for file in ("weights.safetensors", "training/trainer.safetensors"):
            assert (out / LAST / file).read_bytes() == (straight / LAST / file).read_bytes(), file


def test_an_interrupt_while_the_mean_takes_the_place_of_the_weights_waits(
    recipe: Recipe, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, swap, evaluating = Run.evaluate, AveragedSgd.swap, []

    def watched(run: Run, share: Any) -> Any:
        evaluating.append(run.state.step)
        return evaluate(run, share)

    def pressed(optimizer: AveragedSgd) -> None:
        swap(optimizer)
        if optimizer.averaged and evaluating[-1] == 10:
            evaluating.append(0)
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", watched)
        patch.setattr(AveragedSgd, "swap", pressed)
        with pytest.raises(KeyboardInterrupt):
            list(Run(recipe, out))
    for file in ("weights.safetensors", "training/trainer.safetensors"):
        saved = "steps/000010"
        assert (out / saved / file).read_bytes() == (straight / saved / file).read_bytes(), file


def test_the_mean_is_evaluated_and_saved_and_training_continues_the_other_weights(
    finished: tuple[Run, list[Evaluated]], straight: Path
) -> None:
    run, evaluations = finished
    saved = load(straight / LAST, "cpu").module
    raw = load_tensors(straight / LAST / "training/trainer.safetensors")
    different = 0
    for name, weight in run.model.named_parameters():
        assert torch.equal(weight, raw[f"optimizer/model.{name}/weight"]), "the trainer has the other weights"
        different += not torch.equal(weight, saved.get_parameter(name))
    assert different
    with run.trainer.averaged():  # type: ignore[attr-defined]
        assert all(torch.equal(weight, saved.get_parameter(name)) for name, weight in run.model.named_parameters())
    assert run.evaluate().values["loss"] == evaluations[-1].values["loss"]


@pytest.mark.parametrize("inside", [False, True])
def test_the_state_of_a_trainer_restores_it_whatever_weights_the_model_has(
    finished: tuple[Run, list[Evaluated]], recipe: Recipe, tmp_path: Path, inside: bool
) -> None:
    trainer: Any = finished[0].trainer
    with trainer.averaged() if inside else nullcontext():
        state = {name: value.clone() for name, value in trainer.state().items()}
    other: Any = Run(recipe, tmp_path / "run").trainer
    other.restore(state, 12)
    for one, two in ((nullcontext(), nullcontext()), (trainer.averaged(), other.averaged())):
        with one, two:
            for name, weight in other.model.named_parameters():
                assert torch.equal(weight, trainer.model.get_parameter(name)), name


def test_a_damaged_state_is_refused(straight: Path, recipe: Recipe, tmp_path: Path) -> None:
    run = Run(recipe, tmp_path / "run")
    state = load_tensors(straight / LAST / "training/trainer.safetensors")
    for name, message in (
        ("trigger/averaged", "trigger/averaged: not the state of plan.optimizer=asgd"),
        ("optimizer/model.embedding.weight/mean", "optimizer/model.embedding.weight/mean is absent"),
    ):
        with pytest.raises(UserError, match=message):
            run.trainer.restore({key: value for key, value in state.items() if key != name}, 12)
    for name, value, message in (
        ("trigger/averaged", torch.tensor(float("nan")), "trigger/averaged: not the state of plan.optimizer=asgd"),
        ("trigger/losses", torch.tensor([1]), "trigger/losses: not the state of plan.optimizer=asgd"),
        ("optimizer/model.embedding.weight/mean", None, "embedding.weight/mean: .* are NaN or infinite"),
    ):
        with pytest.raises(UserError, match=message):
            run.trainer.restore({**state, name: state[name] / 0 if value is None else value}, 12)


def test_the_plan_chooses_it_and_checks_its_settings() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), Plan(optimizer="asgd", trigger=3, rate=30.0))
    assert isinstance(optimizer, AveragedSgd)
    assert (optimizer.trigger, optimizer.param_groups[0]["momentum"]) == (3, 0)
    with pytest.raises(UserError, match=r"plan\.trigger=-1: give 0 or more"):
        Plan(trigger=-1)
