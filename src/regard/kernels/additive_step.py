# mypy: ignore-errors
# ruff: noqa: N803
"""Triton kernels for additive attention with one query, as in a decoding step: one launch forward, one backward.

A program computes one row of the batch. It loads keys and values once, in tiles of their full width, and computes
everything from them: a step does little arithmetic, so its cost is memory traffic and kernel launches.
"""

import triton
import triton.language as tl

from regard.kernels.additive_tiles import TWO_LOG2E, reciprocal


@triton.jit
def compare(q, k, w, table, n, j, d, keys, width, table_n, table_j, MASKED: tl.constexpr):
    """r = 1 / (1 + e^(2q + 2k)) for a block of keys (K, W), their logits in base 2, and if each may be seen."""
    inside = (j[:, None] < keys) & (d[None, :] < width)
    x = q[None, :] + tl.load(k + (n * keys + j[:, None]) * width + d[None, :], mask=inside, other=0.0).to(tl.float32)
    r = reciprocal(tl.exp2(x * TWO_LOG2E) + 1.0)
    seen = j < keys
    if MASKED:
        seen = seen & (tl.load(table + n * table_n + j * table_j, mask=seen, other=0) != 0)
    return r, tl.sum(w[None, :] * r, 1) * -TWO_LOG2E, seen


@triton.jit
def attend(
    q, k, w, v, table, out, lse, keys, width, depth, table_n, table_j,
    W: tl.constexpr, V: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The output of one query and its log-sum-exp (+∞ if the query may look at no key)."""
    n = tl.program_id(0).to(tl.int64)
    d, c = tl.arange(0, W), tl.arange(0, V)
    query = tl.load(q + n * width + d, mask=d < width, other=0.0).to(tl.float32)
    weight = tl.load(w + d, mask=d < width, other=0.0).to(tl.float32)
    top, total, read = float("-inf"), 0.0, tl.zeros((V,), tl.float32)
    for j0 in range(0, keys, K):
        j = j0 + tl.arange(0, K)
        value = tl.load(
            v + (n * keys + j[:, None]) * depth + c[None, :],
            mask=(j[:, None] < keys) & (c[None, :] < depth), other=0.0,
        ).to(tl.float32)  # fmt: skip
        _, u, seen = compare(query, k, weight, table, n, j, d, keys, width, table_n, table_j, MASKED)
        u = tl.where(seen, u, float("-inf"))
        new_top = tl.maximum(top, tl.max(u))
        level = tl.where(new_top == float("-inf"), 0.0, new_top)
        p, rescale = tl.exp2(u - level), tl.exp2(top - level)
        total = total * rescale + tl.sum(p)
        read = read * rescale + tl.sum(p[:, None] * value, 0)
        top = new_top
    has_keys = total > 0
    total = tl.where(has_keys, total, 1.0)
    tl.store(out + n * depth + c, (read / total).to(out.dtype.element_ty), mask=c < depth)
    tl.store(lse + n, tl.where(has_keys, top + tl.log2(total), float("inf")))


@triton.jit
def gradients(
    q, k, w, v, table, out, lse, d_out, d_q, d_k, d_w, d_v, keys, width, depth, table_n, table_j,
    W: tl.constexpr, V: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """All gradients of ``attend``; dw has one row for each row of the batch."""
    n = tl.program_id(0).to(tl.int64)
    d, c = tl.arange(0, W), tl.arange(0, V)
    query = tl.load(q + n * width + d, mask=d < width, other=0.0).to(tl.float32)
    weight = tl.load(w + d, mask=d < width, other=0.0).to(tl.float32)
    upstream = tl.load(d_out + n * depth + c, mask=c < depth, other=0.0).to(tl.float32)
    read = tl.load(out + n * depth + c, mask=c < depth, other=0.0).to(tl.float32)
    mean, log = tl.sum(upstream * read), tl.load(lse + n)
    gradient_sum, weight_sum = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for j0 in range(0, keys, K):
        j = j0 + tl.arange(0, K)
        place, inside = (n * keys + j[:, None]) * depth + c[None, :], (j[:, None] < keys) & (c[None, :] < depth)
        value = tl.load(v + place, mask=inside, other=0.0).to(tl.float32)
        r, u, seen = compare(query, k, weight, table, n, j, d, keys, width, table_n, table_j, MASKED)
        p = tl.where(seen, tl.exp2(u - log), 0.0)
        d_logits = p * (tl.sum(upstream[None, :] * value, 1) - mean)
        tl.store(d_v + place, (p[:, None] * upstream[None, :]).to(d_v.dtype.element_ty), mask=inside)
        key_gradient = d_logits[:, None] * (r - r * r)
        key_place = (n * keys + j[:, None]) * width + d[None, :]
        key_inside = (j[:, None] < keys) & (d[None, :] < width)
        tl.store(
            d_k + key_place, (4.0 * weight[None, :] * key_gradient).to(d_k.dtype.element_ty), mask=key_inside
        )  # fmt: skip
        gradient_sum += tl.sum(key_gradient, 0)
        weight_sum += tl.sum(d_logits[:, None] * r, 0)
    tl.store(d_q + n * width + d, (4.0 * weight * gradient_sum).to(d_q.dtype.element_ty), mask=d < width)
    tl.store(d_w + n * width + d, -2.0 * weight_sum, mask=d < width)
