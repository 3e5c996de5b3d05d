"""The cost of layers: operations, path lengths, memory and exponents."""

import pytest
import torch

from regard.explain import TOPICS
from regard.explain.layers import (
    KINDS,
    LINEAR,
    SIZE,
    LayerKind,
    PeakMemory,
    Sizes,
    cheaper_note,
    count_operations,
    growth_exponent,
    lengths_to,
    measure,
    measure_path,
)

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("self-attention", 4),
        ("unfused self-attention", 4),
        ("recurrent", 16),
        ("contiguous convolution", 6),
        ("dilated convolution", 6),
        ("recurrent + attention", 20),
    ],
)
def test_operations_at_length_and_width_1000(name: str, billions: int) -> None:
    kind, sizes = BY_NAME[name], Sizes(1000, 1000, 32)
    assert count_operations(kind, sizes) == kind.operations(sizes) == billions * 10**9


@pytest.mark.parametrize(("name", "factor"), [("recurrent", 4), ("contiguous convolution", 1.5)])
def test_the_length_up_to_which_attention_is_cheaper(name: str, factor: float) -> None:
    sizes = Sizes(SIZE, SIZE, 32)
    counts = {each: (0, count_operations(BY_NAME[each], sizes)) for each in ("self-attention", *LINEAR)}
    assert f"{LINEAR[name]} up to n = {factor:g}·d (n = {factor * 8:.0f} at width 8)" in cheaper_note(counts, 8)
    for length, cheaper in ((int(64 * factor) - 2, True), (int(64 * factor) + 2, False)):
        attention, other = (count_operations(BY_NAME[each], Sizes(length, 64, 8)) for each in ("self-attention", name))
        assert (attention < other) == cheaper


def test_the_prose_names_the_length_at_which_attention_and_an_lstm_cost_the_same() -> None:
    prose = " ".join(TOPICS["layers"].prose)
    assert "both cost the same at n = 4·d" in prose
    assert "cheaper than a recurrent layer while n is smaller than d" not in prose


def test_the_cost_of_a_window_is_linear_in_the_length() -> None:
    kind = BY_NAME["restricted"]
    near, twice = (count_operations(kind, Sizes(length, 64, 32)) for length in (2048, 4096))
    assert twice == 2 * near  # linear in the length
    assert kind.operations(Sizes(4096, 64, 32)) <= twice < 3 * kind.operations(Sizes(4096, 64, 32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_layer_keeps_the_shape_of_its_input(kind: LayerKind) -> None:
    x = torch.randn(1, 300, 8)
    assert kind.build(Sizes(300, 8, 4))(x).shape == x.shape


def test_fused_and_unfused_self_attention_agree() -> None:
    x, sizes = torch.randn(1, 50, 8), Sizes(50, 8, 4)
    fused, written = (BY_NAME[name].build(sizes)(x) for name in ("self-attention", "unfused self-attention"))
    torch.testing.assert_close(fused, written)


@pytest.mark.parametrize("length", [2, 9, 10, 28])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_measured_path_is_that_of_the_formula(kind: LayerKind, length: int) -> None:
    sizes = Sizes(length, 2, 3)
    assert measure_path(kind, sizes) == kind.path_length(sizes)


@pytest.mark.parametrize(
    ("name", "depth"), [("restricted", 5), ("contiguous convolution", 8), ("dilated convolution", 3)]
)
def test_the_path_length_is_the_depth_at_which_the_first_position_reaches_the_last(name: str, depth: int) -> None:
    """The whole gradient through a stack of layers, without the steps of `measure_path`."""
    kind, sizes = BY_NAME[name], Sizes(16, 4, 3)
    assert kind.path_length(sizes) == depth
    reached = []
    for count in (depth - 1, depth):
        x = torch.randn(1, 16, 4, dtype=torch.float64, requires_grad=True)
        states = x
        for at in range(count):
            states = (kind.build(sizes) if kind.step is None else kind.step(sizes, at)).double()(states)
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), x)
        reached.append(bool(gradient[0, 0].any()))
    assert reached == [False, True]


def test_path_lengths() -> None:
    sizes = Sizes(1000, 64, 10)
    paths = {kind.name: kind.path_length(sizes) for kind in KINDS}
    assert (paths["recurrent"], paths["restricted"]) == (1000, 100)
    assert (paths["contiguous convolution"], paths["dilated convolution"]) == (500, 7)


def test_peak_memory() -> None:
    x = torch.ones(1000)
    with PeakMemory() as memory:
        for _ in range(5):
            y = x + 1  # 4,000 bytes; the old tensor is alive while the new one is made
        y.add_(1)
        y.view(10, 100)
    assert memory.peak == 8000
    assert memory.current == 4000
    del y
    assert memory.current == 0


def test_growth_exponents() -> None:
    assert growth_exponent([1, 2, 4, 8], [9, 8, 32, 128]) == pytest.approx(2.0)
    assert lengths_to(64, 3) == [16, 32, 64]


def test_memory_and_operations_grow_as_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.explain.layers.TIMING_SECONDS", 0.001)
    found = {kind.name: measure(kind, lengths_to(1024, 3), width=8, window=8) for kind in KINDS}
    assert list(found) == [kind.name for kind in KINDS]
    grow = {name: [round(cost.exponents[key]) for key in ("memory", "operations")] for name, cost in found.items()}
    assert grow["self-attention"] == [1, 2]
    assert grow["unfused self-attention"] == [2, 2]
    assert grow["restricted"] == grow["recurrent"] == [1, 1]
    assert grow["contiguous convolution"] == grow["dilated convolution"] == [1, 1]
    assert all(second > 0 for cost in found.values() for second in cost.seconds)
