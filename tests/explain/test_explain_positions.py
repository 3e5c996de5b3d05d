"""Order, encodings, reach; and what residual connections carry."""

import pytest
import torch

from regard.explain.positions import BACK, KINDS, counter, permuted, positions, recall
from regard.explain.residuals import SHAPE, Layered, position_known, residuals
from regard.explain.small import IGNORED, finished
from regard.layers.positions import sinusoids


def test_without_positions_man_bites_dog_is_dog_bites_man() -> None:
    assert permuted("none") < 1e-12
    assert all(permuted(kind) > 1e-3 for kind in KINDS[1:])


def test_the_counter_counts() -> None:
    assert (counter() @ torch.tensor([8.0, 4.0, 2.0, 1.0])).tolist() == list(range(16))


def test_the_task() -> None:
    tokens, targets = recall(7, 5, torch.Generator().manual_seed(0))
    assert (targets[:, :BACK] == IGNORED).all()
    assert (targets[:, BACK:] == tokens[:, :-BACK]).all()


def test_every_kind_is_tried_at_every_length() -> None:
    found = finished(positions(trained=6, lengths=(6, 12), steps=2))
    assert [one.positions for one in found.reach] == [one.positions for one in found.order] == list(KINDS)
    assert all(one.lengths == [6, 12] and len(one.accuracy) == 2 for one in found.reach)
    torch.testing.assert_close(torch.tensor(found.encodings), sinusoids(torch.arange(20), 48))


def test_a_place_can_be_read_off_sinusoids_and_not_off_noise() -> None:
    told = sinusoids(torch.arange(10), 16).expand(40, 10, 16)
    assert position_known(told + 0.01 * torch.randn(40, 10, 16)) > 0.95
    assert position_known(torch.randn(40, 10, 16)) < 0.3


@pytest.mark.parametrize("timing", [False, True])
def test_a_layered_reader_is_its_stack(timing: bool) -> None:
    torch.manual_seed(0)
    network = Layered(SHAPE, 9, timing).eval()
    tokens = torch.randint(9, (2, 8))
    layers = network.layers(tokens)
    assert len(layers) == SHAPE.layers + 1
    through = network.stack(network.embedding(tokens, torch.arange(8)[None]))
    assert torch.allclose(layers[-1], through, atol=1e-5) != timing


@pytest.mark.slow
def test_what_the_three_panels_show() -> None:
    found = {one.name: one for one in finished(residuals(length=8, steps=100))}
    whole, without, timed = found.values()
    assert list(found) == ["with residuals", "without", "without, with timing signals"]
    assert whole.accuracy > 0.9 > 0.5 > without.accuracy
    assert min(whole.known) > 0.5
    assert max(without.known[1:]) < 0.5
    assert min(timed.known[:-1]) > 0.9
    assert max(whole.there) > 0.5 > max(without.there)
    assert len(whole.weights) == 3
    assert len(whole.weights[0]) == 8
