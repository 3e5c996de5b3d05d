"""Memories, the one read, and many heads."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention import Attention, Memory, MultiHead, attend, weights
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.record import record
from regard.scores import SCORES, WINDOWS, Additive, Dot, General, build_score

WIDTH = 8


def padded(rows: int, length: int) -> Tensor:
    """Real lengths from 1 to ``length``."""
    return torch.arange(length) < torch.randint(1, length + 1, (rows, 1))


# --- a source memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, WINDOWS)))
def test_a_read_is_attend_on_projected_keys(name: str, narrowed: str) -> None:
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=2))
    q, states, real = torch.randn(3, 4, WIDTH), torch.randn(3, 6, WIDTH), padded(3, 6)
    expected = attend(read.score, q, read.score.keys(states), states, Mask(keys=real))
    torch.testing.assert_close(read(q, read.memory(states, real)), expected)


def test_padding_changes_nothing() -> None:
    read = Attention(Additive(WIDTH, WIDTH, WIDTH))
    q, states = torch.randn(2, 5, WIDTH), torch.randn(2, 4, WIDTH)
    longer = torch.cat([states, torch.full((2, 3, WIDTH), 7.0)], 1)
    real = (torch.arange(7) < 4).expand(2, -1)
    torch.testing.assert_close(read(q, read.memory(longer, real)), read(q, read.memory(states)))


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(list(SCORES)),
    narrowed=st.sampled_from(WINDOWS),
    mask=st.sampled_from([EVERYTHING, CAUSAL, Mask(window=2)]),
    leading=st.lists(st.integers(1, 2), max_size=2).map(tuple),
    rows=st.integers(1, 3),
    beams=st.integers(1, 3),
    queries=st.integers(1, 5),
    keys=st.integers(1, 6),
    positions_given=st.booleans(),
)
def test_beams_share_one_memory(
    name: str,
    narrowed: str,
    mask: Mask,
    leading: tuple[int, ...],
    rows: int,
    beams: int,
    queries: int,
    keys: int,
    positions_given: bool,
) -> None:
    """K beams that read one memory read what they would read from a memory each."""
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=2).double()).double()
    states = torch.randn(rows, *leading, keys, WIDTH, dtype=torch.float64)
    q = torch.randn(rows * beams, *leading, queries, WIDTH, dtype=torch.float64)
    at = torch.randint(keys, (queries,)) if positions_given else None
    shared = read.memory(states, padded(rows, keys))
    own = Memory(*(x.repeat_interleave(beams, 0) for x in (shared.keys, shared.values, shared.real)))
    assert shared.select(torch.arange(rows * beams)) is shared
    torch.testing.assert_close(read(q, shared, mask, at), read(q, own, mask, at))
    a, b = read.look(q, shared, mask, at), read.look(q, own, mask, at)
    torch.testing.assert_close(a.weights, b.weights)
    torch.testing.assert_close(a.context, b.context)


def test_look_gives_context_and_weights_with_gradients() -> None:
    read = Attention(General(WIDTH, WIDTH))
    q, states = torch.randn(2, 3, WIDTH), torch.randn(2, 5, WIDTH)
    memory = read.memory(states, padded(2, 5))
    look = read.look(q, memory)
    torch.testing.assert_close(look.context, read(q, memory))
    torch.testing.assert_close(look.weights, weights(read.score, q, memory.keys, memory.mask()))
    (look.weights.square().sum() + look.context.sum()).backward()
    assert read.score.key.weight.grad.abs().sum() > 0


def test_dropout_is_for_training() -> None:
    read = Attention(Dot(), dropout=0.5)
    q, memory = torch.randn(2, 3, WIDTH), read.memory(torch.randn(2, 5, WIDTH))
    assert not torch.equal(read(q, memory), read(q, memory))
    read.eval()
    assert torch.equal(read(q, memory), read(q, memory))


# --- a growing memory ---------------------------------------------------------------------------------------------


def grown(past: Memory, states: Tensor, read: Attention, chunk: int, mask: Mask) -> Tensor:
    """Reads a sequence piece by piece, each piece written before it is read."""
    contexts = []
    for part in states.split(chunk, -2):
        past = past.write(read.score.keys(part), part)
        contexts.append(read(part, past, mask))
    return torch.cat(contexts, -2)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 6])
@pytest.mark.parametrize("mask", [CAUSAL, CAUSAL & Mask(window=2)], ids=["causal", "causal window"])
@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, ("none", "local-m"))))
def test_reading_a_growing_past_is_reading_the_whole(
    name: str, narrowed: str, mask: Mask, chunk: int, gradient: bool
) -> None:
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=3)).double()
    states = torch.randn(2, 3, 6, WIDTH, dtype=torch.float64)
    with torch.set_grad_enabled(gradient):
        whole = read(states, read.memory(states), mask)
        shape = (2, 3, 9, WIDTH)  # more room than is ever used
        torch.testing.assert_close(grown(Memory.empty(shape, shape, states), states, read, chunk, mask), whole)


def test_writing_keeps_gradients() -> None:
    read = Attention(General(WIDTH, WIDTH)).double()
    shape = (2, 7, WIDTH)
    gradients = []
    for reading in (
        lambda x: read(x, read.memory(x), CAUSAL),
        lambda x: grown(Memory.empty(shape, shape, x), x, read, 1, CAUSAL),
    ):
        torch.manual_seed(0)
        states = torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
        gradients.append(torch.autograd.grad(reading(states).square().sum(), [states, *read.parameters()]))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_writing_without_gradients_reuses_the_buffer() -> None:
    part = torch.ones(1, 1, 2)
    with torch.no_grad():
        past = Memory.empty((1, 4, 2), (1, 4, 2), part)
        after = past.write(part, part)
    assert after.keys.data_ptr() == past.keys.data_ptr()
    assert after.values.data_ptr() == past.values.data_ptr()
    fresh = past.write(part, part)
    assert fresh.keys.data_ptr() != past.keys.data_ptr()
    assert (int(past.used), int(after.used)) == (0, 1)


def test_what_is_written_may_be_half_under_autocast() -> None:
    past = Memory.empty((1, 4, 2), (1, 4, 2), torch.zeros(()))
    part = torch.ones(1, 1, 2, dtype=torch.bfloat16)
    assert past.write(part, part).keys.dtype == torch.float32


def test_a_past_shows_what_is_written_and_real() -> None:
    part = torch.ones(2, 3, 2)
    past = Memory.empty((2, 5, 2), (2, 5, 2), part)
    assert past.mask().keys.tolist() == [[False] * 5] * 2
    assert past.write(part, part).mask().keys.tolist() == [[True, True, True, False, False]] * 2
    real = torch.tensor([[False, True, True, True, True], [True] * 5])
    partly = Memory(past.keys, past.values, real, past.used).write(part, part)
    assert partly.mask().keys.tolist() == [[False, True, True, False, False], [True, True, True, False, False]]
    assert Memory(part, part).mask() is EVERYTHING


def test_selecting_rows_of_a_past() -> None:
    states = torch.arange(3.0)[:, None, None].expand(3, 1, 2)
    real = torch.tensor([[True, True], [False, True], [True, False]])
    start = Memory.empty((3, 2, 2), (3, 2, 2), states)
    past = Memory(start.keys, start.values, real, start.used).write(states, states)
    chosen = past.select(torch.tensor([2, 2, 0, 1]))
    assert chosen.keys[:, 0, 0].tolist() == chosen.values[:, 0, 0].tolist() == [2, 2, 0, 1]
    assert chosen.real.tolist() == [[True, False], [True, False], [True, True], [False, True]]
    assert int(chosen.used) == 1


def test_a_source_is_not_written_to_and_a_past_not_shared() -> None:
    part = torch.ones(1, 1, 2)
    with pytest.raises(AssertionError, match="source memory"):
        Memory(part, part).write(part, part)
    with pytest.raises(AssertionError, match="shared"):
        Attention(Dot())(torch.ones(2, 1, 2), Memory.empty((1, 3, 2), (1, 3, 2), part))


# --- many heads ---------------------------------------------------------------------------------------------------


def twins(width: int, heads: int) -> tuple[MultiHead, nn.MultiheadAttention]:
    """Ours and torch's, with the same weights."""
    ours, theirs = MultiHead(width, heads).double(), nn.MultiheadAttention(width, heads, batch_first=True).double()
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    with torch.no_grad():
        ours.qkv.weight.copy_(theirs.in_proj_weight)
        ours.qkv.bias.copy_(theirs.in_proj_bias)
        ours.out.weight.copy_(theirs.out_proj.weight)
        ours.out.bias.copy_(theirs.out_proj.bias)
    return ours, theirs


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_torch(causal: bool, padding: bool) -> None:
    ours, theirs = twins(12, 3)
    x, real = torch.randn(4, 6, 12, dtype=torch.float64), padded(4, 6)
    mask = (CAUSAL if causal else EVERYTHING) & (Mask(keys=real) if padding else EVERYTHING)
    with record(ours) as tape:
        context = ours(x, mask=mask)
    ahead = torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else None
    expected, seen = theirs(
        x, x, x, key_padding_mask=~real if padding else None, attn_mask=ahead, average_attn_weights=False
    )
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(tape["read"], seen)


@pytest.mark.parametrize("padding", [False, True])
def test_cross_attention_equals_torch(padding: bool) -> None:
    ours, theirs = twins(12, 4)
    x, states = torch.randn(2, 3, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    real = padded(2, 7) if padding else None
    expected, _ = theirs(x, states, states, key_padding_mask=None if real is None else ~real)
    torch.testing.assert_close(ours(x, ours.memory(states, real)), expected)


def test_beams_share_a_memory_of_many_heads() -> None:
    ours = MultiHead(12, 3).double()
    states, x = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(6, 1, 12, dtype=torch.float64)
    own = ours(x, ours.memory(states.repeat_interleave(3, 0)))
    torch.testing.assert_close(ours(x, ours.memory(states)), own)


def test_heads_must_divide_the_width_unless_their_width_is_given() -> None:
    with pytest.raises(ValueError, match="width 10 does not divide into 3 heads"):
        MultiHead(10, 3)
    assert MultiHead(10, 3, head_width=5)(torch.randn(1, 2, 10)).shape == (1, 2, 10)


@pytest.mark.parametrize("name", SCORES)
def test_any_score_in_many_heads(name: str) -> None:
    ours = MultiHead(WIDTH, 2, score=build_score(name, WIDTH // 2, 9))
    x = torch.randn(3, 5, WIDTH)
    changed = torch.cat([x[:, :-1], torch.randn(3, 1, WIDTH)], 1)
    torch.testing.assert_close(ours(x, mask=CAUSAL)[:, :-1], ours(changed, mask=CAUSAL)[:, :-1])


# --- compiled, and in mixed precision -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, WINDOWS)))
def test_a_read_compiles_whole(name: str, narrowed: str) -> None:
    torch.compiler.reset()
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=2))
    q, memory = torch.randn(2, 4, WIDTH, requires_grad=True), read.memory(torch.randn(2, 6, WIDTH), padded(2, 6))
    expected = read(q, memory, CAUSAL)
    names = list(read.state_dict())
    read.compile(fullgraph=True, backend="eager")
    compiled = read(q, memory, CAUSAL)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(torch.autograd.grad(compiled.sum(), q), torch.autograd.grad(expected.sum(), q))
    assert list(read.state_dict()) == names


def test_a_growing_past_compiles_whole() -> None:
    torch.compiler.reset()
    read = Attention(General(WIDTH, WIDTH))
    states = torch.randn(2, 5, WIDTH)
    with torch.no_grad():
        expected = read(states, read.memory(states), CAUSAL)
        read.compile(fullgraph=True, backend="eager")
        past = Memory.empty((2, 6, WIDTH), (2, 6, WIDTH), states)
        torch.testing.assert_close(grown(past, states, read, 1, CAUSAL), expected)


def test_a_compiled_read_still_records() -> None:
    torch.compiler.reset()
    read = Attention(General(WIDTH, WIDTH))
    q, memory = torch.randn(2, 4, WIDTH), read.memory(torch.randn(2, 6, WIDTH))
    with record(read) as tape:
        read(q, memory)
    read.compile(backend="eager")
    before = read(q, memory)
    with record(read) as again:
        assert torch.equal(read(q, memory), before)
    torch.testing.assert_close(again[""], tape[""])


@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, WINDOWS)))
def test_a_read_under_autocast(name: str, narrowed: str) -> None:
    torch.manual_seed(2)
    read = Attention(build_score(name, WIDTH, 9, narrowed, radius=9))
    q, states, real = torch.randn(2, 4, WIDTH, requires_grad=True), torch.randn(2, 6, WIDTH), padded(2, 6)
    exact = read(q, read.memory(states, real))
    with torch.autocast("cpu", torch.bfloat16):
        mixed, memory = read(q, read.memory(states, real)), read.memory(states, real)
        seen = read.look(q, memory).weights
    torch.testing.assert_close(mixed.float(), exact, atol=0.1, rtol=0.05)
    assert seen.dtype == torch.float32
    mixed.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in [q, *read.parameters()])
