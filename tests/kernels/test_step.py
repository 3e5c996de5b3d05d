"""The programs of one decoded token against their definitions: on a GPU, or in Triton's interpreter."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels.step import Norm, attend_step, linear_step
from regard.layers.transformer import ACTIVATIONS
from regard.scores import masked_softmax
from tritons import DEVICE, interpret, runs, starts_interpreter


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def layer_norm(width: int) -> nn.Module:
    norm = nn.LayerNorm(width, device=DEVICE)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    return norm


def rms_norm(width: int) -> nn.Module:
    norm = nn.RMSNorm(width, eps=1e-6, device=DEVICE)
    nn.init.normal_(norm.weight)
    return norm


@runs
@pytest.mark.parametrize(
    ("rows", "width", "columns"), [(1, 24, 40), (1, 600, 8), (3, 40, 33), (20, 136, 48), (70, 64, 96)]
)
@pytest.mark.parametrize("made", [None, layer_norm, rms_norm])
def test_a_product_with_its_norm(rows, width, columns, made):
    torch.manual_seed(rows + width)
    x, weight, bias = 3 + normal(rows, width), normal(columns, width), normal(columns)
    norm = made(width) if made else None
    found = linear_step(x, weight, bias, Norm.of(norm) if norm else None)
    doubled = x.double() if norm is None else norm.double()(x.double())
    close(found, F.linear(doubled, weight.double(), bias.double()))


@runs
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("activation", ["none", *ACTIVATIONS])
def test_what_follows_a_product(rows, activation):
    torch.manual_seed(7)
    x, weight, other = normal(rows, 32), normal(24, 32), normal(rows, 24)
    plain = F.linear(x.double(), weight.double())
    expected = plain if activation == "none" else ACTIVATIONS[activation](plain)
    close(linear_step(x, weight, activation=activation), expected)
    close(linear_step(x, weight, activation=activation, add=other), expected + other.double())
    close(linear_step(x, weight, activation=activation, times=other), expected * other.double())


def definition(q: Tensor, keys: Tensor, values: Tensor, queries: int, scale: float, table: Tensor | None) -> Tensor:
    b, h, _, d = keys.shape
    asked = q.double().view(b, queries, h, d).transpose(1, 2)
    logits = scale * asked @ keys.double().mT
    return (masked_softmax(logits, table) @ values.double()).transpose(1, 2).reshape(b * queries, h * d)


@runs
@pytest.mark.parametrize(("queries", "slots", "head"), [(1, 5, 8), (1, 130, 64), (4, 70, 16), (16, 33, 24)])
@pytest.mark.parametrize("kind", ["none", "keys", "pairs", "bias"])
def test_reading_a_source(queries, slots, head, kind):
    torch.manual_seed(slots)
    b, h = 2, 3
    q, keys, values = normal(b * queries, h * head), normal(b, h, slots, head), normal(b, h, slots, head)
    table = {
        "none": None,
        "keys": torch.rand(b, 1, 1, slots, device=DEVICE) > 0.4,
        "pairs": torch.rand(b, 1, queries, slots, device=DEVICE) > 0.4,
        "bias": normal(1, h, queries, slots),
    }[kind]
    if kind == "pairs":
        table[0, :, 0] = False  # one that sees nothing
    found = attend_step(q, keys, values, queries, head**-0.5, table)
    close(found, definition(q, keys, values, queries, head**-0.5, table))


@runs
@pytest.mark.parametrize(("queries", "used", "slots"), [(1, 0, 4), (1, 70, 80), (4, 12, 140), (5, 64, 100)])
def test_a_growing_past_is_written_and_read(queries, used, slots):
    torch.manual_seed(used)
    b, h, d = 2, 3, 16
    qkv = normal(b * queries, 3 * h * d)
    keys, values = normal(b, h, slots, d), normal(b, h, slots, d)
    at = used + torch.arange(queries, device=DEVICE)
    # Each sees some of the past and of the new only itself; what stands behind is not even looked at.
    table = torch.rand(b, 1, queries, slots, device=DEVICE) > 0.3
    table[..., at] = torch.eye(queries, dtype=torch.bool, device=DEVICE)
    table[..., used + queries :] = False
    k, v = (part.reshape(b, queries, h, d).transpose(1, 2) for part in qkv.chunk(3, -1)[1:])
    expected_keys, expected_values = keys.index_copy(2, at, k), values.index_copy(2, at, v)
    keys[:, :, used:] = float("nan")
    rows = qkv.chunk(3, -1)[0]
    found = attend_step(rows, keys, values, queries, 0.3, table, qkv[:, h * d :], at)
    assert torch.equal(keys[:, :, : used + queries], expected_keys[:, :, : used + queries])
    assert torch.equal(values, expected_values)
    close(found, definition(rows, expected_keys, expected_values, queries, 0.3, table))


@starts_interpreter
def test_programs_in_the_interpreter():
    interpret(__file__)
