"""Additive logits in blocks: the same numbers as the formula, in a fraction of its memory."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.kernels import additive
from regard.kernels.additive import additive_logits, plain_additive_logits
from regard.scores import Additive


def inputs(leading: tuple[int, ...], queries: int, keys: int, width: int, spread: float = 1.0) -> list[Tensor]:
    shapes = [(*leading, queries, width), (*leading, keys, width), (width,)]
    return [(spread * torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes]


@settings(max_examples=60)
@given(
    leading=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    queries=st.integers(1, 9),
    keys=st.integers(1, 7),
    width=st.integers(1, 5),
    spread=st.sampled_from([1.0, 10.0, 100.0]),  # the last one overflows the exponentials' factors
    block=st.sampled_from([1, 20, 90, 10**6]),  # less than a query, part of a row, several rows, everything
)
def test_blocks_equal_the_formula(
    leading: tuple[int, ...], queries: int, keys: int, width: int, spread: float, block: int
) -> None:
    q, k, v = inputs(leading, queries, keys, width, spread)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(additive.BLOCK, "cpu", block)
        ours = additive_logits(q, k, v)
        cotangent = torch.randn_like(ours)
        gradients = torch.autograd.grad(ours, (q, k, v), cotangent)
    expected = plain_additive_logits(q, k, v)
    torch.testing.assert_close(ours, expected, atol=1e-11 * spread, rtol=1e-11)
    for a, b in zip(gradients, torch.autograd.grad(expected, (q, k, v), cotangent)):
        torch.testing.assert_close(a, b, atol=1e-10 * spread, rtol=1e-10)


@pytest.mark.parametrize("queries", [2, 5])  # the sigmoid, and the exponentials in factors
def test_gradcheck(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(additive.BLOCK, "cpu", 30)
    assert torch.autograd.gradcheck(additive_logits, inputs((2,), queries, 4, 3))


def test_float32_is_as_exact_as_the_formula() -> None:
    exact = inputs((4,), 40, 50, 64)
    q, k, v = (x.detach().float() for x in exact)
    reference = plain_additive_logits(*exact)
    error = (additive_logits(q, k, v) - reference).abs().max()
    assert error < 2 * (plain_additive_logits(q, k, v) - reference).abs().max() + 1e-6


def test_keys_may_be_shared_by_all_rows() -> None:
    q, k, v = inputs((3,), 5, 4, 2)
    shared = k[:1]
    torch.testing.assert_close(additive_logits(q, shared, v), plain_additive_logits(q, shared, v))


def test_autocast_leaves_the_blocks_alone_and_their_gradients_whole() -> None:
    score = Additive(8, 8, 8)
    q, memory = torch.randn(2, 6, 8), torch.randn(2, 5, 8)
    at = torch.arange(6), torch.arange(5)
    exact = score.logits(q, score.keys(memory), *at)
    with torch.autocast("cpu", torch.bfloat16):
        logits = score.logits(q, score.keys(memory), *at)
        assert logits.dtype == torch.float32
        logits.sum().backward()
        once = score.v.grad.clone()
        score.v.grad = None
        for t in range(6):  # one step after the other, in the same autocast region
            score.logits(q[:, t : t + 1], score.keys(memory), *at).sum().backward()
    torch.testing.assert_close(logits, exact, atol=3e-2, rtol=0)
    torch.testing.assert_close(score.v.grad, once, atol=0.3, rtol=3e-2)


@pytest.mark.parametrize("queries", [1, 6])
def test_halves_are_summed_in_float32(queries: int) -> None:
    """With and without autocast, for one query as for many: what a half loses is lost in the inputs alone."""
    q, k, v = (x.detach().bfloat16() for x in inputs((2,), queries, 7, 64))
    exact = plain_additive_logits(q.double(), k.double(), v.double())
    for cast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            logits = additive_logits(q, k, v)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits.double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("rows", "queries", "keys", "width"), [(2, 3, 0, 4), (2, 1, 0, 4), (2, 0, 5, 4), (0, 3, 5, 4), (2, 3, 5, 0)]
)
def test_nothing_to_compare(rows: int, queries: int, keys: int, width: int) -> None:
    q, k, v = inputs((rows,), queries, keys, width)
    logits = additive_logits(q, k, v)
    assert torch.equal(logits, torch.zeros(rows, queries, keys, dtype=torch.float64))
    for gradient, x in zip(torch.autograd.grad(logits.sum(), (q, k, v)), (q, k, v)):
        assert torch.equal(gradient, torch.zeros_like(x))


MEASURE = """
import re, sys, torch
from regard import mask, scores
from regard.attention import attend

def kib(field):
    return int(re.search(field + r":\\s+(\\d+) kB", open("/proc/self/status").read()).group(1))

torch.set_num_threads(1)
rows, length, width = map(int, sys.argv[1:])
score = scores.Additive(width, width, width)
q, memory, values = (torch.randn(rows, length, width, requires_grad=True) for _ in range(3))
before = kib("VmRSS")
attend(score, q, score.keys(memory), values, mask.CAUSAL).square().sum().backward()
assert all(x.grad is not None for x in (q, memory, values, score.v))
print(kib("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the process's peak from /proc")
@pytest.mark.parametrize(
    ("rows", "length", "mebibytes"), [(16, 512, 128), pytest.param(4, 2048, 512, marks=pytest.mark.slow)]
)
def test_forward_and_backward_stay_small(rows: int, length: int, mebibytes: int) -> None:
    """Written out, the two would need 1 and 4 GiB for one tensor. (Not ru_maxrss: a child inherits its parent's.)"""
    command = [sys.executable, "-c", MEASURE, str(rows), str(length), "64"]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown <= mebibytes * 1024


def test_large_queries_and_keys_of_opposite_signs_cancel() -> None:
    for size in (30.0, 45.0, 200.0):
        q, k = torch.full((1, 5, 2), size), torch.full((1, 4, 2), 0.5 - size)
        found = additive_logits(q.requires_grad_(), k, torch.ones(2))
        torch.testing.assert_close(found, plain_additive_logits(q, k, torch.ones(2)))
        found.sum().backward()
        assert q.grad is not None
        assert q.grad.isfinite().all()
