"""Additive logits, vᵀ tanh(q + k), without the (..., Tq, Tk, D) tensor of the plain formula.

Two ideas. First, the large tensor is computed one cache-sized block at a time, and computed again in the backward pass,
so memory grows with Tq·Tk alone. Second, no block computes a tanh: with r = 1 / (1 + e²ᵍe²ᵏ) we have tanh(q + k) =
1 - 2r, so the exponentials are computed once per query and once per key, and each pair costs a product, a sum and a
reciprocal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.device import is_traced

BLOCK = {"cpu": 2**21, "cuda": 2**27}  # elements: on a CPU a block should fit in the cache, on a GPU keep it busy
MAX_FACTORED = 40.0  # e²ˣ and e⁻²ˣ are finite in float32 up to this x


def additive_logits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(q + k) for every pair, in at least float32: (..., Tq, D), (..., Tk, D), (D,) → (..., Tq, Tk)"""
    if q.shape[-2] == 1 or is_traced(q) or not (q.numel() and k.numel()):
        return plain_additive_logits(q, k, v)  # too small for blocks; a compiler makes its own blocks
    exact = torch.promote_types(q.dtype, torch.float32)
    leading, (queries, width), keys = q.shape[:-2], q.shape[-2:], k.shape[-2]
    flat_q = q.to(exact).reshape(-1, queries, width)
    flat_k = k.to(exact).expand(*leading, keys, width).reshape(-1, keys, width)
    logits: Tensor = AdditiveInBlocks.apply(flat_q, flat_k, v.to(exact))  # type: ignore[no-untyped-call]
    return logits.view(*leading, queries, keys)


def plain_additive_logits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The plain formula, in at least float32."""
    exact, device = torch.promote_types(q.dtype, torch.float32), q.device.type
    compared = torch.tanh(q.to(exact).unsqueeze(-2) + k.to(exact).unsqueeze(-3))
    if not torch.is_autocast_enabled(device):  # tested first: entering the context below takes as long as a small step
        return compared @ v.to(exact)
    with torch.autocast(device, enabled=False):  # autocast would compute the product in half precision
        return compared @ v.to(exact)


class AdditiveInBlocks(torch.autograd.Function):
    """(N, Tq, D), (N, Tk, D), (D,) → (N, Tq, Tk). Products use ``out=`` or run in place, so autocast ignores them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        logits = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
        for rows, queries, r in blocks(q, k):
            torch.mv(r.view(-1, v.numel()), v, out=logits[rows, queries].view(-1))
        return logits.mul_(-2).add_(v.sum())  # Σ v (1 - 2r)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = ctx.saved_tensors
        gradient = gradient.contiguous()
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for rows, queries, r in blocks(q, k):
            g = gradient[rows, queries]
            dv.addmv_(r.view(-1, v.numel()).t(), g.view(-1))
            d_sum = r.addcmul_(r, r, value=-1).mul_(g.unsqueeze(-1))  # d tanh = 4 r (1 - r), in place
            torch.sum(d_sum, 2, out=dq[rows, queries])
            dk[rows] += d_sum.sum(1)
        return dq.mul_(4 * v), dk.mul_(4 * v), gradient.sum() - 2 * dv


def blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yields r for some rows and some of their queries, (n, t, Tk, D); all blocks use the same memory.

    A block is several whole rows or a part of one row, so it is a contiguous piece of the logits.
    """
    (count, length, width), keys = q.shape, k.shape[1]
    budget = BLOCK.get(q.device.type, BLOCK["cuda"])
    block_queries = min(length, max(1, budget // (keys * width)))
    block_rows = min(count, max(1, budget // (length * keys * width)))
    memory = q.new_empty(block_rows * block_queries * keys * width)
    factors = _can_factor(q, k)
    a, b = (torch.exp(2 * q), torch.exp(2 * k)) if factors else (-2 * q, -2 * k)
    one = q.new_ones(())
    for i in range(0, count, block_rows):
        for j in range(0, length, block_queries):
            rows, queries = slice(i, i + block_rows), slice(j, j + block_queries)
            left, right = a[rows, queries].unsqueeze(2), b[rows].unsqueeze(1)  # (n, t, 1, D), (n, 1, Tk, D)
            r = memory[: left.numel() * keys].view(left.shape[0], left.shape[1], keys, width)
            if factors:
                torch.addcmul(one, left, right, out=r).reciprocal_()
            else:
                torch.add(left, right, out=r).sigmoid_()
            yield rows, queries, r


def _can_factor(q: Tensor, k: Tensor) -> bool:
    """Whether e²⁽ᵍ⁺ᵏ⁾ can be computed as e²ᵍ · e²ᵏ: no factor may overflow, and several queries must share the factors.

    A GPU would have to synchronize to test this. It uses the sigmoid, which costs nothing next to the memory traffic.
    """
    if q.device.type != "cpu" or q.shape[1] < 4 or not q.numel() or not k.numel():
        return False
    return max(q.abs().max().item(), k.abs().max().item()) < MAX_FACTORED
