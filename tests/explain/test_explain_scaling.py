"""What dividing by √width does to a softmax."""

import math

import pytest
import torch

from regard.explain.scaling import even, jacobian_norm, scaling


def test_the_norm_of_the_jacobian() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64)
    jacobians = [torch.autograd.functional.jacobian(lambda x: x.softmax(0), row) for row in logits]
    torch.testing.assert_close(jacobian_norm(logits.softmax(1)), torch.stack([j.norm() for j in jacobians]))


def test_division_keeps_the_softmax_soft() -> None:
    narrow, wide = scaling(widths=(8, 512), keys=32, queries=200)
    assert narrow.plain.spread == pytest.approx(math.sqrt(8), rel=0.1)
    assert wide.plain.spread == pytest.approx(math.sqrt(512), rel=0.1)
    assert wide.scaled.spread == pytest.approx(1.0, rel=0.1)
    assert wide.plain.entropy < 0.1 * even(32) < 0.8 * even(32) < wide.scaled.entropy < even(32)
    assert wide.plain.gradient < 0.1 * wide.scaled.gradient
    assert wide.scaled.gradient == pytest.approx(narrow.scaled.gradient, rel=0.1)
    assert wide.plain.sorted == sorted(wide.plain.sorted, reverse=True)
    assert sum(wide.plain.sorted) == pytest.approx(1.0)


def test_the_seed_decides() -> None:
    first, same, other = (scaling((16,), 8, 10, seed) for seed in (1, 1, 2))
    assert first == same != other
