"""Weights reordered for oneDNN: the same results, and an unchanged model."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.decode import beam, collect, greedy, stream, with_onednn
from regard.decode.fast_layers import OneDnnLinear
from regard.layers.convolution import WeightNorm
from regard.layers.product import Product, Readout
from regard.layers.transformer import ACTIVATIONS, FeedForward, Shape
from regard.models import (
    ConvS2sConfig,
    GptConfig,
    LstmnConfig,
    ModelConfig,
    Seq2SeqConfig,
    TcnConfig,
    TransformerConfig,
)
from regard.recording import record

SIZES = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "context": 32}
CASES: dict[str, ModelConfig] = {
    "gpt": GptConfig(vocab=37, **SIZES),
    "adaptive": GptConfig(vocab=37, softmax="adaptive", cutoffs=(9,), **SIZES),
    "transformer": TransformerConfig(source_vocab=37, target_vocab=37, readout_bias=True, **SIZES),
    "seq2seq": Seq2SeqConfig(source_vocab=37, target_vocab=37, width=16, embed=8),
    "lstmn": LstmnConfig(vocab=37, width=16, embed=8, context=32),
    "convs2s": ConvS2sConfig(source_vocab=37, target_vocab=37, width=16, channels=(24,), context=32),
    "tcn": TcnConfig(vocab=37, width=16, embed=8, layers=2),
}
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")


def built(config: ModelConfig) -> tuple[nn.Module, Callable[[int], object]]:
    """A model with large weights, and a function that makes its start state for a number of rows."""
    model = config.build().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.5)
    source = torch.randint(4, 37, (9, 6)) if model.config.reads_source else None

    def start(rows: int) -> object:
        return model.start(None if source is None else source[:rows], rows=rows, capacity=12)  # type: ignore[operator]

    return model, start


@needs_onednn
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_the_results_are_the_same(name: str, rows: int) -> None:
    model, start = built(CASES[name])
    onednn, first = with_onednn(model), torch.arange(5, 5 + rows)

    def decode(decoder: object) -> Tensor:
        return collect(stream(decoder, start(rows), first, greedy, 10, -1))[0]  # type: ignore[arg-type, type-var]

    assert decode(onednn).tolist() == decode(model).tolist()
    found, expected = (beam(each, start(rows), first, 4, 8, 2, 1.0) for each in (onednn, model))
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-4, rtol=1e-4)


@needs_onednn
def test_a_decoder_made_during_a_recording_is_not_recorded() -> None:
    model, start = built(CASES["gpt"])
    with record(model) as tape:
        onednn = with_onednn(model)
        with torch.no_grad():
            onednn.step(torch.arange(5, 14), start(9))
    assert len(tape) == 0


@needs_onednn
def test_a_step_leaves_the_model_unchanged() -> None:
    model, start = built(CASES["gpt"])
    onednn = with_onednn(model)
    with torch.no_grad():
        logits, _ = onednn.step(torch.arange(5, 14), start(9))
        expected, _ = model.step(torch.arange(5, 14), start(9))
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        with pytest.raises(IndexError):
            onednn.step(torch.full((9,), 99), start(9))  # no such token
    assert not any(isinstance(part, OneDnnLinear) for part in model.modules())
    assert "OneDnnLinear(in_features=16, out_features=32, bias=True, activation=gelu" in repr(onednn)
    assert "OneDnnReadout" in repr(onednn)
    assert not any(part.training for part in with_onednn(model).modules())
    assert all(a is b for a, b in zip(model.parameters(), with_onednn(model).parameters()))


@needs_onednn
@pytest.mark.parametrize("name", ["transformer", "seq2seq"])
@torch.no_grad()
def test_under_autocast_the_products_are_those_of_torch(name: str) -> None:
    model, start = built(CASES[name])
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = (one.step(torch.arange(4, 9), start(5))[0] for one in (with_onednn(model), model))  # type: ignore[operator]
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.1, atol=0.5)


@needs_onednn
def test_with_gradients_the_model_itself_steps() -> None:
    model, start = built(CASES["gpt"])
    logits, _ = with_onednn(model).step(torch.arange(5, 14), start(9))
    logits.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters() if weight.dim() > 1)


@needs_onednn
def test_normalised_weights_are_computed_once() -> None:
    model, _ = built(CASES["tcn"])
    found = [part for part in with_onednn(model).modules() if isinstance(part, WeightNorm)]
    own = [part for part in model.modules() if isinstance(part, WeightNorm)]
    assert all(part.fixed is None for part in own)
    with torch.no_grad():
        assert all(part.weight is part.fixed for part in found)
        for part, other in zip(found, own, strict=True):
            torch.testing.assert_close(part.weight, other.weight, atol=0.0, rtol=0.0)
    assert all(part.weight.requires_grad for part in found)  # with gradients they are computed


def test_other_dtypes_and_modules_are_left_as_they_are() -> None:
    model, _ = built(CASES["gpt"])
    for other in (model.double(), nn.Linear(3, 3)):
        assert with_onednn(other) is other


@needs_onednn
def test_queries_of_a_source_are_a_slice_of_one_matrix() -> None:
    """Cross-attention multiplies by the rows of the queries alone, and a step of many beams does so too."""
    model, _ = built(CASES["transformer"])
    onednn = with_onednn(model)
    with torch.no_grad():
        onednn.step(torch.arange(5, 14), onednn.start(torch.randint(4, 37, (9, 6)), None, 9, 12))
    slices = [set(part._reordered) for part in onednn.modules() if isinstance(part, OneDnnLinear)]
    assert any((None, 16) in one for one in slices)


@needs_onednn
def test_layers_of_other_classes_are_left_as_they_are() -> None:
    """A subclass may compute something else, and an activation may not be in the table."""

    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model, start = built(CASES["gpt"])
    block: Any = model.stack.blocks[0]
    block.attention.out = Doubled(16, 16)
    block.feed.activation = nn.functional.leaky_relu
    onednn, tokens = with_onednn(model), torch.arange(5, 14)
    assert isinstance(onednn.stack.blocks[0].attention.out, Doubled)
    with torch.no_grad():
        torch.testing.assert_close(
            onednn.step(tokens, start(9))[0], model.step(tokens, start(9))[0], atol=1e-5, rtol=1e-5
        )


@needs_onednn
def test_a_readout_with_another_matrix_is_computed_anew() -> None:
    model, _ = built(CASES["gpt"])
    readout, x = with_onednn(model).output, torch.randn(9, 16)
    for weight in (torch.randn(37, 16), torch.randn(37, 16)):
        torch.testing.assert_close(readout(Product(x, weight)), x @ weight.mT, atol=1e-5, rtol=1e-5)


@needs_onednn
@torch.no_grad()
def test_every_kind_of_feed_forward_layer_computes_the_same() -> None:
    x = torch.randn(8, 4)
    for activation, gated, bias in product(ACTIVATIONS, (False, True), (False, True)):
        shape = Shape(width=4, heads=2, inner=6, activation=activation, gated=gated, feed_bias=bias)
        model = nn.ModuleList([FeedForward(shape), Readout()]).eval()
        faster = with_onednn(model)
        assert faster is not model
        torch.testing.assert_close(faster[0](x), model[0](x), atol=1e-6, rtol=1e-5)
