"""The receptive field of a TCN: the formula, gradients, connections, and the distances that can be learned."""

import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain.receptive import connections, delayed_batch, distances_around, gradient_positions, learn
from regard.models import TcnConfig


@pytest.mark.parametrize(("kernel", "layers", "field"), [(2, 1, 3), (2, 3, 15), (3, 2, 13), (5, 2, 25)])
def test_formula_gradients_and_connections_agree(kernel: int, layers: int, field: int) -> None:
    assert TcnConfig(kernel=kernel, layers=layers).receptive_field == field
    assert gradient_positions(kernel, layers, seed=0) == list(range(1 - field, 1))
    drawn = connections(kernel, layers)
    assert len(drawn.rows) == len(drawn.links) + 1 == 2 * layers + 1
    assert drawn.linked(0) == {field - 1}
    assert drawn.linked(2 * layers) == set(range(field))
    assert len(drawn.linked(1)) == kernel


def test_the_target_is_the_symbol_a_distance_back() -> None:
    tokens, targets = delayed_batch(5, 3, torch.Generator().manual_seed(0))
    assert (targets[:, :5] == IGNORED).all()
    assert torch.equal(targets[:, 5:], tokens[:, :-5])


def test_distances_are_on_both_sides_of_the_end_of_the_field() -> None:
    assert distances_around(13) == [6, 11, 12, 13, 14]
    assert distances_around(3) == [1, 2, 3, 4]


def test_a_distance_is_learned_inside_the_field_only() -> None:
    inside, outside = (learn(2, 1, distance, steps=60, seed=0) for distance in (2, 3))
    assert (inside.inside, outside.inside) == (True, False)
    assert inside.accuracy > 0.95
    assert outside.accuracy < 0.2
