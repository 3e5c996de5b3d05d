"""Classes, labels and numbers of texts: every model family trains for each of them."""

import numpy as np
import pytest
import torch

from regard.data.batches import collate
from regard.recipes import KINDS, change, find_recipe
from regard.tasks import TASKS
from regard.training.prepare import prepare

SMALL = {
    "kim": ["model.filters=4", "model.embed=4"],
    "lstm": ["model.width=8", "model.embed=4"],
    "gru": ["model.width=8", "model.embed=4"],
    "rnn": ["model.width=8", "model.embed=4"],
    "tcn": ["model.width=8", "model.embed=4", "model.layers=2"],
    "bert": ["model.width=8", "model.heads=2", "model.layers=1", "model.inner=8", "model.context=16"],
    "gpt": ["model.width=8", "model.heads=2", "model.layers=1", "model.inner=8", "model.context=16"],
    "structured": ["model.width=8", "model.embed=4"],
}

FAST = ("kim", "lstm", "bert", "structured")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    rows = [("a fine day", "good", "warm|dry", 3.5), ("rain all day", "bad", "", -1), ("rain", "bad", "wet", 0)]
    path.write_text("text,label,labels,number\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows * 4))
    return str(path)


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in SMALL]
)
@pytest.mark.parametrize("name", ["classify", "multilabel", "rate"])
def test_every_family_trains(table: str, name: str, model: str) -> None:
    plan = ["plan.batch_tokens=64", "plan.device=cpu", "plan.clip=0", "plan.rate=0.02", "plan.warmup=0"]
    settings = [f"data.train={table}", f"data.valid={table}", f"model={model}", *SMALL[model], *plan, "plan.steps=24"]
    prepared = prepare(change(find_recipe(name, KINDS), settings, KINDS))
    steps = [step.loss for step in prepared.trainer().steps(0)]
    assert len(steps) == 24
    assert np.isfinite(steps).all()
    assert np.mean(steps[-6:]) < np.mean(steps[:6])


def test_the_batch_of_several_labels() -> None:
    rows = [
        {"text": np.array([5, 6, 7]), "labels": np.array([[0.0, 1.0]], np.float32)},
        {"text": np.array([8]), "labels": np.array([[1.0, 1.0]], np.float32)},
        {"text": np.empty(0, np.int64), "labels": np.empty((0, 2), np.float32)},  # a filler row
    ]
    batch = collate(rows, TASKS["labels"])
    assert batch["tokens"].tolist() == [[5, 6, 7], [8, 0, 0], [0, 0, 0]]
    assert batch["targets"][:2].tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert batch["targets"][2].isnan().all()
    assert batch.counts == {"tokens": 4, "targets": 2}
    sums, _ = TASKS["labels"].objective()(lambda _: torch.zeros(3, 2), batch, 0)
    assert float(sums["nll"]) == pytest.approx(4 * np.log(2))
