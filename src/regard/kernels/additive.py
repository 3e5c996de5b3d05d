"""Additive logits, vᵀ tanh(q + k), without the (..., Tq, Tk, D) tensor that the formula asks for.

Two ideas. The large tensor is made one cache-sized block at a time and made again on the way back, so memory grows with
Tq·Tk alone. And a block is never a tanh: with r = 1 / (1 + e²ᵍe²ᵏ) we have tanh(q + k) = 1 - 2r, so the exponentials
are taken once per query and once per key, and what is left for every pair is a product, a sum and a reciprocal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = {"cpu": 2**21, "cuda": 2**27}  # elements: on a CPU a block should stay in the cache, on a GPU fill the card
SAFE = 40.0  # e²ˣ and e⁻²ˣ are finite in float32 up to here


def additive_logits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(q + k) for every pair, in at least float32: (..., Tq, D), (..., Tk, D), (D,) → (..., Tq, Tk)"""
    if q.shape[-2] == 1 or torch.compiler.is_compiling() or not (q.numel() and k.numel()):
        return written_out(q, k, v)  # a step, or nothing, is too small to be cut; a compiler cuts its own blocks
    exact = torch.promote_types(q.dtype, torch.float32)
    leading, (queries, width), keys = q.shape[:-2], q.shape[-2:], k.shape[-2]
    flat_q = q.to(exact).reshape(-1, queries, width)
    flat_k = k.to(exact).expand(*leading, keys, width).reshape(-1, keys, width)
    logits: Tensor = AdditiveInBlocks.apply(flat_q, flat_k, v.to(exact))  # type: ignore[no-untyped-call]
    return logits.view(*leading, queries, keys)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula itself, in at least float32."""
    exact, device = torch.promote_types(q.dtype, torch.float32), q.device.type
    compared = torch.tanh(q.to(exact).unsqueeze(-2) + k.to(exact).unsqueeze(-3))
    if not torch.is_autocast_enabled(device):  # asked first: leaving autocast takes as long as a small step
        return compared @ v.to(exact)
    with torch.autocast(device, enabled=False):  # it would halve the product
        return compared @ v.to(exact)


class AdditiveInBlocks(torch.autograd.Function):
    """(N, Tq, D), (N, Tk, D), (D,) → (N, Tq, Tk). Products go through ``out=`` and in place: autocast leaves those."""

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
            slope = r.addcmul_(r, r, value=-1).mul_(g.unsqueeze(-1))  # d tanh = 4 r (1 - r), in the block's own memory
            torch.sum(slope, 2, out=dq[rows, queries])
            dk[rows] += slope.sum(1)
        return dq.mul_(4 * v), dk.mul_(4 * v), gradient.sum() - 2 * dv


def blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """r of some rows and some of their queries, (n, t, Tk, D); every block lives in the same memory.

    A block is several whole rows, or part of one: either way a contiguous piece of the logits.
    """
    (count, length, width), keys = q.shape, k.shape[1]
    budget = BLOCK.get(q.device.type, BLOCK["cuda"])
    take = min(length, max(1, budget // (keys * width)))
    many = min(count, max(1, budget // (length * keys * width)))
    memory = q.new_empty(many * take * keys * width)
    factors = _in_factors(q, k)
    a, b = (torch.exp(2 * q), torch.exp(2 * k)) if factors else (-2 * q, -2 * k)
    one = q.new_ones(())
    for i in range(0, count, many):
        for j in range(0, length, take):
            rows, queries = slice(i, i + many), slice(j, j + take)
            left, right = a[rows, queries].unsqueeze(2), b[rows].unsqueeze(1)  # (n, t, 1, D), (n, 1, Tk, D)
            r = memory[: left.numel() * keys].view(left.shape[0], left.shape[1], keys, width)
            if factors:
                torch.addcmul(one, left, right, out=r).reciprocal_()
            else:
                torch.add(left, right, out=r).sigmoid_()
            yield rows, queries, r


def _in_factors(q: Tensor, k: Tensor) -> bool:
    """Whether exponentials may be taken apart: they must not overflow, and there must be queries to share them.

    Asking costs a GPU its pipeline, and there the sigmoid is free beside the memory it waits for.
    """
    if q.device.type != "cpu" or q.shape[1] < 4 or not q.numel() or not k.numel():
        return False
    return max(q.abs().max().item(), k.abs().max().item()) < SAFE
