"""Compiled blocks keep the names of their weights and the numbers of the model, and rest while a run judges."""

import dataclasses

import pytest
import torch

from encoded import text_columns
from regard.data.batches import Batches
from regard.models import GptConfig
from regard.objectives import LossModule, TeacherForcing
from regard.recipes import Plan
from regard.tasks import TASKS
from regard.training import train
from regard.training.evaluate import evaluation_mode
from regard.training.loop import compile_blocks

TEXTS = [[4 + (n + k) % 7 for k in range(3 + n % 4)] for n in range(24)]
PLAN = Plan(steps=4, batch_tokens=64, rate=0.05, warmup=0, schedule="constant", optimizer="sgd")


def _judged() -> LossModule:
    torch.manual_seed(1)
    config = GptConfig(vocab=12, width=16, heads=2, layers=2, inner=32, context=16, dropout=0.0)
    return LossModule(config.build(), TeacherForcing())


def test_every_block_is_compiled_in_place_and_nothing_is_renamed():
    loss_module = _judged()
    names = set(loss_module.state_dict())
    assert compile_blocks(loss_module.model) == 2
    assert set(loss_module.state_dict()) == names
    assert compile_blocks(torch.nn.Linear(2, 2)) == 0


def test_at_rest_nothing_is_compiled(monkeypatch):
    """A compiler that refuses to work is not asked."""

    def refuse(*_given):
        raise AssertionError("compiled")

    loss_module = _judged()
    batch = Batches(text_columns(TEXTS), TASKS["language"], budget=64, seed=1).batch(0)
    expected = loss_module.model(batch)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", refuse)
    torch._dynamo.reset()
    compile_blocks(loss_module.model)
    with evaluation_mode(loss_module.model, compiled=True):
        torch.testing.assert_close(loss_module.model(batch), expected)
    with pytest.raises(Exception, match="compiled"):
        loss_module.model(batch)
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_compiled_run_is_the_run():
    ends = []
    for compiled in (False, True):
        loss_module = _judged()
        batches = Batches(text_columns(TEXTS), TASKS["language"], budget=64, seed=1)
        list(train(loss_module, batches, dataclasses.replace(PLAN, compile=compiled)))
        ends.append(loss_module.state_dict())
    assert ends[0].keys() == ends[1].keys()
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], rtol=1e-3, atol=1e-5)
