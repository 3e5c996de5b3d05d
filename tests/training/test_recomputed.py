"""Gradient checkpointing: blocks that are computed again have the same gradients and keep less memory."""

import dataclasses

import pytest
import torch

from encoded import pair_columns, text_columns
from regard.data.batches import Batches
from regard.models import GptConfig, TransformerConfig
from regard.objectives import LossModule, TeacherForcing
from regard.recipes import KINDS, Plan, change, find_recipe
from regard.tasks import TASKS
from regard.training import train
from regard.training.estimate import estimate

PLAN = Plan(steps=3, batch_tokens=64, rate=0.05, warmup=0, schedule="constant", optimizer="sgd")
TEXTS = [[4 + (n + k) % 7 for k in range(3 + n % 4)] for n in range(24)]
SHAPE = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "context": 16, "dropout": 0.3}
MODELS = {
    "gpt": ("language", GptConfig(vocab=12, **SHAPE)),
    "memory": ("language", GptConfig(vocab=12, **SHAPE, positions="xl", memory=4)),
    "t5": ("translate", TransformerConfig(source_vocab=12, target_vocab=12, **SHAPE, positions="t5")),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_trained_weights_are_the_same(name):
    task, config = MODELS[name]
    columns = text_columns(TEXTS) if task == "language" else pair_columns(list(zip(TEXTS, TEXTS)))
    ends = []
    for checkpoint in (False, True):
        torch.manual_seed(1)
        loss_module = LossModule(config.build(), TeacherForcing())
        batches = Batches(columns, TASKS[task], budget=64, seed=1)
        list(train(loss_module, batches, dataclasses.replace(PLAN, checkpoint=checkpoint)))
        ends.append(loss_module.state_dict())
    for weight, same in zip(ends[0].values(), ends[1].values()):
        torch.testing.assert_close(weight, same)


def test_less_is_kept_for_the_backward_pass(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"one two three four five six seven {n}\n" for n in range(60)))
    shape = [
        "model=gpt",
        "model.width=32",
        "model.heads=2",
        "model.layers=6",
        "model.inner=128",
        "plan.batch_tokens=256",
    ]
    recipe = change(find_recipe("text"), [f"data.train={text}", *shape], KINDS)
    bytes_kept = {
        checkpoint: estimate(change(recipe, [f"plan.checkpoint={checkpoint}"], KINDS)).activations_bytes
        for checkpoint in ("false", "true")
    }
    assert bytes_kept["true"] < 0.4 * bytes_kept["false"]


def test_a_model_without_blocks_ignores_the_setting():
    loss_module = LossModule(torch.nn.Linear(2, 2), TeacherForcing())
    assert list(train(loss_module, None, dataclasses.replace(PLAN, checkpoint=True), start=PLAN.steps)) == []
