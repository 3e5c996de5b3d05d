"""The receptive field of a TCN: the formula, gradients, connections, and the distances that can be learned."""

import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain.options import ReceptiveOptions
from regard.explain.positions import lookback_batch
from regard.explain.receptive import connections, distances_around, gradient_positions, learn
from regard.models import TcnConfig
from regard.render.charts import connections_svg, curve_svg
from regard.render.terminal import connections_text
from regard.report.sections import Curve, Line


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
    tokens, targets = lookback_batch(29, 3, torch.Generator().manual_seed(0), offset=5)
    assert (targets[:, :5] == IGNORED).all()
    assert torch.equal(targets[:, 5:], tokens[:, :-5])


def test_distances_are_on_both_sides_of_the_end_of_the_field() -> None:
    assert distances_around(13) == [6, 11, 12, 13, 14]
    assert distances_around(3) == [1, 2, 3, 4]


def test_a_distance_is_learned_inside_the_field_only() -> None:
    inside, outside = (learn(2, 1, distance, steps=120, seed=0) for distance in (2, 3))
    assert (inside.inside, outside.inside) == (True, False)
    assert inside.accuracy > 0.95
    assert outside.accuracy < 0.2


def test_with_the_default_options_the_farthest_symbols_of_the_field_are_learned() -> None:
    options = ReceptiveOptions()
    far = [learn(options.kernel, options.layers, distance, options.steps, options.seed) for distance in (11, 12)]
    assert all(one.inside and one.accuracy > 0.95 for one in far)


def test_connections_in_the_terminal_and_as_a_picture() -> None:
    drawn = connections(2, 1)
    assert [line.plain for line in connections_text(drawn)] == [
        "· · ●  output",
        "· ● ●  block 1, convolution 1",
        "● ● ●  input",
    ]
    picture = connections_svg(drawn)
    assert (picture.count("<circle"), picture.count("<path")) == (9, 6)


def test_a_spread_is_drawn_as_a_bar_at_each_point() -> None:
    plain, spread = (Line("a", [1, 2], [1.0, 2.0], given) for given in ((), (0.5, 0.0)))
    counts = [curve_svg(Curve("", "x", "y", [line])).count('opacity="0.4"') for line in (plain, spread)]
    assert counts == [0, 1]  # a spread of 0 has no bar
    with pytest.raises(ValueError, match="2 ys and 1 numbers"):
        Line("a", [1, 2], [1.0, 2.0], [0.5])
