"""Transformer-XL's memory: hidden states in training, keys and values in decoding, the same numbers from both."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.kv_cache import KVCache
from regard.layers.segment_memory import SegmentStates, segment_plan
from regard.models import GptConfig
from regard.models.gpt import Gpt

SMALL: dict[str, Any] = {"vocab": 11, "width": 8, "heads": 2, "layers": 3, "inner": 12, "dropout": 0.0}
XL: dict[str, Any] = {**SMALL, "positions": "xl", "memory": 5}
KINDS: dict[str, GptConfig] = {
    "post": GptConfig(**XL, norm_place="post", attention_bias=False),
    "pre": GptConfig(**XL, clamp=4),
    "windows": GptConfig(**XL, windows=(4,)),
    "shared": GptConfig(**XL, groups=1, shared_biases=True),
}
over_kinds = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)


def built(config: GptConfig) -> Gpt:
    torch.manual_seed(5)
    model = config.build().double()
    for weight in model.parameters():  # biases too
        torch.nn.init.normal_(weight, std=0.3)
    return model


def segments(*lengths: int) -> list[Tensor]:
    torch.manual_seed(7)
    return [torch.randint(4, 11, (2, length)) for length in lengths]


@pytest.mark.parametrize("capacity", [None, 3, 9])
@over_kinds
def test_hidden_states_and_keys_and_values_give_the_same_numbers(config: GptConfig, capacity: int | None) -> None:
    """A memory of 5 tokens, in segments that are shorter and longer than it; the text is longer than the capacity."""
    model = built(config)
    states, memory = model.start_segments(2), model.start(rows=2, capacity=capacity)
    assert isinstance(memory, KVCache)
    filled = []
    with torch.no_grad():
        for tokens in segments(3, 1, 4, 7, 2, 3):
            features, states = model.advance(tokens, states)
            expected, memory = model.advance(tokens, memory)
            torch.testing.assert_close(features, expected, atol=1e-12, rtol=0)
            assert isinstance(states, SegmentStates)
            filled.append(states.layers[0].shape[1])
    assert filled == [3, 4, 5, 5, 5, 5]


@over_kinds
def test_the_gradient_is_that_of_the_definition(config: GptConfig) -> None:
    """Dai et al. 2019, §3.2: keys and values of [SG(m) ∘ h], so that their projections get a gradient from m too.

    The definition reads both segments at once and detaches, in each layer, the inputs of the first segment.
    """
    model = built(config)
    first, second = segments(5, 3)
    with torch.no_grad():
        _, states = model.advance(first, model.start_segments(2))
    assert isinstance(states, SegmentStates)

    def gradients(features: Tensor) -> list[Tensor]:
        model.zero_grad()
        features.sin().sum().backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]

    features, after = model.advance(second, states)
    found = gradients(features)
    assert isinstance(after, SegmentStates)
    assert not any(state.requires_grad for state in after.layers)

    x = model.embedding(second, torch.arange(3)[None])
    at = torch.arange(8)
    for block, memory in zip(model.stack.layers, states.layers):
        both = torch.cat([memory, x], 1)
        q = block.attention.queries(block._before(x, block.attention_norm))
        keys = block.attention.memory(block._before(both, block.attention_norm))
        weights = block.attention.read.score.weights(q, keys.keys, _mask(config), at[5:], at)
        read = block.attention.out((weights @ keys.values).transpose(1, 2).flatten(2))
        x = block._after(x, read, block.attention_norm)
        x = block._after(x, block.feed(block._before(x, block.feed_norm)), block.feed_norm)
    expected = x if model.stack.norm is None else model.stack.norm(x)
    torch.testing.assert_close(features, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(found, gradients(expected), atol=1e-10, rtol=0)


def _mask(config: GptConfig) -> Any:
    from regard.mask import CAUSAL, Mask

    return CAUSAL & Mask(window=config.windows[0]) if config.windows else CAUSAL


def test_keys_and_values_of_the_memory_have_no_gradient_in_decoding() -> None:
    """The difference between the two memories: the projections get a gradient from hidden states only."""
    model = built(KINDS["pre"])
    first, second = segments(5, 3)
    grads = []
    for state in (model.start_segments(2), model.start(rows=2)):
        with torch.no_grad():
            _, state = model.advance(first, state)
        features, _ = model.advance(second, state)
        model.zero_grad()
        features.sin().sum().backward()
        grads.append(model.stack.layers[0].attention.qkv.weight.grad.clone())
    inner = model.stack.layers[0].attention.inner
    torch.testing.assert_close(grads[0][:inner], grads[1][:inner], atol=1e-12, rtol=0)  # of the queries
    assert (grads[0][inner:] - grads[1][inner:]).abs().max() > 1e-6


@over_kinds
def test_beams_share_the_memory(config: GptConfig) -> None:
    """Hypotheses that are dropped, moved and repeated give the numbers of one row each, beyond the capacity too."""
    model = built(config)
    tokens, rows = torch.randint(4, 11, (9, 4)), torch.tensor([0, 0, 3, 2])
    with torch.no_grad():
        state = model.start(rows=2, capacity=6).select(torch.tensor([0, 0, 1, 1]))
        texts: list[list[int]] = [[] for _ in range(4)]
        for step in tokens:
            logits, state = model.step(step, state)
            texts = [[*text, int(token)] for text, token in zip(texts, step)]
            for text, found in zip(texts, logits):
                alone = model.start(rows=1)
                for token in text:
                    expected, alone = model.step(torch.tensor([token]), alone)
                torch.testing.assert_close(found, expected[0], atol=1e-12, rtol=0)
            state, texts = state.select(rows), [texts[row] for row in rows]


def test_padding_and_other_rows_are_refused() -> None:
    model = built(KINDS["pre"])
    tokens = segments(3)[0]
    with pytest.raises(UserError, match="does not support padding"):
        model.advance(tokens, model.start_segments(2), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(UserError, match="they have 2 rows, but the state has 3"):
        model.advance(tokens, model.start_segments(3))


def test_no_query_of_a_segment_is_without_keys() -> None:
    """On a GPU, queries that might see no key cost several kernels in each layer."""
    plan = segment_plan(torch.zeros(2, 4, 8), filled=3).with_window(2).resolved(4, torch.device("cpu"))
    table = plan.mask.pairs
    assert table is not None
    assert table.any(-1).all()
    assert plan.mask.find_empty_rows(table) is None


@torch.no_grad()
def test_a_window_as_long_as_the_memory_makes_segments_invisible() -> None:
    """However the text is split into segments, a token sees as many tokens as the memory has, itself included."""
    model, tokens = built(KINDS["windows"]), segments(12)[0]
    whole, _ = model.advance(tokens, model.start(rows=2))
    for cut in range(1, 12):
        state, parts = model.start(rows=2), []
        for part in tokens.split([cut, 12 - cut], 1):
            features, state = model.advance(part, state)
            parts.append(features)
        torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-12, rtol=0)


def test_shared_biases_are_trained_as_one() -> None:
    config = GptConfig(**XL, shared_biases=True)
    names = [name for name, _ in config.build().named_parameters() if "score.content" in name]
    assert names == ["stack.blocks.0.attention.read.score.content"]


def test_sinusoids_that_were_made_in_inference_mode_can_be_trained_on() -> None:
    model, tokens = built(KINDS["pre"]), segments(7)[0]
    with torch.inference_mode():
        model.advance(tokens, model.start(rows=2))
    features, _ = model.advance(tokens, model.start(rows=2))
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.stack.parameters())
