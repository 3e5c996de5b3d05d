# mypy: ignore-errors
# ruff: noqa: N803
"""Triton kernels that find the most probable tokens of a row.

The first reads all logits once; the second reads again only the chunks that can hold the best tokens.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 256  # tokens in a chunk; chunks are ranked by their greatest logit
SPAN = 16  # chunks for each program of the first kernel


@triton.jit
def chunk_maxima(logits, maxima, log_sums, stride, vocab, chunks, SPAN: tl.constexpr, CHUNK: tl.constexpr):
    """For SPAN chunks of a row: the greatest logit of each chunk, and the log-sum-exp of all of them."""
    chunk = tl.program_id(1) * SPAN + tl.arange(0, SPAN)
    token = chunk[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    row = logits + tl.program_id(0).to(tl.int64) * stride
    u = tl.load(row + token, mask=token < vocab, other=float("-inf")).to(tl.float32)
    best = tl.max(u, 1)
    tl.store(maxima + tl.program_id(0) * chunks + chunk, best, mask=chunk < chunks)
    top = tl.max(best, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    log_sum = top + tl.log(tl.sum(tl.sum(tl.exp(u - top), 1), 0))
    tl.store(log_sums + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), log_sum)


@triton.jit
def select_tokens(
    logits, maxima, log_sums, logps, tokens, stride, vocab, chunks, spans,
    COUNT: tl.constexpr, PADDED: tl.constexpr, CHUNKS: tl.constexpr, SPANS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The COUNT best tokens of a row, which are in the COUNT chunks with the greatest maxima; of equals the first."""
    r, c, s, i = tl.program_id(0), tl.arange(0, CHUNKS), tl.arange(0, SPANS), tl.arange(0, PADDED)
    log_sum = tl.load(log_sums + r * spans + s, mask=s < spans, other=float("-inf"))
    top = tl.max(log_sum, 0)
    log_total = top + tl.log(tl.sum(tl.exp(log_sum - top), 0))
    best = tl.load(maxima + r * chunks + c, mask=c < chunks, other=float("-inf"))
    left = c < chunks
    chosen = tl.full((PADDED,), vocab, tl.int32)  # an index past the end
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
        tl.store(logps + r * COUNT + number, high - log_total)
        one = tl.where(one < vocab, one, number)  # a row of NaN has no highest: tokens that differ
        tl.store(tokens + r * COUNT + number, one.to(tl.int64))
        there &= token != one


def launch_top_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``kernels.ranking.likeliest`` on a GPU, for contiguous rows."""
    rows, vocab = logits.shape
    chunks = triton.cdiv(vocab, CHUNK)
    spans = triton.cdiv(chunks, SPAN)
    maxima, log_sums, logps = (logits.new_empty(rows, size, dtype=torch.float32) for size in (chunks, spans, count))
    tokens = logits.new_empty(rows, count, dtype=torch.long)
    chunk_maxima[(rows, spans)](
        logits, maxima, log_sums, logits.stride(0), vocab, chunks, SPAN=SPAN, CHUNK=CHUNK, num_warps=4
    )
    select_tokens[(rows,)](
        logits, maxima, log_sums, logps, tokens, logits.stride(0), vocab, chunks, spans,
        COUNT=count, PADDED=triton.next_power_of_2(count), CHUNKS=triton.next_power_of_2(chunks),
        SPANS=triton.next_power_of_2(spans), CHUNK=CHUNK, num_warps=4,
    )  # fmt: skip
    return logps, tokens
