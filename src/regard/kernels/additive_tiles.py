# mypy: ignore-errors
# ruff: noqa: N803
"""Triton kernels for additive attention with many queries: only one tile of the (Tq, Tk, D) tensor exists at a time.

Two ideas make them fast. First, with x = e²ᵍe²ᵏ and r = 1 / (1 + x) we have tanh(q + k) = 1 - 2r, so exponentials are
computed once per query and once per key (``prepare``), and two terms share one reciprocal: w₁r₁ + w₂r₂ =
(w₁y₂ + w₂y₁) / y₁y₂ with y = 1 + x. Second, every sum runs inside one thread: the logits of a (query, key) tile loop
over the width, the gradients of a (row, width) tile loop over the rows of the other side. No inner loop exchanges data
between threads.

A tile has the shape (RI, RJ, TI, TJ): the compiler maps the last two dimensions to threads and keeps the first two in
registers. Lengths are padded to whole tiles in scratch tensors, but not in inputs and outputs.
"""

import os

import triton
import triton.language as tl

TWO_LOG2E = tl.constexpr(2.8853900817779268)  # 2 / ln 2: e²ˣ = 2^(TWO_LOG2E·x)
MAX_PAIRED = tl.constexpr(22.0)  # y₁y₂ is finite in float32 if every q + k is below this
LOGIT_UNROLL = tl.constexpr(8)  # terms of a logit in one loop iteration: their loads overlap
GRADIENT_UNROLL = tl.constexpr(4)  # terms of a gradient in one loop iteration
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def reciprocal(y):
    """1 / y in one instruction, accurate to one unit in the last place; Triton's division takes several."""
    if INTERPRETED:
        return 1.0 / y
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def register_order(R: tl.constexpr, T: tl.constexpr):
    """0 … R·T - 1 as (R, T) with t·R + r in register r of thread t: the registers of a thread are contiguous."""
    return tl.arange(0, R)[:, None] + tl.arange(0, T)[None, :] * R


@triton.jit
def thread_order(R: tl.constexpr, T: tl.constexpr):
    """0 … R·T - 1 as (R, T) with r·T + t in register r of thread t: neighbouring threads are contiguous."""
    return tl.arange(0, R)[:, None] * T + tl.arange(0, T)[None, :]


@triton.jit
def prepare(
    x, columns, rows, maxima, length, padded, width, W: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """e²ˣ of x (N, length, width), padded: as columns (N, blocks, W, BLOCK), with ROWS as rows too; and max |x|."""
    n = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * 32 + tl.arange(0, 32)[:, None]
    d = tl.program_id(1) * 32 + tl.arange(0, 32)[None, :]
    value = tl.load(x + n * length * width + t * width + d, mask=(t < length) & (d < width), other=0.0).to(tl.float32)
    e = tl.exp2(value * TWO_LOG2E)
    tl.store(columns + n * padded * W + t // BLOCK * (W * BLOCK) + d * BLOCK + t % BLOCK, e)
    if ROWS:
        tl.store(rows + n * padded * W + t * W + d, e)
    place = (n * tl.num_programs(0) + tl.program_id(0)) * tl.num_programs(1) + tl.program_id(1)
    tl.store(maxima + place, tl.max(tl.abs(value)))


@triton.jit
def largest(maxima, n, padded, W: tl.constexpr):
    """The largest |x| of row n, given the largest of each tile."""
    count = padded // 32 * (W // 32)
    most = tl.zeros((128,), tl.float32)
    for start in range(0, count, 128):
        at = start + tl.arange(0, 128)
        most = tl.maximum(most, tl.load(maxima + n * count + at, mask=at < count, other=0.0))
    return tl.max(most)


@triton.jit
def paired_sum(
    eq, ek, w, W: tl.constexpr, BLOCK: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """Σ w r of a tile, from precomputed exponentials: three instructions and half a reciprocal for each term."""
    i, j = register_order(RI, TI), register_order(RJ, TJ)
    total = tl.zeros((RI, RJ, TI, TJ), tl.float32)
    for start in range(0, W, LOGIT_UNROLL):
        for d in tl.static_range(0, LOGIT_UNROLL, 2):
            a, b = eq + (start + d) * BLOCK + i, ek + (start + d) * BLOCK + j
            y1 = tl.load(a)[:, None, :, None] * tl.load(b)[None, :, None, :] + 1.0
            y2 = tl.load(a + BLOCK)[:, None, :, None] * tl.load(b + BLOCK)[None, :, None, :] + 1.0
            w1, w2 = tl.load(w + start + d), tl.load(w + start + d + 1)
            total += (w1 * y2 + w2 * y1) * reciprocal(y1 * y2)
    return total


@triton.jit
def plain_sum(
    q, k, w, q_left, k_left, width,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """Σ w r of a tile, from q and k of any size: if the exponential overflows to ∞, its reciprocal 0 is correct."""
    i, j = register_order(RI, TI), register_order(RJ, TJ)
    total = tl.zeros((RI, RJ, TI, TJ), tl.float32)
    for d in range(0, width):
        a = tl.load(q + i * width + d, mask=i < q_left, other=0.0).to(tl.float32) * TWO_LOG2E
        b = tl.load(k + j * width + d, mask=j < k_left, other=0.0).to(tl.float32) * TWO_LOG2E
        total += tl.load(w + d) * reciprocal(tl.exp2(a[:, None, :, None] + b[None, :, None, :]) + 1.0)
    return total


@triton.jit
def logits(
    q, k, w, eq, ek, small, i0, j0, queries, keys, width, W: tl.constexpr, BLOCK: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """The tile of logits at (i0, j0), in base 2 and without the constant Σ w, which the softmax cancels."""
    if small:
        a, b = eq + i0 // BLOCK * (W * BLOCK) + i0 % BLOCK, ek + j0 // BLOCK * (W * BLOCK) + j0 % BLOCK
        total = paired_sum(a, b, w, W, BLOCK, RI, RJ, TI, TJ)
    else:
        total = plain_sum(q + i0 * width, k + j0 * width, w, queries - i0, keys - j0, width, RI, RJ, TI, TJ)
    return total * -TWO_LOG2E


@triton.jit
def flat(tile, RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr):
    """(RI, RJ, TI, TJ) → (RI·TI, RJ·TJ), for matrix products."""
    return tl.reshape(tl.permute(tile, (2, 0, 3, 1)), (RI * TI, RJ * TJ))


@triton.jit
def visible(
    table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """True at the (query, key) pairs of a tile that exist and that the mask allows."""
    i, j = i0 + register_order(RI, TI)[:, None, :, None], j0 + register_order(RJ, TJ)[None, :, None, :]
    seen = (i < queries) & (j < keys)
    if MASKED:
        seen = seen & (tl.load(table + n * table_n + i * table_i + j * table_j, mask=seen, other=0) != 0)
    return seen


@triton.jit
def attend(
    q, k, w, v, table, eq, ek, q_maxima, k_maxima, out, lse,
    queries, keys, q_padded, k_padded, width, depth, table_n, table_i, table_j,
    W: tl.constexpr, BLOCK: tl.constexpr, V: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """The output of one block of queries by an online softmax (Milakov & Gimelshein 2018), and its log-sum-exp.

    A query that may look at no key gets zeros and a log-sum-exp of +∞, which makes its weights zero in the backward
    pass.
    """
    n, i0 = tl.program_id(1).to(tl.int64), tl.program_id(0) * RI * TI
    c = tl.arange(0, V)[None, :]
    small = largest(q_maxima, n, q_padded, W) + largest(k_maxima, n, k_padded, W) < MAX_PAIRED
    q, k, v = q + n * queries * width, k + n * keys * width, v + n * keys * depth
    eq, ek = eq + n * q_padded * W, ek + n * k_padded * W
    top = tl.full((RI, TI), float("-inf"), tl.float32)
    mass = tl.zeros((RI, TI), tl.float32)
    read = tl.zeros((RI * TI, V), tl.float32)
    for j0 in range(0, keys, RJ * TJ):
        u = logits(q, k, w, eq, ek, small, i0, j0, queries, keys, width, W, BLOCK, RI, RJ, TI, TJ)
        seen = visible(table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED, RI, RJ, TI, TJ)
        u = tl.where(seen, u, float("-inf"))
        new_top = tl.maximum(top, tl.max(tl.max(u, 1), 2))
        level = tl.where(new_top == float("-inf"), 0.0, new_top)
        p, rescale = tl.exp2(u - level[:, None, :, None]), tl.exp2(top - level)
        mass = mass * rescale + tl.sum(tl.sum(p, 1), 2)
        j = j0 + tl.arange(0, RJ * TJ)[:, None]
        value = tl.load(v + j * depth + c, mask=(j < keys) & (c < depth), other=0.0)
        kept = read * tl.reshape(tl.trans(rescale), (RI * TI,))[:, None]
        read = tl.dot(flat(p.to(value.dtype), RI, RJ, TI, TJ), value, kept, input_precision=PRECISION)
        top = new_top
    has_keys = mass > 0
    mass = tl.where(has_keys, mass, 1.0)
    i = i0 + tl.arange(0, RI * TI)[:, None]
    read = read / tl.reshape(tl.trans(mass), (RI * TI,))[:, None]
    place, inside = n * queries * depth + i * depth + c, (i < queries) & (c < depth)
    tl.store(out + place, read.to(out.dtype.element_ty), mask=inside)
    at = i0 + register_order(RI, TI)
    tl.store(lse + n * queries + at, tl.where(has_keys, top + tl.log2(mass), float("inf")), mask=at < queries)


@triton.jit
def logit_gradients(
    q, k, w, v, table, eq, ek, q_maxima, k_maxima, out, lse, d_out, d_v, d_logits,
    queries, keys, q_padded, k_padded, width, depth, table_n, table_i, table_j,
    W: tl.constexpr, BLOCK: tl.constexpr, V: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """For one block of keys: the gradients of its values and of its logits, p (dp - Σ p dp), padded (N, Tq, Tk)."""
    n, j0 = tl.program_id(1).to(tl.int64), tl.program_id(0) * RJ * TJ
    j, c = j0 + tl.arange(0, RJ * TJ), tl.arange(0, V)[None, :]
    small = largest(q_maxima, n, q_padded, W) + largest(k_maxima, n, k_padded, W) < MAX_PAIRED
    q, k = q + n * queries * width, k + n * keys * width
    eq, ek = eq + n * q_padded * W, ek + n * k_padded * W
    place, inside = n * keys * depth + j[:, None] * depth + c, (j[:, None] < keys) & (c < depth)
    value = tl.load(v + place, mask=inside, other=0.0)
    gradient = tl.zeros((RJ * TJ, V), tl.float32)
    for i0 in range(0, q_padded, RI * TI):
        u = logits(q, k, w, eq, ek, small, i0, j0, queries, keys, width, W, BLOCK, RI, RJ, TI, TJ)
        seen = visible(table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED, RI, RJ, TI, TJ)
        at = i0 + register_order(RI, TI)
        log = tl.load(lse + n * queries + at, mask=at < queries, other=float("inf"))
        p = flat(tl.where(seen, tl.exp2(u - log[:, None, :, None]), 0.0), RI, RJ, TI, TJ)
        i = i0 + tl.arange(0, RI * TI)[:, None]
        row, there = n * queries * depth + i * depth + c, (i < queries) & (c < depth)
        upstream = tl.load(d_out + row, mask=there, other=0.0)
        read = tl.load(out + row, mask=there, other=0.0)
        mean = tl.sum(upstream.to(tl.float32) * read.to(tl.float32), 1)  # Σ p dp, from the output
        dp = tl.dot(upstream, tl.trans(value), input_precision=PRECISION)
        gradient = tl.dot(tl.trans(p.to(value.dtype)), upstream, gradient, input_precision=PRECISION)
        tl.store(d_logits + n * q_padded * k_padded + i * k_padded + j[None, :], p * (dp - mean[:, None]))
    tl.store(d_v + place, gradient.to(d_v.dtype.element_ty), mask=inside)


@triton.jit
def paired_gradients(e, lines, d_logits, length, d_logits_step, W: tl.constexpr, WEIGHTS: tl.constexpr):
    """Σ s r (1 - r) and, with WEIGHTS, Σ s r over the rows with exponentials at ``lines``, two rows at a time."""
    gradient_sum, weight_sum = tl.zeros_like(e), tl.zeros_like(e)
    for start in range(0, length, GRADIENT_UNROLL):  # lengths are padded to whole tiles, where s is zero
        for step in tl.static_range(0, GRADIENT_UNROLL, 2):
            j = start + step
            y1 = e * tl.load(lines + j * W)[None, :, None, :] + 1.0
            y2 = e * tl.load(lines + j * W + W)[None, :, None, :] + 1.0
            s1 = tl.load(d_logits + j * d_logits_step)[:, None, :, None]
            s2 = tl.load(d_logits + (j + 1) * d_logits_step)[:, None, :, None]
            both = reciprocal(y1 * y2)
            r1, r2 = y2 * both, y1 * both
            gradient_sum += s1 * (r1 - r1 * r1)
            gradient_sum += s2 * (r2 - r2 * r2)
            if WEIGHTS:
                weight_sum += s1 * r1
                weight_sum += s2 * r2
    return gradient_sum, weight_sum


@triton.jit
def plain_gradients(x, lines, inside, d_logits, length, d_logits_step, width, WEIGHTS: tl.constexpr):
    """The sums of ``paired_gradients`` from q and k of any size."""
    gradient_sum, weight_sum = tl.zeros_like(x), tl.zeros_like(x)
    for j in range(0, length):
        other = tl.load(lines + j * width, mask=inside, other=0.0).to(tl.float32) * TWO_LOG2E
        r = reciprocal(tl.exp2(x + other[None, :, None, :]) + 1.0)
        s = tl.load(d_logits + j * d_logits_step)[:, None, :, None]
        gradient_sum += s * (r - r * r)
        if WEIGHTS:
            weight_sum += s * r
    return gradient_sum, weight_sum


@triton.jit
def gradients(
    own, other, w, e_other, own_maxima, other_maxima, d_logits, d_own, d_w,
    own_length, other_length, own_padded, other_padded, width, d_logits_own, d_logits_other,
    W: tl.constexpr, WEIGHTS: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """One (rows, width) block of dq or dk, a sum over the other side with tanh' = 4 r (1 - r); with WEIGHTS also dw."""
    n, i0, d0 = tl.program_id(2).to(tl.int64), tl.program_id(0) * RI * TI, tl.program_id(1) * RJ * TJ
    i, d = i0 + thread_order(RI, TI), d0 + thread_order(RJ, TJ)
    small = largest(own_maxima, n, own_padded, W) + largest(other_maxima, n, other_padded, W) < MAX_PAIRED
    d_logits = d_logits + n * own_padded * other_padded + i * d_logits_own
    inside = (i < own_length)[:, None, :, None] & (d < width)[None, :, None, :]
    place = n * own_length * width + (i * width)[:, None, :, None] + d[None, :, None, :]
    x = tl.load(own + place, mask=inside, other=0.0).to(tl.float32) * TWO_LOG2E
    if small:
        e_lines = e_other + n * other_padded * W + d
        gradient_sum, weight_sum = paired_gradients(
            tl.exp2(x), e_lines, d_logits, other_length, d_logits_other, W, WEIGHTS
        )
    else:
        lines = other + n * other_length * width + d
        gradient_sum, weight_sum = plain_gradients(
            x, lines, d < width, d_logits, other_length, d_logits_other, width, WEIGHTS
        )
    gradient_sum *= 4.0 * tl.load(w + d)[None, :, None, :]
    tl.store(d_own + place, gradient_sum.to(d_own.dtype.element_ty), mask=inside)
    if WEIGHTS:  # Σ s tanh = Σ s (1 - 2r), and the gradients s of a softmax sum to zero
        row = n * tl.num_programs(0) + tl.program_id(0)
        tl.store(d_w + row * W + d, -2.0 * tl.sum(tl.sum(weight_sum, 2), 0))
