"""ConvS2S against the equations of Gehring et al. 2017, one sentence and one position at a time."""

from dataclasses import replace
from math import sqrt

import pytest
import torch
from torch import Tensor

from encoded import pair_batch
from regard.errors import UserError
from regard.models import ConvS2s, ConvS2sConfig
from regard.recording import attentions

CONFIG = ConvS2sConfig(
    source_vocab=11, target_vocab=9, width=4, layers=3, channels=(3, 5), kernels=(3, 5, 1), context=12, dropout=0.0
)
PAIRS = [([4, 5, 6, 7, 10], [8, 7]), ([10, 4], [5, 4, 6, 8]), ([9], [4])]


@pytest.fixture
def model() -> ConvS2s:
    torch.manual_seed(1)
    model = CONFIG.build().double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("gain", "bias")):
                weight.uniform_(-1, 1)
    return model


def gated(convolution: object, x: list[Tensor], t: int, shift: int) -> Tensor:
    """v([A B]) = A ⊗ σ(B) of the convolution at position t; column i of its weight reads position t + i - shift."""
    weight, total = convolution.weight, convolution.bias  # type: ignore[attr-defined]
    for i in range(weight.shape[2]):
        if 0 <= t + i - shift < len(x):
            total = total + weight[:, :, i] @ x[t + i - shift]
    a, b = total.chunk(2)
    return a * torch.sigmoid(b)


def by_hand(model: ConvS2s, source: list[int], tokens: list[int]) -> list[Tensor]:
    """Sections 3.1 to 3.3, with the scales of section 3.4."""
    half = sqrt(0.5)

    def embed(table: object, ids: list[int]) -> list[Tensor]:
        words, positions = table.tokens.weight, table.positions.weight  # type: ignore[attr-defined]
        return [words[token] + positions[at] for at, token in enumerate(ids)]

    e, g = embed(model.encoder.embedding, source), embed(model.decoder.embedding, tokens)
    x = [model.encoder.into(each) for each in e]
    for layer in model.encoder.layers:
        shift = layer.convolution.weight.shape[2] // 2  # type: ignore[union-attr]
        x = [(gated(layer.convolution, x, t, shift) + layer.residual.project(x[t])) * half for t in range(len(x))]  # type: ignore[operator, union-attr]
    z = [model.encoder.out(each) for each in x]
    x = [model.decoder.into(each) for each in g]
    for layer in model.decoder.layers:
        after = []
        for t in range(len(x)):
            h = gated(layer.convolution, x, t, layer.convolution.weight.shape[2] - 1)  # type: ignore[union-attr]
            d = (layer.query(h) + g[t]) * half  # type: ignore[operator]
            a = torch.stack([d @ one for one in z]).softmax(0)
            c = sum(weight * (one + word) * half for weight, one, word in zip(a, z, e)) * sqrt(len(z))
            after.append(((h + layer.out(c)) * half + layer.residual.project(x[t])) * half)  # type: ignore[operator, union-attr]
        x = after
    return [model.readout_(model.decoder.out(each)) for each in x]


def test_the_model_is_its_paper(model: ConvS2s) -> None:
    batch = pair_batch(PAIRS)
    rows = [by_hand(model, source, [1, *target]) for source, target in PAIRS]
    found = model(batch)[batch.real["tokens"]]
    torch.testing.assert_close(found, torch.stack([logits for row in rows for logits in row]), atol=1e-12, rtol=0.0)


def test_every_decoder_layer_attends(model: ConvS2s) -> None:
    assert list(attentions(model)) == [f"decoder.layers.{layer}.attention" for layer in range(3)]


def test_a_layer_starts_with_the_variance_of_its_input() -> None:
    """Section 3.5: the states neither grow nor vanish in twenty layers, in training too."""
    torch.manual_seed(1)
    config = replace(CONFIG, width=64, layers=20, channels=(64,), kernels=(3,), dropout=0.2)
    model, source = config.build().train(), torch.randint(4, 11, (16, 12))
    embedded = model.encoder.embedding(source, torch.arange(12)[None])
    x = first = model.encoder.into(embedded)
    for layer in model.encoder.layers:
        x = layer(x)
    assert 0.3 < float((x.std() / first.std()).detach()) < 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": (2,)}, r"model\.kernels=2: must be odd"),
        ({"channels": ()}, r"model\.channels=: give at least one number"),
        ({"channels": (8, 0)}, r"model\.channels=8,0: give at least one number, each at least 1"),
        ({"layers": 1}, r"model\.channels=3,5: has 2 numbers for model\.layers=1"),
    ],
)
def test_settings_that_make_no_model(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **settings)  # type: ignore[arg-type]
