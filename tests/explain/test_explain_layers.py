"""The complexity table: operations, paths, memory and slopes."""

import pytest
import torch

from regard.explain.layers import KINDS, Kind, Sizes, counted, layers, lengths_to, slope
from regard.explain.memory import Bytes

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("self-attention", 4),
        ("the same, written out", 4),
        ("recurrent", 16),
        ("convolutional", 6),
        ("recurrent + attention", 20),
    ],
)
def test_operations_at_length_and_width_1000(name: str, billions: int) -> None:
    kind, sizes = BY_NAME[name], Sizes(1000, 1000, 32)
    assert counted(kind, sizes) == kind.operations(sizes) == billions * 10**9


def test_a_window_costs_its_width() -> None:
    kind = BY_NAME["restricted"]
    near, twice = (counted(kind, Sizes(length, 64, 32)) for length in (2048, 4096))
    assert twice == 2 * near  # linear in the length
    assert kind.operations(Sizes(4096, 64, 32)) <= twice < 3 * kind.operations(Sizes(4096, 64, 32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_layer_gives_what_it_was_given_the_shape_of(kind: Kind) -> None:
    x = torch.randn(1, 300, 8)
    assert kind.build(Sizes(300, 8, 4))(x).shape == x.shape


def test_both_routes_of_self_attention_agree() -> None:
    x, sizes = torch.randn(1, 50, 8), Sizes(50, 8, 4)
    fused, written = (BY_NAME[name].build(sizes)(x) for name in ("self-attention", "the same, written out"))
    torch.testing.assert_close(fused, written)


@pytest.mark.parametrize(("name", "layers"), [("restricted", 5), ("self-attention", 1)])
def test_a_path_is_as_many_layers_as_the_first_position_needs_to_reach_the_last(name: str, layers: int) -> None:
    kind, sizes = BY_NAME[name], Sizes(16, 4, 3)
    assert kind.distance(sizes) == layers
    layer = kind.build(sizes)
    reached = []
    for depth in (layers - 1, layers):
        x = torch.randn(1, 16, 4, requires_grad=True)
        states = x
        for _ in range(depth):
            states = layer(states)
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), x)
        reached.append(bool(gradient[0, 0].any()))
    assert reached == [False, True]


def test_paths_in_figures() -> None:
    sizes = Sizes(1000, 64, 10)
    paths = {kind.name: kind.distance(sizes) for kind in KINDS}
    assert (paths["recurrent"], paths["restricted"], paths["convolutional"]) == (1000, 100, 7)


def test_bytes_count_what_is_held_at_a_time() -> None:
    x = torch.ones(1000)
    with Bytes() as held:
        for _ in range(5):
            y = x + 1  # 4,000 bytes, the last one alive while the next is made
        y.add_(1)
        y.view(10, 100)
    assert held.most == 8000
    assert held.now == 4000
    del y
    assert held.now == 0


def test_slopes() -> None:
    assert slope([1, 2, 4, 8], [9, 8, 32, 128]) == pytest.approx(2.0)
    assert lengths_to(64, 3) == [16, 32, 64]


def test_memory_and_operations_grow_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.explain.layers.MOMENT", 0.001)
    found = {cost.name: cost for cost in layers(lengths_to(1024, 3), width=8, window=8)}
    assert list(found) == [kind.name for kind in KINDS]
    grow = {name: [round(cost.slopes[key]) for key in ("memory", "operations")] for name, cost in found.items()}
    assert grow["self-attention"] == [1, 2]
    assert grow["the same, written out"] == [2, 2]
    assert grow["restricted"] == grow["recurrent"] == grow["convolutional"] == [1, 1]
    assert all(second > 0 for cost in found.values() for second in cost.seconds)
