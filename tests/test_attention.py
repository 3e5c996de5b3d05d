"""Memories, the one read, and many heads."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attention, Memory, MultiHead, attend, weights
from regard.errors import UserError
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.recording import record
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


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize(("name", "narrowed"), list(product(SCORES, WINDOWS)))
def test_nan_in_padding_reaches_neither_results_nor_gradients(name: str, narrowed: str, broken: float) -> None:
    """By every way that padding can be given: in a memory, in a mask, and to the two functions."""
    read, real = Attention(build_score(name, WIDTH, 9, narrowed, radius=2)).double(), padded(3, 6)
    heads = MultiHead(WIDTH, 1, read.score).double()
    q = torch.randn(3, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    clean = torch.randn(3, 6, WIDTH, dtype=torch.float64).masked_fill(~real[..., None], 0.0)
    found = []
    for filler in (0.0, broken):
        states = clean.masked_fill(~real[..., None], filler)
        k, at = read.score.keys(clean).masked_fill(~real[..., None], filler), torch.arange(4)
        reads = {
            "memory": read(q, read.memory(states, real), q_at=at),
            "raw memory": read(q, Memory(k, states, real), q_at=at),
            "look": read.look(q, Memory(k, states, real), q_at=at).context,
            "mask": read(q, Memory(k, states), Mask(keys=real), at),
            "mask of a memory": read(q, replace(read.memory(states), keys=k), Mask(keys=real), at),
            "attend": attend(read.score, q, k, states, Mask(keys=real), q_at=at),
            "weights": weights(read.score, q, k, Mask(keys=real), at),
            "heads": heads(q, heads.memory(states, real)),
        }
        parameters = [q, *read.parameters(), *heads.parameters()]
        for each in reads.values():
            grads = torch.autograd.grad(each.square().sum(), parameters, retain_graph=True, allow_unused=True)
            found.append([each, *(grad for grad in grads if grad is not None)])
    for expected, given in zip(found[: len(reads)], found[len(reads) :], strict=True):
        for a, b in zip(expected, given, strict=True):
            torch.testing.assert_close(a, b, equal_nan=False)


def test_given_values_are_read_in_place_of_the_states_and_not_at_padding() -> None:
    states, values = torch.randn(2, 4, 3), torch.randn(2, 4, 5)
    real = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    broken = values.masked_fill(~real[..., None], math.nan)
    attention, q = Attention(Dot()), torch.randn(2, 2, 3)
    logits = (q @ states.mT).masked_fill(~real[:, None], -math.inf)
    torch.testing.assert_close(attention(q, attention.memory(states, real, broken)), logits.softmax(-1) @ values)


def test_look_gives_context_and_weights_with_gradients() -> None:
    read = Attention(General(WIDTH, WIDTH))
    q, states = torch.randn(2, 3, WIDTH), torch.randn(2, 5, WIDTH)
    memory = read.memory(states, padded(2, 5))
    look = read.look(q, memory)
    torch.testing.assert_close(look.context, read(q, memory))
    torch.testing.assert_close(look.weights, weights(read.score, q, memory.keys, Mask(keys=memory.real)))
    (look.weights.square().sum() + look.context.sum()).backward()
    assert read.score.key.weight.grad.abs().sum() > 0


def test_dropout_is_for_training() -> None:
    read = Attention(Dot(), dropout=0.5)
    q, memory = torch.randn(2, 3, WIDTH), read.memory(torch.randn(2, 5, WIDTH))
    assert not torch.equal(read(q, memory), read(q, memory))
    assert not torch.equal(read.look(q, memory).context, read.look(q, memory).context)
    assert torch.equal(read.look(q, memory).weights, read.look(q, memory).weights)  # only what is read is dropped
    read.eval()
    assert torch.equal(read(q, memory), read(q, memory))
    assert torch.equal(read.look(q, memory).context, read.look(q, memory).context)


# --- a past that grows ----------------------------------------------------------------------------------------------


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Memory:
    """A past with nothing in it yet."""
    return Memory(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))


def grown(past: Memory, states: Tensor, read: Attention, chunk: int, mask: Mask) -> Tensor:
    """Reads a sequence piece by piece, each piece written before it is read."""
    contexts = []
    for at in torch.arange(states.shape[-2]).split(chunk):
        part = states[..., at, :]
        past = past.write_at(at, Memory(read.score.keys(part), part))
        contexts.append(read(part, past, mask, at))
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
        past = empty(2, 3, 9, WIDTH, dtype=torch.float64)  # more room than is ever used
        torch.testing.assert_close(grown(past, states, read, chunk, mask), whole)


def test_writing_keeps_gradients() -> None:
    read = Attention(General(WIDTH, WIDTH)).double()
    gradients = []
    for reading in (
        lambda x: read(x, read.memory(x), CAUSAL),
        lambda x: grown(empty(2, 7, WIDTH, dtype=torch.float64), x, read, 1, CAUSAL),
    ):
        torch.manual_seed(0)
        states = torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
        gradients.append(torch.autograd.grad(reading(states).square().sum(), [states, *read.parameters()]))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("gradient", [True, False])
def test_writing_reuses_the_buffer(gradient: bool) -> None:
    part, past, first = torch.ones(1, 1, 2, requires_grad=gradient), empty(1, 4, 2), torch.tensor([0])
    with torch.set_grad_enabled(gradient):
        after = past.write_at(first, Memory(part, part))
    assert after.keys.data_ptr() == past.keys.data_ptr()
    assert after.values.data_ptr() == past.values.data_ptr()


def test_what_is_written_may_be_half_under_autocast() -> None:
    part = torch.ones(1, 1, 2, dtype=torch.bfloat16)
    assert empty(1, 4, 2).write_at(torch.tensor([1]), Memory(part, part)).keys.dtype == torch.float32


def test_the_first_slots_and_some_rows_of_a_memory() -> None:
    states = torch.arange(12.0).view(3, 2, 2)
    real = torch.tensor([[True, True], [False, True], [True, False]])
    memory = Memory(states, 2 * states, real)
    first = memory.first(1)
    assert torch.equal(first.keys, states[:, :1])
    assert torch.equal(first.values, 2 * states[:, :1])
    assert first.real.tolist() == [[True], [False], [True]]
    chosen = memory.select(torch.tensor([2, 2, 0, 1]))
    assert torch.equal(chosen.keys, states[[2, 2, 0, 1]])
    assert torch.equal(chosen.values, 2 * states[[2, 2, 0, 1]])
    assert chosen.real.tolist() == [[True, False], [True, False], [True, True], [False, True]]


def test_a_contiguous_memory_has_the_usual_strides_also_with_one_slot() -> None:
    heads = MultiHead(16, 2)
    memory = heads.memory(torch.zeros(1, 1, 16)).contiguous()
    assert memory.keys.stride() == memory.values.stride() == (16, 8, 8, 1)


def test_what_is_not_real_is_not_seen() -> None:
    states = torch.randn(2, 3, 2)
    assert Memory(states, states).mask_padding(CAUSAL) is CAUSAL
    seen = Memory(states, states, padded(2, 3)).mask_padding(CAUSAL)
    assert seen.causal
    assert seen.keys is not None


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


def test_heads_must_divide_the_width_unless_their_width_is_given() -> None:
    with pytest.raises(ValueError, match="width 10 does not divide into 3 heads"):
        MultiHead(10, 3)
    assert MultiHead(10, 3, head_width=5)(torch.randn(1, 2, 10)).shape == (1, 2, 10)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((8, 0), "heads=0: must be at least 1"),
        ((8, -2), "heads=-2: must be at least 1"),
        ((0, 2), "width=0: must be at least 1"),
        ((8, 2, None, -4), "head_width=-4: must be at least 0"),
    ],
)
def test_sizes_that_cannot_be_built_are_named(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        MultiHead(*sizes)


@pytest.mark.parametrize("name", SCORES)
def test_any_score_in_many_heads(name: str) -> None:
    ours = MultiHead(WIDTH, 2, score=build_score(name, WIDTH // 2, 9))
    x = torch.randn(3, 5, WIDTH)
    changed = torch.cat([x[:, :-1], torch.randn(3, 1, WIDTH)], 1)
    torch.testing.assert_close(ours(x, mask=CAUSAL)[:, :-1], ours(changed, mask=CAUSAL)[:, :-1])


# --- compiled, and in mixed precision -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "narrowed"),
    [  # each score and each window; a score in another window compiles the same lines
        pytest.param(name, window, marks=[] if window == "none" or name == "additive" else [pytest.mark.slow])
        for name, window in product(SCORES, WINDOWS)
    ],
)
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
        torch.testing.assert_close(grown(empty(2, 6, WIDTH), states, read, 1, CAUSAL), expected)


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
