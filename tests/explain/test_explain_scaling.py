"""The softmax with and without division by √width."""

import math
from typing import Any

import pytest
import torch

from regard.explain import scaling
from regard.explain.scaling import Scaling, ScalingOptions, jacobian_norm


def measured(**options: Any) -> list[Scaling]:
    return scaling.run(ScalingOptions(**options)).data["widths"]


def test_the_norm_of_the_jacobian() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64)
    jacobians = [torch.autograd.functional.jacobian(lambda x: x.softmax(0), row) for row in logits]
    torch.testing.assert_close(jacobian_norm(logits.softmax(1)), torch.stack([j.norm() for j in jacobians]))


def test_division_keeps_entropy_and_gradient() -> None:
    narrow, wide = measured(widths=(8, 512), keys=32, queries=200)
    uniform = math.log(32)
    assert narrow.unscaled.spread == pytest.approx(math.sqrt(8), rel=0.1)
    assert wide.unscaled.spread == pytest.approx(math.sqrt(512), rel=0.1)
    assert wide.scaled.spread == pytest.approx(1.0, rel=0.1)
    assert wide.unscaled.entropy < 0.1 * uniform < 0.8 * uniform < wide.scaled.entropy < uniform
    assert wide.unscaled.gradient < 0.1 * wide.scaled.gradient
    assert wide.scaled.gradient == pytest.approx(narrow.scaled.gradient, rel=0.1)
    assert wide.unscaled.sorted == sorted(wide.unscaled.sorted, reverse=True)
    assert sum(wide.unscaled.sorted) == pytest.approx(1.0)


def test_results_depend_on_the_seed_only() -> None:
    first, same, other = (measured(widths=(16,), keys=8, queries=10, seed=seed) for seed in (1, 1, 2))
    assert first == same != other
