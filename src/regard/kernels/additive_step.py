# mypy: ignore-errors
# ruff: noqa: N803
"""Triton programs for additive attention with one query, a recurrent decoder's step: one launch each way.

A program has one row of the batch. The keys and values pass through registers once, in tiles as wide as they are, and
everything else is made on the way: there is little arithmetic in a step, only bytes and launches.
"""

import triton
import triton.language as tl

from regard.kernels.additive_tiles import TURN, reciprocal


@triton.jit
def lookup(q, k, w, table, n, j, d, keys, width, table_n, table_j, MASKED: tl.constexpr):
    """r = 1 / (1 + e^(2q + 2k)) of a block of keys (K, W), their logits in base 2, and whether each may be seen."""
    inside = (j[:, None] < keys) & (d[None, :] < width)
    x = q[None, :] + tl.load(k + (n * keys + j[:, None]) * width + d[None, :], mask=inside, other=0.0).to(tl.float32)
    r = reciprocal(tl.exp2(x * TURN) + 1.0)
    seen = j < keys
    if MASKED:
        seen = seen & (tl.load(table + n * table_n + j * table_j, mask=seen, other=0) != 0)
    return r, tl.sum(w[None, :] * r, 1) * -TURN, seen


@triton.jit
def attend(
    q, k, w, v, table, out, lse, keys, width, depth, table_n, table_j,
    W: tl.constexpr, V: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """What one query reads, and the logarithm of the sum in its softmax (+∞ where it may see nothing)."""
    n = tl.program_id(0).to(tl.int64)
    d, c = tl.arange(0, W), tl.arange(0, V)
    query = tl.load(q + n * width + d, mask=d < width, other=0.0).to(tl.float32)
    weight = tl.load(w + d, mask=d < width, other=0.0).to(tl.float32)
    top, mass, read = float("-inf"), 0.0, tl.zeros((V,), tl.float32)
    for j0 in range(0, keys, K):
        j = j0 + tl.arange(0, K)
        value = tl.load(
            v + (n * keys + j[:, None]) * depth + c[None, :],
            mask=(j[:, None] < keys) & (c[None, :] < depth), other=0.0,
        ).to(tl.float32)  # fmt: skip
        _, u, seen = lookup(query, k, weight, table, n, j, d, keys, width, table_n, table_j, MASKED)
        u = tl.where(seen, u, float("-inf"))
        higher = tl.maximum(top, tl.max(u))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        p, fade = tl.exp2(u - level), tl.exp2(top - level)
        mass = mass * fade + tl.sum(p)
        read = read * fade + tl.sum(p[:, None] * value, 0)
        top = higher
    seeing = mass > 0
    mass = tl.where(seeing, mass, 1.0)
    tl.store(out + n * depth + c, (read / mass).to(out.dtype.element_ty), mask=c < depth)
    tl.store(lse + n, tl.where(seeing, top + tl.log2(mass), float("inf")))


@triton.jit
def gradients(
    q, k, w, v, table, out, lse, d_out, d_q, d_k, d_w, d_v, keys, width, depth, table_n, table_j,
    W: tl.constexpr, V: tl.constexpr, K: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Every gradient of that; dw as one row for each row of the batch."""
    n = tl.program_id(0).to(tl.int64)
    d, c = tl.arange(0, W), tl.arange(0, V)
    query = tl.load(q + n * width + d, mask=d < width, other=0.0).to(tl.float32)
    weight = tl.load(w + d, mask=d < width, other=0.0).to(tl.float32)
    upstream = tl.load(d_out + n * depth + c, mask=c < depth, other=0.0).to(tl.float32)
    read = tl.load(out + n * depth + c, mask=c < depth, other=0.0).to(tl.float32)
    mean, log = tl.sum(upstream * read), tl.load(lse + n)
    change, share = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for j0 in range(0, keys, K):
        j = j0 + tl.arange(0, K)
        place, inside = (n * keys + j[:, None]) * depth + c[None, :], (j[:, None] < keys) & (c[None, :] < depth)
        value = tl.load(v + place, mask=inside, other=0.0).to(tl.float32)
        r, u, seen = lookup(query, k, weight, table, n, j, d, keys, width, table_n, table_j, MASKED)
        p = tl.where(seen, tl.exp2(u - log), 0.0)
        slope = p * (tl.sum(upstream[None, :] * value, 1) - mean)
        tl.store(d_v + place, (p[:, None] * upstream[None, :]).to(d_v.dtype.element_ty), mask=inside)
        steep = slope[:, None] * (r - r * r)
        key_place = (n * keys + j[:, None]) * width + d[None, :]
        key_inside = (j[:, None] < keys) & (d[None, :] < width)
        tl.store(
            d_k + key_place, (4.0 * weight[None, :] * steep).to(d_k.dtype.element_ty), mask=key_inside
        )  # fmt: skip
        change += tl.sum(steep, 0)
        share += tl.sum(slope[:, None] * r, 0)
    tl.store(d_q + n * width + d, (4.0 * weight * change).to(d_q.dtype.element_ty), mask=d < width)
    tl.store(d_w + n * width + d, -2.0 * share, mask=d < width)
