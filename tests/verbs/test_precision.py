"""The precision of a loaded model: bfloat16 weights, and runs that were trained in float32."""

from pathlib import Path

import pytest
import torch

from regard.data.fields import NumberField, NumbersField
from regard.data.synthetic import Adding
from regard.heads import NumberHeadConfig
from regard.models import GptConfig, HeadedConfig, ModelConfig, RecurrentLmConfig, TcnConfig
from regard.objectives import Regression
from regard.recipes import Plan, Recipe
from regard.training.evaluate import evaluate
from regard.verbs import loaded
from regard.verbs.loaded import load
from saved import save_run

DATA = Adding(train=1, valid=4, test=0, length=6)
BODIES = {
    "lstm": RecurrentLmConfig(numbers=2, width=8, embed=8, dropout=0.0),
    "tcn": TcnConfig(numbers=2, width=8, embed=8, layers=2, dropout=0.0, embedding_dropout=0.0),
    "gpt": GptConfig(numbers=2, width=8, heads=2, layers=1, inner=8, context=8),
}


def adding_run(folder: Path, body: ModelConfig, plan: Plan) -> Path:
    """The run of a tiny model of the adding problem, with the weights that a seed gives it."""
    config = HeadedConfig(body, NumberHeadConfig().for_body(body))
    recipe = Recipe("tiny", "a tiny model of numbers", DATA, body, Regression(), plan, ("mse",))
    return save_run(folder / "adding", recipe, config, {"values": NumbersField(2), "number": NumberField(1)})


@pytest.mark.parametrize("name", BODIES)
def test_a_model_of_numbers_in_bfloat16_is_near_the_one_in_float32(tmp_path: Path, name: str) -> None:
    run, examples = adding_run(tmp_path, BODIES[name], Plan()), DATA.load().valid
    scores = [evaluate(load(run, "cpu", precision), examples, ("mse",)).values for precision in ("float32", "bf16")]
    assert scores[1]["mse"] == pytest.approx(scores[0]["mse"], rel=0.05)


@pytest.mark.parametrize("planned", ["auto", "float32"])
def test_a_run_that_was_trained_in_float32_is_loaded_in_float32(
    tmp_path: Path, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "choose_precision", lambda name, device: "bf16" if name == "auto" else name)
    run = adding_run(tmp_path, BODIES["tcn"], Plan(precision=planned))  # type: ignore[arg-type]
    model = load(run, "cpu")
    dtype = torch.float32 if planned == "float32" else torch.bfloat16
    assert (next(model.module.parameters()).dtype, model.precision) == (
        dtype,
        "float32" if planned == "float32" else "bf16",
    )
    assert load(run, "cpu", "bf16").precision == "bf16"  # a stated precision counts
