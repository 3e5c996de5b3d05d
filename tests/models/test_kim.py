"""Kim's network: windows by definition, the largest norm of the output layer, channels, settings."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import Batch
from regard.errors import UserError
from regard.heads import ClassHeadConfig, pooled
from regard.models import HeadedConfig, KimConfig
from regard.models.kim import MaxNormLinear

TINY = KimConfig(vocab=11, labels=3, kernels=(2, 3, 7), filters=2, embed=4)


def by_definition(model: Any, tokens: list[int]) -> Tensor:
    """ReLU(w · window + b) for each window, place by place; places outside of the text are zeros."""
    x = model.embedding(torch.tensor(tokens))
    if model.change is not None:
        x = torch.cat([x, x + model.change(torch.tensor(tokens))], dim=-1)
    rows = []
    for at in range(len(tokens)):
        features = []
        for size, convolution in zip(model.config.kernels, model.filters):
            sums = convolution.bias.clone()
            for place in range(size):
                token = at - (size - 1) // 2 + place
                if 0 <= token < len(tokens):
                    sums = sums + convolution.weight[:, :, place] @ x[token]
            features.append(torch.relu(sums))
        rows.append(torch.cat(features))
    return torch.stack(rows)


@pytest.mark.parametrize("vectors", ["static", "non-static", "multichannel"])
@pytest.mark.parametrize("length", [1, 2, 9])  # texts that are shorter and longer than the widest filter
def test_features_are_the_definition_and_padding_changes_nothing(vectors: Any, length: int) -> None:
    config = KimConfig(vocab=11, labels=3, kernels=(2, 3, 7), filters=2, embed=4, vectors=vectors)
    model = config.build().double().eval()
    if model.change is not None:
        torch.nn.init.normal_(model.change.weight)
    tokens = torch.randint(11, (length,)).tolist()
    expected = by_definition(model, tokens)
    torch.testing.assert_close(model.features(torch.tensor([tokens]))[0], expected)
    real = torch.zeros(1, length + 5, dtype=torch.bool)
    real[0, torch.randperm(length + 5)[:length]] = True
    padded = torch.randint(11, real.shape)
    padded[real] = torch.tensor(tokens)
    torch.testing.assert_close(model.features(padded, real)[real], expected)
    logits = model.readout(model.features(padded, real), real)
    torch.testing.assert_close(logits[0], model.readout_(expected.amax(0)))


def test_the_maximum_of_a_text_without_tokens_is_zero() -> None:
    real = torch.tensor([[True, False], [False, False]])
    found = pooled(torch.tensor([[[-2.0], [5.0]], [[7.0], [7.0]]]), real, "max")
    assert found.tolist() == [[-2.0], [0.0]]


def test_the_norm_is_kept_as_by_a_projection_after_each_update() -> None:
    layer = MaxNormLinear(4, 3, max_norm=0.7)
    weight = layer.weight.detach().clone().requires_grad_()
    bias = layer.bias.detach().clone().requires_grad_()
    sgd, other = (torch.optim.SGD(each, lr=0.5) for each in (layer.parameters(), [weight, bias]))
    for _ in range(5):
        x, y = torch.randn(6, 4), torch.randint(3, (6,))
        with torch.no_grad():  # the definition: after an update, rows above the limit are scaled to it
            weight.copy_(weight * (0.7 / weight.norm(dim=1, keepdim=True)).clamp(max=1))
        for optimizer, logits in ((sgd, layer(x)), (other, F.linear(x, weight, bias))):
            optimizer.zero_grad()
            (3 * F.cross_entropy(logits, y)).backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight, weight)
    assert layer.weight.norm(dim=1).max() > 0.7  # the last update is not scaled yet
    before = layer.weight.detach().clone()
    scaled = before * (0.7 / before.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(layer.eval()(x), F.linear(x, scaled, layer.bias))
    assert torch.equal(layer.weight, before)  # evaluation changes no weight


def test_without_a_largest_norm_the_layer_is_a_linear_one() -> None:
    layer, x = MaxNormLinear(4, 3, max_norm=0.0), torch.randn(6, 4)
    for mode in (True, False):
        torch.testing.assert_close(layer.train(mode)(x), F.linear(x, layer.weight, layer.bias))


def test_static_vectors_are_not_trained_and_the_second_channel_starts_equal() -> None:
    batch = Batch({"tokens": torch.randint(11, (2, 5))}, {"tokens": torch.ones(2, 5, dtype=torch.bool)}, {"tokens": 10})
    for vectors, trained in (("static", False), ("non-static", True), ("multichannel", False)):
        model = KimConfig(vocab=11, labels=3, filters=2, embed=4, vectors=vectors).build()  # type: ignore[arg-type]
        model(batch).sum().backward()
        assert (model.embedding.weight.grad is not None) == trained
        assert (model.change is not None) == (vectors == "multichannel")
        if model.change is not None:
            assert not model.change.weight.any()
            assert model.change.weight.grad is not None


def test_another_head_takes_the_maximum_too() -> None:
    config = HeadedConfig(TINY, ClassHeadConfig(3).for_body(TINY))
    assert config.head.pool == "max"
    assert config.filter_sizes == (2, 2, 3, 3, 7, 7)
    assert TINY.resized(TINY.width) == TINY


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": ()}, "model.kernels=: give different numbers"),
        ({"kernels": (3, 0)}, "model.kernels=3,0: give different numbers"),
        ({"kernels": (3, 3)}, "model.kernels=3,3: give different numbers"),
        ({"filters": 0}, "model.filters=0"),
        ({"max_norm": -1.0}, "model.max_norm=-1.0"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        KimConfig(**settings)
