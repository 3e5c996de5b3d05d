# mypy: ignore-errors
# ruff: noqa: N803
"""The Triton program of cross-entropy: the logits of one row, read twice, become their gradient where they stand.

The first pass finds the logarithm of the softmax's sum, the second writes; between them a row stays in the cache. All
is float32 inside, whatever the logits are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TURN = tl.constexpr(1.4426950408889634)  # 1 / ln 2: eˣ = 2^(TURN·x)
WIDEST = 8192  # columns in registers at once


@triton.jit
def rows(
    logits, targets, losses, width, vocab, smoothing,
    IGNORED: tl.constexpr, SMOOTHED: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: −log p of its target and, if asked, the gradient, which is zero in columns past the vocabulary.

    A row has ``width`` columns, which may be a rounder number than the vocabulary: reads and writes follow the width,
    so that they go eight numbers at a time.
    """
    row = logits + tl.program_id(0).to(tl.int64) * width
    out = losses + tl.program_id(0)
    at = tl.arange(0, BLOCK)
    target = tl.load(targets + tl.program_id(0))
    if target == IGNORED:
        tl.store(out, 0.0)
        if SLOPES:
            for start in range(0, width, BLOCK):
                tl.store(row + start + at, tl.zeros((BLOCK,), logits.dtype.element_ty), mask=start + at < width)
    else:
        # Loaded here and not where it is used: there, another warp might have written its gradient already.
        # A target outside the vocabulary is no number rather than somebody else's memory.
        inside = (target >= 0) & (target < vocab)
        said = tl.load(row + target, mask=inside, other=float("nan")).to(tl.float32) * TURN
        top = tl.full((), float("-inf"), tl.float32)
        mass = tl.zeros((BLOCK,), tl.float32)  # the softmax's sum relative to 2^top, still spread over the lanes
        whole = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, width, BLOCK):
            c = start + at
            u = tl.load(row + c, mask=c < width, other=0.0).to(tl.float32) * TURN
            if SMOOTHED:
                whole += tl.where(c < vocab, u, 0.0)
            u = tl.where(c < vocab, u, float("-inf"))
            higher = tl.maximum(top, tl.max(u))
            mass = mass * tl.exp2(top - higher) + tl.exp2(u - higher)
            top = higher
        lse = top + tl.log2(tl.sum(mass))
        loss = lse - (1.0 - smoothing) * said
        if SMOOTHED:
            loss -= smoothing * tl.sum(whole) / vocab
        tl.store(out, loss / TURN)
        if SLOPES:
            for start in range(0, width, BLOCK):
                c = start + at
                u = tl.load(row + c, mask=c < width, other=0.0).to(tl.float32) * TURN
                slope = tl.exp2(u - lse) - smoothing / vocab - tl.where(c == target, 1.0 - smoothing, 0.0)
                slope = tl.where(c < vocab, slope, 0.0)
                tl.store(row + c, slope.to(logits.dtype.element_ty), mask=c < width)


def judge_rows(logits: Tensor, targets: Tensor, vocab: int, smoothing: float, slopes: bool, ignored: int) -> Tensor:
    """−log p of each row's target, (n,); if asked, the logits (n, V or more) are overwritten by their gradients."""
    assert logits.is_contiguous()
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    block = min(triton.next_power_of_2(logits.shape[1]), WIDEST)
    with torch.cuda.device_of(logits):  # Triton launches on the current device
        rows[(len(logits),)](
            logits, targets.contiguous(), losses, logits.shape[1], vocab, float(smoothing),
            IGNORED=ignored, SMOOTHED=smoothing > 0, SLOPES=slopes, BLOCK=block,
            num_warps=max(1, min(block // 512, 16)),
        )  # fmt: skip
    return losses
