"""The parts of the Transformer against torch's own, and against plain loops."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import MultiHead
from regard.errors import UserError
from regard.layers.kv_cache import AttentionPlan, KVCache
from regard.layers.positions import Buckets, Sinusoids, sinusoids
from regard.layers.transformer import Block, FeedForward, Shape, Stack
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.models import BertConfig

SHAPE = Shape(width=16, heads=4, layers=2, inner=24, context=32, dropout=0.0, activation="relu", positions="none")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(2)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0.0)


def randomised(module: Any) -> Any:
    """Every weight drawn anew, biases and norms too: what is left out shows."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    return module.double().eval()


def copy_attention(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    ours.qkv.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def copy_block(ours: Block, theirs: Any) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    norms = [ours.attention_norm, ours.feed_norm]
    if ours.cross is not None and ours.cross_norm is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        norms.insert(1, ours.cross_norm)
    for number, norm in enumerate(norms, start=1):
        norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())
    ours.feed.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed.down.load_state_dict(theirs.linear2.state_dict())


def settings(place: str, activation: str = "relu") -> dict[str, Any]:
    return {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": place == "pre"}


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_is_torchs_encoder_layer(place: str, activation: str, causal: bool) -> None:
    theirs = randomised(nn.TransformerEncoderLayer(16, 4, 24, **settings(place, activation)))
    ours = Block(replace(SHAPE, norm_place=place, activation=activation)).double().eval()
    copy_block(ours, theirs)
    x, real = torch.randn(3, 7, 16).double(), torch.arange(7) < torch.tensor([[7], [4], [5]])
    unseen = ~torch.ones(7, 7, dtype=torch.bool).tril() if causal else None
    expected = theirs(x, src_mask=unseen, src_key_padding_mask=~real)
    found, kept = ours(x, AttentionPlan((CAUSAL if causal else EVERYTHING) & Mask(keys=real)))
    assert kept is None
    close(found[real], expected[real])


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_block_is_torchs_decoder_layer(place: str) -> None:
    theirs = randomised(nn.TransformerDecoderLayer(16, 4, 24, **settings(place)))
    ours = Block(replace(SHAPE, norm_place=place), reads_source=True).double().eval()
    copy_block(ours, theirs)
    assert ours.cross is not None
    x, source = torch.randn(2, 5, 16).double(), torch.randn(2, 6, 16).double()
    real = torch.arange(6) < torch.tensor([[6], [4]])
    unseen = ~torch.ones(5, 5, dtype=torch.bool).tril()
    expected = theirs(x, source, tgt_mask=unseen, memory_key_padding_mask=~real)
    found, _ = ours(x, AttentionPlan(CAUSAL), source=ours.cross.memory(source), source_mask=Mask(keys=real))
    close(found, expected)


def test_two_stacks_are_torchs_transformer() -> None:
    """Pre-norm: torch, too, then ends both with one more norm."""
    theirs = randomised(nn.Transformer(16, 4, 2, 2, 24, **settings("pre")))
    encoder = Stack(SHAPE, causal=False).double().eval()
    decoder = Stack(SHAPE, causal=True, reads_source=True).double().eval()
    for ours, other in ((encoder, theirs.encoder), (decoder, theirs.decoder)):
        for block, layer in zip(ours.layers, other.layers):
            copy_block(block, layer)
        assert ours.norm is not None
        ours.norm.load_state_dict(other.norm.state_dict())
    source, target = torch.randn(2, 6, 16).double(), torch.randn(2, 5, 16).double()
    expected = theirs(source, target, tgt_mask=~torch.ones(5, 5, dtype=torch.bool).tril())
    found, _ = decoder.advance(target, KVCache(2, 5), None, decoder.source_memories(encoder(source)))
    close(found, expected)


@pytest.mark.parametrize("score", ["additive", "cosine", "general", "dot"])
@pytest.mark.parametrize("place", ["pre", "post"])
def test_any_score_is_learnt_inside_a_block(score: str, place: str) -> None:
    stack = Stack(replace(SHAPE, score=score, norm_place=place), causal=False)
    stack(torch.randn(2, 5, 16)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in stack.parameters())
    scored = [weight for name, weight in stack.named_parameters() if ".score." in name]
    assert len(scored) == 2 * {"additive": 4, "cosine": 1, "general": 1, "dot": 0}[score]
    assert all(weight.grad.abs().sum() > 0 for weight in scored)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "feed_dropout", "output_dropout"])
def test_each_dropout_is_for_training(name: str) -> None:
    stack, x = Stack(replace(SHAPE, **{name: 0.5}), causal=False), torch.randn(2, 5, 16)
    assert not torch.equal(stack(x), stack(x))
    stack.eval()
    assert torch.equal(stack(x), stack(x))


def test_a_gated_layer_activates_its_gate() -> None:
    feed, x = FeedForward(replace(SHAPE, gated=True)), torch.randn(5, 16)
    assert feed.gate is not None
    torch.testing.assert_close(feed(x), feed.down(feed.gate(x).relu() * feed.up(x)))


def test_groups_run_their_blocks_in_turn() -> None:
    stack = Stack(replace(SHAPE, layers=4, groups=2, group_blocks=2), causal=False)
    numbers = [[block is other for other in stack.blocks].index(True) for block in stack.layers]
    assert numbers == [0, 1, 0, 1, 2, 3, 2, 3]
    assert [block.attention.read.shared_by for block in stack.layers] == [2] * 8


def operations(windows: tuple[int, ...], length: int) -> int:
    """Multiplications of the attention of a stack over so many tokens; its projections, of slope 1, are left out."""
    stack = Stack(replace(SHAPE, layers=1, windows=windows), causal=True)
    x = torch.randn(1, length, 16)
    # Of torch's routes this one consists of operations that can be counted.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        stack.advance(x, KVCache(1, length))
    return int(counter.get_flop_counts()["Global"][torch.ops.aten.bmm])


@pytest.mark.parametrize("half", [False, True])
def test_a_preference_for_distances_is_written_once_for_all_layers(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Tensor] = []
    fused = nn.functional.scaled_dot_product_attention

    def watched(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *rest: Any, **more: Any) -> Tensor:
        assert table.dtype == q.dtype == (torch.bfloat16 if half else torch.float32)
        tables.append(table)
        return fused(q, k, v, table, *rest, **more)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", watched)
    stack, real = (
        Stack(replace(SHAPE, layers=3, positions="t5"), causal=False),
        torch.arange(12) < torch.tensor([[12], [5]]),
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        stack(torch.randn(2, 12, 16), real).sum().backward()
    assert len(tables) == 3
    assert len({table.data_ptr() for table in tables}) == 1
    assert stack.bias is not None
    assert stack.bias.table.weight.grad.abs().sum() > 0


def test_a_window_has_slope_one_and_full_attention_slope_two() -> None:
    def slope(windows: tuple[int, ...]) -> float:
        return math.log2(operations(windows, 2048) / operations(windows, 1024))

    assert slope(()) == pytest.approx(2.0, abs=0.05)
    assert slope((32,)) == pytest.approx(1.0, abs=0.05)


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoids(torch.arange(50), 8)
    halves = sinusoids(torch.arange(50), 8, interleaved=False)
    for position in (0, 1, 7, 49):
        for pair in range(4):
            angle = position / 10_000 ** (2 * pair / 8)
            for found in (table[position, 2 * pair : 2 * pair + 2], halves[position, [pair, 4 + pair]]):
                torch.testing.assert_close(found, torch.tensor([math.sin(angle), math.cos(angle)]))
    assert sinusoids(torch.arange(3), 5).shape == (3, 5)
    assert not Sinusoids(4, 8).state_dict()


def bucket(behind: int, buckets: int, furthest: int, both_ways: bool) -> int:
    """Raffel et al. 2020, section 2.1, one distance at a time."""
    first = 0
    if both_ways:
        buckets //= 2
        first, behind = (buckets, -behind) if behind < 0 else (0, behind)
    behind = max(behind, 0)
    exact = buckets // 2
    if behind < exact:
        return first + behind
    far = exact + int(math.log(behind / exact) / math.log(furthest / exact) * (buckets - exact) + 1e-6)
    return first + min(far, buckets - 1)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (32, 20), (6, 9), (4, 5), (8, 100)])
def test_buckets_are_those_of_a_loop(both_ways: bool, buckets: int, furthest: int) -> None:
    layer = Buckets(2, buckets, furthest, both_ways)
    distances = torch.arange(-150, 151)
    expected = [bucket(int(one), buckets, furthest, both_ways) for one in distances]
    assert layer.bucket(distances).tolist() == expected
    assert layer(torch.arange(3), torch.arange(5)).shape == (1, 2, 3, 5)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"positions": "t5", "buckets": 2}, "model.buckets=2"),
        ({"positions": "t5", "buckets": 32, "furthest": 16}, "model.furthest=16"),
        ({"score": "relative"}, "model.positions=relative"),
        ({"score": "location"}, "model.score=location"),
        ({"positions": "relative", "score": "dot"}, "model.positions=relative"),
        ({"group_blocks": 2}, "model.group_blocks=2"),
        ({"layers": 3, "groups": 2}, "model.groups=2"),
        ({"heads": 3}, "model.heads=3"),
        ({"windows": (0, -1)}, "model.windows=0,-1"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
        ({"norm_place": "after"}, "model.norm_place=after"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        replace(SHAPE, **wrong)


def test_who_looks_both_ways_cannot_count_from_behind() -> None:
    with pytest.raises(UserError, match=r"model\.positions=xl"):
        BertConfig(positions="xl")


@pytest.mark.parametrize("place", ["pre", "post"])
def test_nan_at_padding_reaches_neither_real_states_nor_gradients(place: str) -> None:
    """Of a stack that reads a whole text, and of one that reads it into a cache."""
    stacks = [randomised(Stack(replace(SHAPE, norm_place=place), causal)) for causal in (False, True)]
    real = torch.tensor([[True] * 5, [False, True, True, False, False]])
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    found = []
    for filler in (0.0, math.nan):
        given = x.masked_fill(~real[..., None], filler)
        states = torch.cat([stacks[0](given, real)[real], stacks[1].advance(given, KVCache(2, 9), real)[0][real]])
        weights = [weight for stack in stacks for weight in stack.parameters()]
        found.append([states, *torch.autograd.grad(states.square().sum(), weights)])
    for a, b in zip(*found, strict=True):
        close(a, b)
