# mypy: ignore-errors
# ruff: noqa: N803
"""The Triton programs that find the likeliest tokens of a row: one reads all logits once, one a few of them again."""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 256  # tokens that are ranked by the best of them
SPAN = 16  # chunks of a program


@triton.jit
def survey(logits, tops, masses, stride, vocab, chunks, SPAN: tl.constexpr, CHUNK: tl.constexpr):
    """Of SPAN chunks of a row: the greatest logit of each, and the logarithm of the sum of all their exponentials."""
    chunk = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    token = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    row = logits + tl.program_id(0).to(tl.int64) * stride
    u = tl.load(row + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    best = tl.max(u, 1)
    tl.store(tops + tl.program_id(0) * chunks + chunk, best, mask=chunk < chunks)
    top = tl.max(best, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    mass = top + tl.log(tl.sum(tl.sum(tl.exp(u - top), 1), 0))
    tl.store(masses + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), mass)


@triton.jit
def pick(
    logits, tops, masses, logps, tokens, stride, vocab, chunks, spans,
    COUNT: tl.constexpr, PADDED: tl.constexpr, CHUNKS: tl.constexpr, SPANS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The COUNT best of a row are in the COUNT chunks with the greatest tops; of equals the first."""
    r, c, s, i = tl.program_id(0), tl.arange(0, CHUNKS), tl.arange(0, SPANS), tl.arange(0, PADDED)
    mass = tl.load(masses + r * spans + s, mask=s < spans, other=float("-inf"))
    top = tl.max(mass, 0)
    whole = top + tl.log(tl.sum(tl.exp(mass - top), 0))
    best = tl.load(tops + r * chunks + c, mask=c < chunks, other=float("-inf"))
    left = c < chunks
    chosen = tl.full((PADDED,), vocab, tl.int32)  # behind the end: nothing is there
    for number in range(COUNT):
        high = tl.max(tl.where(left, best, float("-inf")), 0)
        one = tl.min(tl.where(left & (best == high), c, CHUNKS), 0)
        chosen = tl.where((i == number) & (one < CHUNKS), one, chosen)
        left &= c != one
    token = chosen[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    there = (chosen < chunks)[:, None] & (token < vocab)
    u = tl.load(logits + r.to(tl.int64) * stride + token, mask=there, other=float("-inf")).to(tl.float32)
    for number in range(COUNT):
        high = tl.max(tl.max(tl.where(there, u, float("-inf")), 1), 0)
        one = tl.min(tl.min(tl.where(there & (u == high), token, vocab), 1), 0)
        tl.store(logps + r * COUNT + number, high - whole)
        tl.store(tokens + r * COUNT + number, one.to(tl.int64))
        there &= token != one


def launch(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``kernels.ranking.likeliest`` without its questions."""
    rows, vocab = logits.shape
    chunks = triton.cdiv(vocab, CHUNK)
    spans = triton.cdiv(chunks, SPAN)
    tops, masses, logps = (logits.new_empty(rows, size, dtype=torch.float32) for size in (chunks, spans, count))
    tokens = logits.new_empty(rows, count, dtype=torch.long)
    survey[(rows, spans)](logits, tops, masses, logits.stride(0), vocab, chunks, SPAN=SPAN, CHUNK=CHUNK, num_warps=4)
    pick[(rows,)](
        logits, tops, masses, logps, tokens, logits.stride(0), vocab, chunks, spans,
        COUNT=count, PADDED=triton.next_power_of_2(count), CHUNKS=triton.next_power_of_2(chunks),
        SPANS=triton.next_power_of_2(spans), CHUNK=CHUNK, num_warps=4,
    )  # fmt: skip
    return logps, tokens
