"""Weights that are finite and too large: no verb gives NaN as an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_threads import CASES, KEPT, opened  # noqa: F401  a fixture

from kept.answers import among
from regard import UserError
from regard.training.evaluate import evaluate
from regard.verbs import Loaded

NO_OUTPUTS = ("neighbours", "logits", "states")
TOO_LARGE = r"outputs of the model are NaN or infinite; some weights are too large; use another checkpoint"


def spoiled(model: Loaded) -> Loaded:
    """The model with weights whose sums and products are infinite."""
    with torch.no_grad():
        for name, weight in model.module.named_parameters():
            if "embedding" not in name:  # T5 divides by their size
                weight.copy_(torch.where(weight < 0, -3e38, 3e38))
    return model


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_OUTPUTS])
def test_verbs_refuse_outputs_that_are_not_finite(name: str, opened: Callable[..., Loaded]) -> None:  # noqa: F811
    run, call = CASES[name]
    model = opened(run)
    with among(KEPT):
        call(model, 1)
        with pytest.raises(UserError, match=f"{run}: {TOO_LARGE}"):
            call(spoiled(model), 1)


@pytest.mark.parametrize("run", ["gpt", "classify", "tag", "embed", "adding"])
def test_an_evaluation_refuses_outputs_that_are_not_finite(run: str, opened: Callable[..., Loaded]) -> None:  # noqa: F811
    model = opened(run)
    metrics = ["loss", *(name for name in model.recipe.metrics if name != "bleu")]
    with among(KEPT), pytest.raises(UserError, match=f"{run}: {TOO_LARGE}"):
        evaluate(spoiled(model), model.examples()[1][:4], metrics)
