"""Positions: order, encodings, extrapolation; and residual connections."""

import numpy as np
import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain import positions, residuals
from regard.explain.positions import KINDS, OFFSET, PositionsOptions, counter, lookback_batch, order_difference
from regard.explain.residuals import SHAPE, LayerwiseTransformer, ResidualsOptions, position_r2
from regard.layers.positions import sinusoids
from regard.report.sections import Heatmaps


def test_without_positions_the_order_of_words_has_no_effect() -> None:
    assert order_difference("none") < 1e-12
    assert all(order_difference(kind) > 1e-3 for kind in KINDS[1:])


def test_the_counter_counts() -> None:
    assert (counter() @ torch.tensor([8.0, 4.0, 2.0, 1.0])).tolist() == list(range(16))


def test_the_task() -> None:
    tokens, targets = lookback_batch(7, 5, torch.Generator().manual_seed(0))
    assert (targets[:, :OFFSET] == IGNORED).all()
    assert (targets[:, OFFSET:] == tokens[:, :-OFFSET]).all()


def test_every_kind_of_positions_is_tested_at_every_length() -> None:
    result = positions.run(PositionsOptions(length=6, lengths=(6, 12), steps=2))
    encodings, bits = next(one for one in result.sections if isinstance(one, Heatmaps)).heatmaps
    assert np.shape(encodings.values) == (100, 20)  # dimensions 0 to 99, positions 0 to 19
    assert (encodings.x_label, encodings.y_label) == (bits.x_label, "dimension") == ("position", "dimension")
    assert np.shape(bits.values) == (4, 16)
    found = result.data
    assert [one.positions for one in found["extrapolation"]] == list(found["order"]) == list(KINDS)
    assert all(one.lengths == [6, 12] and len(one.accuracy) == 2 for one in found["extrapolation"])


def test_a_probe_finds_positions_in_sinusoids_and_not_in_noise() -> None:
    encodings = sinusoids(torch.arange(10), 16).expand(40, 10, 16)
    assert position_r2(encodings + 0.01 * torch.randn(40, 10, 16)) > 0.95
    assert position_r2(torch.randn(40, 10, 16)) < 0.3


@pytest.mark.parametrize("timing", [False, True])
def test_a_layerwise_transformer_equals_its_stack_without_timing(timing: bool) -> None:
    torch.manual_seed(0)
    network = LayerwiseTransformer(SHAPE, 9, timing).eval()
    tokens = torch.randint(9, (2, 8))
    layers = network.layers(tokens)
    assert len(layers) == SHAPE.layers + 1
    through = network.stack(network.embedding(tokens, torch.arange(8)[None]))
    assert torch.allclose(layers[-1], through, atol=1e-5) != timing


@pytest.mark.slow
def test_residual_connections_and_timing_signals_carry_positions() -> None:
    found = {one.name: one for one in residuals.run(ResidualsOptions(length=8, steps=100)).data["networks"]}
    whole, without, timed = found.values()
    assert list(found) == ["with residuals", "without", "without, with timing signals"]
    assert whole.accuracy > 0.9 > 0.5 > without.accuracy
    assert min(whole.position_r2) > 0.5
    assert max(without.position_r2[1:]) < 0.5
    assert min(timed.position_r2[:-1]) > 0.9
    assert max(whole.offset_attention) > 0.5 > max(without.offset_attention)
    assert len(whole.weights) == 3
    assert len(whole.weights[0]) == 8
