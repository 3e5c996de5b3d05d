"""The worked example, and blocks worked out by hand."""

import pytest
import torch

from regard.attention import attend, weights
from regard.explain.attention import Call, by_hand, six_steps, watched, worked
from regard.explain.small import Reader
from regard.layers.transformer import Shape, Stack
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.scores import ScaledDot

TINY = Shape(width=16, heads=2, layers=2, inner=24, context=12, dropout=0.0, furthest=8, buckets=8)


def test_the_textbooks_numbers() -> None:
    six = worked()
    assert six.scores.tolist() == [112.0, 96.0]
    assert six.scaled.tolist() == [14.0, 12.0]
    assert [round(weight, 2) for weight in six.weights.tolist()] == [0.88, 0.12]
    torch.testing.assert_close(six.output, six.weights @ six.values)
    q, k, v = six.query[None, None], six.keys[None], six.values[None]
    torch.testing.assert_close(weights(ScaledDot(64), q, k)[0, 0], six.weights)
    torch.testing.assert_close(attend(ScaledDot(64), q, k, v)[0, 0], six.output)


def test_what_the_mask_forbids_has_no_weight() -> None:
    q, k = torch.randn(8), torch.randn(3, 8)
    six = six_steps(q, k, k, 1.0, torch.tensor([0.0, -torch.inf, 0.0]))
    assert six.weights[1] == 0
    assert not six.weighted[1].any()
    assert six.weights.sum() == pytest.approx(1.0)


def calls_of(shape: Shape, mask: Mask = CAUSAL) -> list[Call]:
    torch.manual_seed(0)
    network = Reader(shape, 11, mask).double()
    with torch.no_grad(), watched(network) as calls:
        network(torch.randint(11, (3, 7)))
    return calls


@pytest.mark.parametrize("mask", [CAUSAL, EVERYTHING, CAUSAL & Mask(window=2)])
@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("positions", ["learned", "t5", "relative", "xl"])
def test_a_block_by_hand_is_what_the_block_gave(place: str, positions: str, mask: Mask) -> None:
    calls = calls_of(Shape(**{**vars(TINY), "norm_place": place, "positions": positions}), mask)
    assert [call.name for call in calls] == ["stack.blocks.0", "stack.blocks.1"]
    with torch.no_grad():
        found = [by_hand(call) for call in calls]
    assert max(one.difference for one in found) < 1e-12
    assert all(len(one.heads) == 2 and len(one.heads[0]) == 7 for one in found)


@pytest.mark.parametrize("score", ["additive", "cosine", "general"])
def test_so_it_is_with_other_scores(score: str) -> None:
    with torch.no_grad():
        assert by_hand(calls_of(Shape(**{**vars(TINY), "score": score}))[1]).difference < 1e-12


def test_attention_to_a_source_is_worked_out_too() -> None:
    torch.manual_seed(0)
    stack = Stack(TINY, causal=False, reads_source=True).double()
    sources = stack.source_memories(torch.randn(2, 5, 16, dtype=torch.float64))
    sight = calls_of(TINY, EVERYTHING)[0].plan
    with torch.no_grad(), watched(stack) as calls:
        stack.blocks[0](torch.randn(2, 3, 16, dtype=torch.float64), sight, None, sources[0], EVERYTHING)
    with torch.no_grad():
        assert by_hand(calls[0]).difference < 1e-12


def test_a_wrong_block_is_noticed() -> None:
    call = calls_of(TINY)[0]
    with torch.no_grad():
        call.block.attention.out.bias.add_(0.01)
        with pytest.raises(AssertionError, match=r"stack\.blocks\.0"):
            by_hand(call)


def test_nothing_watches_afterwards() -> None:
    network = Reader(TINY, 11)
    with watched(network) as calls:
        pass
    network(torch.zeros(1, 2, dtype=torch.long))
    assert calls == []
