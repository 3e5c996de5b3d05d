"""The temporal convolutional network: its receptive field, its block, its settings."""

from typing import Any

import pytest
import torch

from regard.errors import UserError
from regard.models import TcnConfig
from regard.models.tcn import TemporalBlock


@pytest.mark.parametrize(("kernel", "layers"), [(2, 1), (3, 2), (2, 4)])
def test_an_output_depends_on_its_receptive_field_and_nothing_else(kernel: int, layers: int) -> None:
    config = TcnConfig(numbers=2, width=8, embed=8, kernel=kernel, layers=layers, dropout=0, embedding_dropout=0)
    torch.manual_seed(1)
    model, field = config.build_body().double(), config.receptive_field
    for weight in model.parameters():  # no path is closed by a ReLU
        weight.data.abs_()
    x = torch.rand(1, field + 5, 2).double().requires_grad_()
    model.features(x)[0, -3].sum().backward()
    assert x.grad is not None
    last = x.shape[1] - 3
    reached = x.grad[0].abs().sum(1).nonzero().flatten().tolist()
    assert reached == list(range(last - field + 1, last + 1))


def test_a_block_is_its_equations() -> None:
    torch.manual_seed(1)
    block, x = TemporalBlock(3, 4, 2, 2, dropout=0.5).eval(), torch.randn(2, 3, 7)
    y, _ = block(x, (block.first.zeros(2), block.second.zeros(2)))
    inner = torch.relu(block.second.definition(torch.relu(block.first.definition(x))))
    assert block.residual is not None
    torch.testing.assert_close(y, torch.relu(inner + block.residual(x)))
    assert TemporalBlock(4, 4, 2, 1, 0.0).residual is None


def test_dropout_drops_whole_channels() -> None:
    torch.manual_seed(1)
    block = TemporalBlock(4, 64, 2, 1, dropout=0.5)
    dropped = (block._drop(torch.ones(1, 64, 9)) == 0).float().mean(2)
    assert set(dropped.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": 1}, "model.kernel=1: must be at least 2"),
        ({"layers": 0}, "model.layers=0"),
        ({"layers": 40}, "model.layers=40: an output would depend on more than 1,048,576 positions"),
        ({"kernel": 10**9}, "with model.kernel=1000000000; give fewer layers or a smaller kernel"),
        ({"embedding_dropout": 1.0}, "model.embedding_dropout=1.0"),
        ({"tied": True, "embed": 8}, "needs model.embed=8 equal to model.width=256"),
        ({"vocab": 5, "numbers": 2}, "model.numbers=2: follows from the data"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TcnConfig(**settings)


def test_padding_may_be_anywhere() -> None:
    torch.manual_seed(1)
    model = TcnConfig(vocab=9, width=8, embed=8, layers=2, dropout=0, embedding_dropout=0).build().double().eval()
    real = torch.tensor([[False, False, True, False, True, True]])
    found, after = model.advance(torch.tensor([[3, 3, 4, 3, 5, 6]]), model.start(), real)
    expected, last = model.advance(torch.tensor([[4, 5, 6]]), model.start())
    torch.testing.assert_close(found[real], expected[0], atol=1e-12, rtol=0)
    for one, other in zip(after.inputs, last.inputs):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
