"""Fused steps against `Block.forward`: on a GPU, or in Triton's interpreter."""

import pytest
import torch

from regard.decode import beam
from regard.decode import fast_layers as module
from regard.decode.fast_layers import FusedBlock, with_fused_steps
from regard.models import GptConfig, TransformerConfig
from tritons import DEVICE, interpret, runs, starts_interpreter

SMALL = {"width": 32, "heads": 2, "layers": 2, "inner": 48, "context": 64}
LANGUAGE = {
    "gpt2": GptConfig(**SMALL, vocab=40),
    "post-norm": GptConfig(**SMALL, vocab=40, norm_place="post", activation="relu"),
    "window": GptConfig(**SMALL, vocab=40, windows=(0, 3)),
    "t5": GptConfig(**SMALL, vocab=40, positions="t5", norm="rms", gated=True, attention_bias=False, feed_bias=False),
}
TRANSLATORS = {
    "vaswani": TransformerConfig(**SMALL, source_vocab=40, target_vocab=40, norm_place="post"),
    "pre-norm": TransformerConfig(**SMALL, source_vocab=40, target_vocab=40),
}


@pytest.fixture(autouse=True)
def allow_float32(monkeypatch):
    """Run the kernels in float32, so that a difference is an error and not rounding."""
    monkeypatch.setattr(module, "usable", lambda dtype, device: True)


def built(config):
    torch.manual_seed(3)
    model = config.build().to(DEVICE).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def count_fused(monkeypatch) -> list[int]:
    """A list that grows by one for each call of the attention kernel."""
    calls, read = [], module.attend_step
    monkeypatch.setattr(module, "attend_step", lambda *given: (calls.append(1), read(*given))[1])
    return calls


@runs
@torch.no_grad()
@pytest.mark.parametrize("name", LANGUAGE)
def test_steps_of_a_language_model(name, monkeypatch):
    model = built(LANGUAGE[name])
    other, calls = with_fused_steps(model), count_fused(monkeypatch)
    tokens = torch.randint(40, (3, 9), device=DEVICE)
    real = torch.ones(3, 5, dtype=torch.bool, device=DEVICE)
    real[1, :2] = False
    states = []
    for one in (model, other):
        _, state = one.advance(tokens[:, :5], one.start(rows=3, capacity=12), real)
        states.append(state)
    for at in range(5, 9):
        expected, states[0] = model.step(tokens[:, at], states[0])
        found, states[1] = other.step(tokens[:, at], states[1])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert len(calls) == 4 * 2


@runs
@torch.no_grad()
@pytest.mark.parametrize("name", TRANSLATORS)
def test_beams_of_a_translator(name, monkeypatch):
    model = built(TRANSLATORS[name])
    other, calls = with_fused_steps(model), count_fused(monkeypatch)
    source = torch.randint(40, (2, 7), device=DEVICE)
    real = torch.ones(2, 7, dtype=torch.bool, device=DEVICE)
    real[0, 4:] = False
    prompt = torch.ones(2, dtype=torch.long, device=DEVICE)
    expected, found = (beam(one, one.start(source, real, 2, 6), prompt, 3, 6, 2) for one in (model, other))
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert calls


@runs
@torch.no_grad()
def test_one_source_of_one_token():
    model = built(TRANSLATORS["pre-norm"])
    source, prompt = torch.full((1, 1), 7, device=DEVICE), torch.ones(1, dtype=torch.long, device=DEVICE)
    expected, found = (one.step(prompt, one.start(source, capacity=4))[0] for one in (model, with_fused_steps(model)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_model_itself_is_unchanged():
    model = built(LANGUAGE["gpt2"])
    other = with_fused_steps(model)
    assert not any(isinstance(part, FusedBlock) for part in model.modules())
    assert "FusedBlock" in repr(other)
    assert all(a is b for a, b in zip(model.parameters(), other.parameters()))


@torch.no_grad()
@pytest.mark.parametrize("name", LANGUAGE)
def test_a_whole_text_is_read_as_by_the_blocks_themselves(name):
    """Calls that are no single step take the way of `Block`, which needs all of its attributes; no kernel runs."""
    model = built(LANGUAGE[name])
    tokens = torch.randint(40, (2, 7), device=DEVICE)
    expected, _ = model.advance(tokens, model.start(rows=2))
    found, _ = with_fused_steps(model).advance(tokens, model.start(rows=2))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("setting", [{"score": "additive"}, {"positions": "relative"}, {"residual": False}])
def test_unsupported_blocks_are_unchanged(setting):
    model = GptConfig(**SMALL, vocab=40, **setting).build()
    assert not any(isinstance(part, FusedBlock) for part in with_fused_steps(model).modules())


@starts_interpreter
def test_fused_steps_in_the_interpreter():
    interpret(__file__)
