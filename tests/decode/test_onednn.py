"""Weights laid out for a CPU: the same answers, and a model that is left as it was."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.decode import OneDnnDecoder, beam, collect, greedy, onednn_usable, stream
from regard.models import GptConfig, LstmnConfig, ModelConfig, Seq2SeqConfig, TransformerConfig
from regard.recording import attentions, record

SIZES = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "context": 32}
CASES: dict[str, ModelConfig] = {
    "gpt": GptConfig(vocab=37, **SIZES),
    "adaptive": GptConfig(vocab=37, softmax="adaptive", cutoffs=(9,), **SIZES),
    "transformer": TransformerConfig(source_vocab=37, target_vocab=37, readout_bias=True, **SIZES),
    "seq2seq": Seq2SeqConfig(source_vocab=37, target_vocab=37, width=16, embed=8),
    "lstmn": LstmnConfig(vocab=37, width=16, embed=8, context=32),
}
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")


def built(config: ModelConfig) -> tuple[nn.Module, Callable[[int], object]]:
    """A model with clear preferences, and how a search of so many rows begins."""
    model = config.build().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.5)
    source = torch.randint(4, 37, (9, 6)) if model.task == "translate" else None

    def begun(rows: int) -> object:
        return model.start(None if source is None else source[:rows], rows=rows, capacity=12)  # type: ignore[operator]

    return model, begun


@needs_onednn
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_the_answers_are_the_same(name: str, rows: int) -> None:
    model, begun = built(CASES[name])
    assert onednn_usable(model)
    packed, first = OneDnnDecoder(model), torch.arange(5, 5 + rows)

    def said(decoder: object) -> Tensor:
        return collect(stream(decoder, begun(rows), first, greedy, 10, -1))  # type: ignore[arg-type, type-var]

    assert said(packed).tolist() == said(model).tolist()
    found, expected = (beam(each, begun(rows), first, 4, 8, 2, 1.0) for each in (packed, model))
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-4, rtol=1e-4)


@needs_onednn
def test_a_twin_made_while_somebody_records_is_not_heard() -> None:
    model, begun = built(CASES["gpt"])
    with record(model) as tape:
        packed = OneDnnDecoder(model)
        with torch.no_grad():
            packed.step(torch.arange(5, 14), begun(9))
    assert len(tape) == 0
    assert all(part.recorder is None for part in attentions(packed._onednn).values())


@needs_onednn
def test_a_step_leaves_the_model_as_it_was() -> None:
    model, begun = built(CASES["gpt"])
    packed = OneDnnDecoder(model)
    with torch.no_grad():
        logits, _ = packed.step(torch.arange(5, 14), begun(9))
        expected, _ = model.step(torch.arange(5, 14), begun(9))
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        with pytest.raises(IndexError):
            packed.step(torch.full((9,), 99), begun(9))  # no such token
    assert all("forward" not in part.__dict__ for part in model.modules())


@needs_onednn
def test_gradients_take_the_ordinary_way() -> None:
    model, begun = built(CASES["gpt"])
    logits, _ = OneDnnDecoder(model).step(torch.arange(5, 14), begun(9))
    logits.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters() if weight.dim() > 1)


def test_what_is_not_packed() -> None:
    model, _ = built(CASES["gpt"])
    assert not onednn_usable(model.double())
    assert not onednn_usable(nn.Linear(3, 3))
