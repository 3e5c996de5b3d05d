"""The textbook example, and blocks computed by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.attention import attend, weights
from regard.explain.attention import _sharpest_head
from regard.explain.by_hand import BlockCall, attention_steps, compute_by_hand, record_block_calls, textbook_example
from regard.explain.experiment import TinyTransformer
from regard.layers.transformer import Shape, Stack
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.scores import ScaledDot

TINY = Shape(width=16, heads=2, layers=2, inner=24, context=12, dropout=0.0, furthest=8, buckets=8)


def test_the_textbook_example() -> None:
    steps = textbook_example()
    assert steps.scores.tolist() == [112.0, 96.0]
    assert steps.scaled.tolist() == [14.0, 12.0]
    assert [round(weight, 2) for weight in steps.weights.tolist()] == [0.88, 0.12]
    torch.testing.assert_close(steps.output, steps.weights @ steps.values)
    q, k, v = steps.query[None, None], steps.keys[None], steps.values[None]
    torch.testing.assert_close(weights(ScaledDot(64), q, k)[0, 0], steps.weights)
    torch.testing.assert_close(attend(ScaledDot(64), q, k, v)[0, 0], steps.output)


def test_a_masked_key_has_weight_zero() -> None:
    q, k = torch.randn(8), torch.randn(3, 8)
    steps = attention_steps(q, k, k, 1.0, torch.tensor([0.0, -torch.inf, 0.0]))
    assert steps.weights[1] == 0
    assert not steps.weighted[1].any()
    assert steps.weights.sum() == pytest.approx(1.0)


def test_the_bias_of_a_masked_key_is_zero() -> None:
    query, keys = torch.ones(2), torch.ones(2, 2)
    found = [attention_steps(query, keys, keys, 1.0, torch.tensor([one, -torch.inf])).bias for one in (0.5, 0.0)]
    assert found[0] is not None
    assert found[0].tolist() == [0.5, 0.0]
    assert found[1] is None  # a mask alone is no bias


def calls_of(shape: Shape, mask: Mask = CAUSAL) -> list[BlockCall]:
    torch.manual_seed(0)
    network = TinyTransformer(shape, 11, mask).double()
    with torch.no_grad(), record_block_calls(network) as calls:
        network(torch.randint(11, (3, 7)))
    return calls


@pytest.mark.parametrize("mask", [CAUSAL, EVERYTHING, CAUSAL & Mask(window=2)])
@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("positions", ["learned", "t5", "relative", "xl"])
def test_a_block_by_hand_equals_the_block(place: str, positions: str, mask: Mask) -> None:
    calls = calls_of(Shape(**{**vars(TINY), "norm_place": place, "positions": positions}), mask)
    assert [call.name for call in calls] == ["stack.blocks.0", "stack.blocks.1"]
    with torch.no_grad():
        found = [compute_by_hand(call) for call in calls]
    assert max(one.difference for one in found) < 1e-12
    assert all(len(one.heads) == 2 and len(one.heads[0]) == 7 for one in found)


@pytest.mark.parametrize("score", ["additive", "cosine", "general"])
def test_a_block_with_another_score_by_hand_equals_the_block(score: str) -> None:
    with torch.no_grad():
        assert compute_by_hand(calls_of(Shape(**{**vars(TINY), "score": score}))[1]).difference < 1e-12


def test_cross_attention_by_hand_equals_the_block() -> None:
    torch.manual_seed(0)
    stack = Stack(TINY, causal=False, reads_source=True).double()
    sources = stack.source_memories(torch.randn(2, 5, 16, dtype=torch.float64))
    plan = calls_of(TINY, EVERYTHING)[0].plan
    with torch.no_grad(), record_block_calls(stack) as calls:
        stack.blocks[0](torch.randn(2, 3, 16, dtype=torch.float64), plan, None, sources[0], EVERYTHING)
    with torch.no_grad():
        assert compute_by_hand(calls[0]).difference < 1e-12


def test_a_changed_block_raises_an_error() -> None:
    call = calls_of(TINY)[0]
    with torch.no_grad():
        call.block.attention.out.bias.add_(0.01)
        with pytest.raises(AssertionError, match=r"stack\.blocks\.0"):
            compute_by_hand(call)


def test_nothing_is_recorded_after_the_with_statement() -> None:
    network = TinyTransformer(TINY, 11)
    with record_block_calls(network) as calls:
        pass
    network(torch.zeros(1, 2, dtype=torch.long))
    assert calls == []


def test_the_sharpest_head_has_the_largest_weight_on_another_word() -> None:
    tables = ([[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.8, 0.2]], [[0.7, 0.3], [0.0, 1.0]])
    heads = [[SimpleNamespace(weights=torch.tensor(row)) for row in table] for table in tables]
    block: Any = SimpleNamespace(heads=heads)
    assert [_sharpest_head(block, query) for query in (0, 1)] == [1, 1]
    assert _sharpest_head(SimpleNamespace(heads=heads[::2]), 1) == 0  # type: ignore[arg-type]
