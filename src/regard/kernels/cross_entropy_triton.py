# mypy: ignore-errors
# ruff: noqa: N803
"""The Triton kernel of cross-entropy: it reads the logits of a row twice and overwrites them by their gradient.

The first pass computes the log-sum-exp, the second writes the gradient; the row stays in the cache between them. All
computation is in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)  # 1 / ln 2: eˣ = 2^(LOG2E·x)
MAX_BLOCK = 8192  # the most columns in registers at once


@triton.jit
def rows(
    logits, targets, losses, width, vocab, smoothing,
    IGNORED: tl.constexpr, SMOOTHED: tl.constexpr, GRADIENTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: −log p of its target and, with GRADIENTS, the gradient, which is zero in columns past the vocabulary.

    A row has ``width`` columns, possibly more than the vocabulary. Loads and stores cover the whole width, so that they
    are aligned and move eight numbers at a time.
    """
    row = logits + tl.program_id(0).to(tl.int64) * width
    out = losses + tl.program_id(0)
    at = tl.arange(0, BLOCK)
    target = tl.load(targets + tl.program_id(0))
    if target == IGNORED:
        tl.store(out, 0.0)
        if GRADIENTS:
            for start in range(0, width, BLOCK):
                tl.store(row + start + at, tl.zeros((BLOCK,), logits.dtype.element_ty), mask=start + at < width)
    else:
        # Loaded before the second pass, in which another warp may already have overwritten it by its gradient.
        # A target outside the vocabulary gives NaN instead of reading memory out of bounds.
        inside = (target >= 0) & (target < vocab)
        target_logit = tl.load(row + target, mask=inside, other=float("nan")).to(tl.float32) * LOG2E
        top = tl.full((), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)  # the sum of exponentials relative to 2^top, one partial sum per lane
        logit_sum = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, width, BLOCK):
            c = start + at
            u = tl.load(row + c, mask=c < width, other=0.0).to(tl.float32) * LOG2E
            if SMOOTHED:
                logit_sum += tl.where(c < vocab, u, 0.0)
            u = tl.where(c < vocab, u, float("-inf"))
            new_top = tl.maximum(top, tl.max(u))
            total = total * tl.exp2(top - new_top) + tl.exp2(u - new_top)
            top = new_top
        lse = top + tl.log2(tl.sum(total))
        loss = lse - (1.0 - smoothing) * target_logit
        if SMOOTHED:
            loss -= smoothing * tl.sum(logit_sum) / vocab
        tl.store(out, loss / LOG2E)
        if GRADIENTS:
            for start in range(0, width, BLOCK):
                c = start + at
                u = tl.load(row + c, mask=c < width, other=0.0).to(tl.float32) * LOG2E
                gradient = tl.exp2(u - lse) - smoothing / vocab - tl.where(c == target, 1.0 - smoothing, 0.0)
                gradient = tl.where(c < vocab, gradient, 0.0)
                tl.store(row + c, gradient.to(logits.dtype.element_ty), mask=c < width)


def launch_rows(
    logits: Tensor, targets: Tensor, vocab: int, smoothing: float, with_gradients: bool, ignored: int
) -> Tensor:
    """``cross_entropy.cross_entropy_rows`` on a GPU: losses (n,) of logits (n, V or more)."""
    assert logits.is_contiguous()
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    block = min(triton.next_power_of_2(logits.shape[1]), MAX_BLOCK)
    with torch.cuda.device_of(logits):  # Triton launches on the current device
        rows[(len(logits),)](
            logits, targets.contiguous(), losses, logits.shape[1], vocab, float(smoothing),
            IGNORED=ignored, SMOOTHED=smoothing > 0, GRADIENTS=with_gradients, BLOCK=block,
            num_warps=max(1, min(block // 512, 16)),
        )  # fmt: skip
    return losses
