"""Trainers of word vectors: processes that share the matrices, the pieces of a step, the learning rate, the words."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.objectives.hogwild import Piece, Pool
from regard.recipes import KINDS, change, find_recipe
from regard.training.prepare import Prepared, prepare

RECIPES = ["word2vec", "glove"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 lines of 400 words each; one word of each line is rare."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("text") / "text.txt"
    words = [f"word{number}" for number in range(90)]
    path.write_text("".join(f"{' '.join(random.choice(words, 400))} rare{n}\n" for n in range(3)))
    return path


def prepared(name: str, text: Path, *settings: str) -> Prepared:
    small = [f"data.train={text}", "model.width=4", "plan.steps=2", "plan.batch_tokens=10000"]
    return prepare(change(find_recipe(name), [*small, *settings], KINDS))


@pytest.mark.parametrize("name", RECIPES)
def test_the_matrices_have_what_another_process_has_trained(
    name: str, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the first process trains nothing, and has its first piece until the other one has trained a piece."""
    trainer: Any = prepared(name, text, "objective.workers=2").trainer()
    monkeypatch.setattr(trainer, "shortest", 50)
    first, train_piece, trained = os.getpid(), trainer.train_piece, multiprocessing.get_context("fork").Event()

    def others_train(piece: Piece) -> Any:
        if os.getpid() == first:
            assert trained.wait(600)
            return np.zeros(2)
        sums = train_piece(piece)
        trained.set()
        return sums

    monkeypatch.setattr(trainer, "train_piece", others_train)
    before = {key: tensor.clone() for key, tensor in (trainer.model.state_dict() | trainer.state()).items()}
    step = next(trainer.steps(0))
    assert step.loss > 0
    now = trainer.model.state_dict() | trainer.state()
    assert [key for key in before if torch.equal(before[key], now[key])] == []


def test_a_worker_that_ends_between_two_steps_is_an_error(tmp_path: Path) -> None:
    pool = Pool(lambda piece: np.ones(2), workers=2)
    pieces = [Piece(0, 0, 0, 1, 0.1)]
    assert pool.run(pieces).tolist() == [1, 1]
    ((process, _),) = pool._others
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(UserError, match=r"a worker process ended \(exit code -9\); resume the run"):
        pool.run(pieces)
    pool.close()


@pytest.mark.parametrize("name", RECIPES)
def test_every_worker_has_several_pieces(name: str, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for workers in (1, 2, 8):
        trainer: Any = prepared(name, text, f"objective.workers={workers}").trainer()
        monkeypatch.setattr(type(trainer), "shortest", 10)
        pieces = trainer.pieces(0)
        first, last = trainer.span(0)
        assert [piece.start for piece in pieces] == [first, *(piece.stop for piece in pieces[:-1])]
        assert pieces[-1].stop == last
        assert len(pieces) == 1 if workers == 1 else 4 * workers <= len(pieces) <= 5 * workers


@pytest.mark.parametrize("name", RECIPES)
def test_the_learning_rate_is_that_of_the_plan(name: str, text: Path) -> None:
    linear = prepared(name, text, "plan.schedule=linear", "plan.rate=0.1", "plan.steps=4")
    assert [step.rate for step in linear.trainer().steps(0)] == pytest.approx([0.1, 0.075, 0.05, 0.025])
    half = next(linear.trainer(passed=lambda: 0.5).steps(0))  # half of plan.minutes has passed
    assert half.rate == pytest.approx(0.05)
    rising = prepared(name, text, "plan.schedule=constant", "plan.rate=0.1", "plan.warmup=2")
    assert [step.rate for step in rising.trainer().steps(0)] == pytest.approx([0.05, 0.1])


def test_a_lower_rate_changes_the_vectors_less(text: Path) -> None:
    """The pieces are trained with the rate of the plan, not only reported with it."""
    for name in RECIPES:
        moved = []
        for passed in (0.0, 0.9):
            trainer = prepared(name, text, "plan.schedule=linear").trainer(passed=lambda passed=passed: passed)
            before = trainer.model.state_dict()["output"].clone()
            next(trainer.steps(0))
            moved.append(float((trainer.model.state_dict()["output"] - before).norm()))
        assert 0 < moved[1] < moved[0] / 3


@pytest.mark.parametrize("name", RECIPES)
def test_the_speed_is_in_words(name: str, text: Path) -> None:
    found, began = prepared(name, text), time.perf_counter()
    step = next(found.trainer().steps(0))
    assert step.tokens == 1200  # neither rare words nor line ends
    assert 0 < step.seconds < time.perf_counter() - began
    assert found.batches.unit == "words"


@pytest.mark.parametrize(
    "setting",
    ["clip=0.5", "decay=0.1", "optimizer=sgd", "accumulate=2", "freeze=1", "layer_decay=0.5", "betas=0.8,0.9"],
)
@pytest.mark.parametrize("name", [*RECIPES, "bigram"])
def test_settings_of_the_plan_that_have_no_effect_are_refused(name: str, setting: str) -> None:
    with pytest.raises(UserError, match=rf"plan\.{setting}: objective=\w+ trains without this setting; leave it out"):
        change(find_recipe(name), [f"plan.{setting}"], KINDS)
    same = [f"plan.{one}" for one in ("clip=1", "decay=0.01", "accumulate=1")]
    assert change(find_recipe(name), same, KINDS) == find_recipe(name)
    change(find_recipe("text"), [f"plan.{setting}"], KINDS)
    changed = replace(find_recipe("text"), plan=replace(find_recipe("text").plan, clip=0.5))
    change(changed, ["model=bigram"], KINDS)  # nobody stated the recipe's own settings
    change(changed, ["model=bigram", "plan=plan"], KINDS)
