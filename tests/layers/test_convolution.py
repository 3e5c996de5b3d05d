"""Convolutions: the fast route is the definition, whole and in pieces, and the weight is normalised."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from regard.layers.convolution import CausalConvolution, CentredConvolution


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (3, 4), (5, 2)])
def test_one_pass_and_pieces_are_the_definition(kernel: int, dilation: int) -> None:
    torch.manual_seed(1)
    layer, x = CausalConvolution(4, 6, kernel, dilation, deviation=1.0).double(), torch.randn(2, 4, 9).double()
    nn.init.normal_(layer.bias)
    expected = layer.definition(x)
    whole, _ = layer(x, layer.zeros(2))
    torch.testing.assert_close(whole, expected, atol=1e-12, rtol=0)
    before, found = layer.zeros(2), []
    assert before.shape == (2, 4, (kernel - 1) * dilation)
    for piece in x.split([1, 3, 5], dim=2):
        y, before = layer(piece, before)
        found.append(y)
    torch.testing.assert_close(torch.cat(found, 2), expected, atol=1e-12, rtol=0)


def test_nothing_is_computed_on_the_device_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CausalConvolution, "_length", None)  # a call would make torch import its Python kernels
    with torch.device("meta"):
        assert CausalConvolution(4, 6, 3).gain.shape == (6, 1, 1)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_centred_convolution_is_its_definition(kernel: int) -> None:
    torch.manual_seed(1)
    layer, x = CentredConvolution(4, 6, kernel, deviation=1.0).double(), torch.randn(2, 4, 7).double()
    nn.init.normal_(layer.bias)
    found, half = layer(x), kernel // 2
    assert found.shape == (2, 6, 7)
    for t in range(7):
        terms = [layer.weight[:, :, i] @ x[0, :, t + i - half] for i in range(kernel) if 0 <= t + i - half < 7]
        torch.testing.assert_close(found[0, :, t], layer.bias + sum(terms), atol=1e-12, rtol=0)


def test_the_last_inputs_of_a_short_row_are_those_before_its_end() -> None:
    layer, x = CausalConvolution(2, 3, 3, 2), torch.randn(3, 2, 6)
    _, after = layer(x, layer.zeros(3), torch.tensor([6, 2, 0]))
    assert torch.equal(after[0], x[0, :, 2:])
    assert torch.equal(after[1], torch.cat([torch.zeros(2, 2), x[1, :, :2]], 1))
    assert not after[2].any()


def test_the_weight_is_normalised_as_torch_does_it() -> None:
    layer = CausalConvolution(3, 5, 4, deviation=0.5)
    torch.testing.assert_close(layer.weight, layer.v)  # the gain starts as the norm
    reference = weight_norm(nn.Conv1d(3, 5, 4), dim=0)
    with torch.no_grad():
        layer.gain.uniform_(0.5, 2.0)
        reference.load_state_dict(
            {
                "bias": layer.bias,
                "parametrizations.weight.original0": layer.gain,
                "parametrizations.weight.original1": layer.v,
            }
        )
    torch.testing.assert_close(layer.weight, reference.weight)
    torch.testing.assert_close(torch.linalg.vector_norm(layer.weight, dim=(1, 2)), layer.gain.flatten())
