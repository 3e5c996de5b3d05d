# mypy: ignore-errors
# ruff: noqa: N803
"""Triton programs for additive attention with many queries: of the (Tq, Tk, D) tensor only a tile exists, in registers.

Two ideas carry the speed. With x = e²ᵍe²ᵏ and r = 1 / (1 + x) we have tanh(q + k) = 1 - 2r, so exponentials are taken
once per query and once per key (``prepare``), and two terms share one reciprocal: w₁r₁ + w₂r₂ = (w₁y₂ + w₂y₁) / y₁y₂
with y = 1 + x. And every sum runs *inside* a thread: logits own a (query, key) tile and walk along the width, gradients
own a (row, width) tile and walk along the other side's rows, so no inner loop ever talks between threads.

A tile is written (RI, RJ, TI, TJ): the compiler hands the last dimensions to threads and keeps the first in registers.
Lengths are padded to whole tiles in everything that the programs make for each other, never in what the caller sees.
"""

import os

import triton
import triton.language as tl

TURN = tl.constexpr(2.8853900817779268)  # 2 / ln 2: e²ˣ = 2^(TURN·x)
REACH = tl.constexpr(22.0)  # y₁y₂ is finite in float32 while every q + k is below this
COLUMNS = tl.constexpr(8)  # terms of a logit in one turn of the loop: their loads are under way together
LINES = tl.constexpr(4)  # terms of a gradient, likewise
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def reciprocal(y):
    """1 / y as one instruction, right to a unit in the last place; the division that Triton writes takes several."""
    if INTERPRETED:
        return 1.0 / y
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def runs(R: tl.constexpr, T: tl.constexpr):
    """0 … R·T - 1 as (R, T): register r of thread t holds t·R + r, so that a thread may load its registers at once."""
    return tl.arange(0, R)[:, None] + tl.arange(0, T)[None, :] * R


@triton.jit
def strides(R: tl.constexpr, T: tl.constexpr):
    """The same with r·T + t: neighbouring threads hold neighbours."""
    return tl.arange(0, R)[:, None] * T + tl.arange(0, T)[None, :]


@triton.jit
def prepare(
    x, columns, rows, peaks, length, padded, width, W: tl.constexpr, EDGE: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """e²ˣ of (N, length, width), padded: columns (N, blocks, W, EDGE), if asked rows (N, padded, W); and max |x|."""
    n = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * 32 + tl.arange(0, 32)[:, None]
    d = tl.program_id(1) * 32 + tl.arange(0, 32)[None, :]
    value = tl.load(x + n * length * width + t * width + d, mask=(t < length) & (d < width), other=0.0).to(tl.float32)
    e = tl.exp2(value * TURN)
    tl.store(columns + n * padded * W + t // EDGE * (W * EDGE) + d * EDGE + t % EDGE, e)
    if ROWS:
        tl.store(rows + n * padded * W + t * W + d, e)
    place = (n * tl.num_programs(0) + tl.program_id(0)) * tl.num_programs(1) + tl.program_id(1)
    tl.store(peaks + place, tl.max(tl.abs(value)))


@triton.jit
def peak(peaks, n, padded, W: tl.constexpr):
    """max |x| of row n, from its tiles."""
    count = padded // 32 * (W // 32)
    most = tl.zeros((128,), tl.float32)
    for start in range(0, count, 128):
        at = start + tl.arange(0, 128)
        most = tl.maximum(most, tl.load(peaks + n * count + at, mask=at < count, other=0.0))
    return tl.max(most)


@triton.jit
def paired_sum(
    eq, ek, w, W: tl.constexpr, EDGE: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """Σ w r of a tile, from the columns of exponentials: three instructions a term and half a reciprocal."""
    i, j = runs(RI, TI), runs(RJ, TJ)
    total = tl.zeros((RI, RJ, TI, TJ), tl.float32)
    for start in range(0, W, COLUMNS):
        for d in tl.static_range(0, COLUMNS, 2):
            a, b = eq + (start + d) * EDGE + i, ek + (start + d) * EDGE + j
            y1 = tl.load(a)[:, None, :, None] * tl.load(b)[None, :, None, :] + 1.0
            y2 = tl.load(a + EDGE)[:, None, :, None] * tl.load(b + EDGE)[None, :, None, :] + 1.0
            w1, w2 = tl.load(w + start + d), tl.load(w + start + d + 1)
            total += (w1 * y2 + w2 * y1) * reciprocal(y1 * y2)
    return total


@triton.jit
def plain_sum(
    q, k, w, q_left, k_left, width,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """The same from q and k themselves, for pre-activations of any size: 2^∞ is ∞, and its reciprocal 0 is right."""
    i, j = runs(RI, TI), runs(RJ, TJ)
    total = tl.zeros((RI, RJ, TI, TJ), tl.float32)
    for d in range(0, width):
        a = tl.load(q + i * width + d, mask=i < q_left, other=0.0).to(tl.float32) * TURN
        b = tl.load(k + j * width + d, mask=j < k_left, other=0.0).to(tl.float32) * TURN
        total += tl.load(w + d) * reciprocal(tl.exp2(a[:, None, :, None] + b[None, :, None, :]) + 1.0)
    return total


@triton.jit
def logits(
    q, k, w, eq, ek, close, i0, j0, queries, keys, width, W: tl.constexpr, EDGE: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """The tile of logits at (i0, j0), in base 2 and without Σ w, which no softmax sees."""
    if close:
        a, b = eq + i0 // EDGE * (W * EDGE) + i0 % EDGE, ek + j0 // EDGE * (W * EDGE) + j0 % EDGE
        total = paired_sum(a, b, w, W, EDGE, RI, RJ, TI, TJ)
    else:
        total = plain_sum(q + i0 * width, k + j0 * width, w, queries - i0, keys - j0, width, RI, RJ, TI, TJ)
    return total * -TURN


@triton.jit
def flat(tile, RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr):
    """(RI, RJ, TI, TJ) → (RI·TI, RJ·TJ), which matrix products want."""
    return tl.reshape(tl.permute(tile, (2, 0, 3, 1)), (RI * TI, RJ * TJ))


@triton.jit
def visible(
    table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """Which pairs of a tile exist and may look."""
    i, j = i0 + runs(RI, TI)[:, None, :, None], j0 + runs(RJ, TJ)[None, :, None, :]
    seen = (i < queries) & (j < keys)
    if MASKED:
        seen = seen & (tl.load(table + n * table_n + i * table_i + j * table_j, mask=seen, other=0) != 0)
    return seen


@triton.jit
def attend(
    q, k, w, v, table, eq, ek, q_peaks, k_peaks, out, lse,
    queries, keys, q_padded, k_padded, width, depth, table_n, table_i, table_j,
    W: tl.constexpr, EDGE: tl.constexpr, V: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """One block of queries reads all values: a running softmax (Milakov & Gimelshein 2018), its log-sum kept for later.

    A query that may see nothing gets zeros and a log-sum of +∞, which makes its weights zero wherever they return.
    """
    n, i0 = tl.program_id(1).to(tl.int64), tl.program_id(0) * RI * TI
    c = tl.arange(0, V)[None, :]
    close = peak(q_peaks, n, q_padded, W) + peak(k_peaks, n, k_padded, W) < REACH
    q, k, v = q + n * queries * width, k + n * keys * width, v + n * keys * depth
    eq, ek = eq + n * q_padded * W, ek + n * k_padded * W
    top = tl.full((RI, TI), float("-inf"), tl.float32)
    mass = tl.zeros((RI, TI), tl.float32)
    read = tl.zeros((RI * TI, V), tl.float32)
    for j0 in range(0, keys, RJ * TJ):
        u = logits(q, k, w, eq, ek, close, i0, j0, queries, keys, width, W, EDGE, RI, RJ, TI, TJ)
        seen = visible(table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED, RI, RJ, TI, TJ)
        u = tl.where(seen, u, float("-inf"))
        higher = tl.maximum(top, tl.max(tl.max(u, 1), 2))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        p, fade = tl.exp2(u - level[:, None, :, None]), tl.exp2(top - level)
        mass = mass * fade + tl.sum(tl.sum(p, 1), 2)
        j = j0 + tl.arange(0, RJ * TJ)[:, None]
        value = tl.load(v + j * depth + c, mask=(j < keys) & (c < depth), other=0.0)
        kept = read * tl.reshape(tl.trans(fade), (RI * TI,))[:, None]
        read = tl.dot(flat(p.to(value.dtype), RI, RJ, TI, TJ), value, kept, input_precision=PRECISION)
        top = higher
    seeing = mass > 0
    mass = tl.where(seeing, mass, 1.0)
    i = i0 + tl.arange(0, RI * TI)[:, None]
    read = read / tl.reshape(tl.trans(mass), (RI * TI,))[:, None]
    place, inside = n * queries * depth + i * depth + c, (i < queries) & (c < depth)
    tl.store(out + place, read.to(out.dtype.element_ty), mask=inside)
    at = i0 + runs(RI, TI)
    tl.store(lse + n * queries + at, tl.where(seeing, top + tl.log2(mass), float("inf")), mask=at < queries)


@triton.jit
def slopes(
    q, k, w, v, table, eq, ek, q_peaks, k_peaks, out, lse, d_out, d_v, slope,
    queries, keys, q_padded, k_padded, width, depth, table_n, table_i, table_j,
    W: tl.constexpr, EDGE: tl.constexpr, V: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """One block of keys: the gradient of its values, and that of its logits, p (dp - Σ p dp), as (N, Tq, Tk) padded."""
    n, j0 = tl.program_id(1).to(tl.int64), tl.program_id(0) * RJ * TJ
    j, c = j0 + tl.arange(0, RJ * TJ), tl.arange(0, V)[None, :]
    close = peak(q_peaks, n, q_padded, W) + peak(k_peaks, n, k_padded, W) < REACH
    q, k = q + n * queries * width, k + n * keys * width
    eq, ek = eq + n * q_padded * W, ek + n * k_padded * W
    place, inside = n * keys * depth + j[:, None] * depth + c, (j[:, None] < keys) & (c < depth)
    value = tl.load(v + place, mask=inside, other=0.0)
    gradient = tl.zeros((RJ * TJ, V), tl.float32)
    for i0 in range(0, q_padded, RI * TI):
        u = logits(q, k, w, eq, ek, close, i0, j0, queries, keys, width, W, EDGE, RI, RJ, TI, TJ)
        seen = visible(table, n, i0, j0, queries, keys, table_n, table_i, table_j, MASKED, RI, RJ, TI, TJ)
        at = i0 + runs(RI, TI)
        log = tl.load(lse + n * queries + at, mask=at < queries, other=float("inf"))
        p = flat(tl.where(seen, tl.exp2(u - log[:, None, :, None]), 0.0), RI, RJ, TI, TJ)
        i = i0 + tl.arange(0, RI * TI)[:, None]
        row, there = n * queries * depth + i * depth + c, (i < queries) & (c < depth)
        upstream = tl.load(d_out + row, mask=there, other=0.0)
        read = tl.load(out + row, mask=there, other=0.0)
        mean = tl.sum(upstream.to(tl.float32) * read.to(tl.float32), 1)  # Σ p dp, by what was read
        dp = tl.dot(upstream, tl.trans(value), input_precision=PRECISION)
        gradient = tl.dot(tl.trans(p.to(value.dtype)), upstream, gradient, input_precision=PRECISION)
        tl.store(slope + n * q_padded * k_padded + i * k_padded + j[None, :], p * (dp - mean[:, None]))
    tl.store(d_v + place, gradient.to(d_v.dtype.element_ty), mask=inside)


@triton.jit
def paired_walk(e, lines, slope, length, slope_step, W: tl.constexpr, WEIGHTS: tl.constexpr):
    """Σ s r (1 - r) and, with WEIGHTS, Σ s r along the rows whose exponentials ``lines`` points at, two at a time."""
    change, share = tl.zeros_like(e), tl.zeros_like(e)
    for start in range(0, length, LINES):  # lengths are padded to whole tiles, with slopes of zero
        for step in tl.static_range(0, LINES, 2):
            j = start + step
            y1 = e * tl.load(lines + j * W)[None, :, None, :] + 1.0
            y2 = e * tl.load(lines + j * W + W)[None, :, None, :] + 1.0
            s1 = tl.load(slope + j * slope_step)[:, None, :, None]
            s2 = tl.load(slope + (j + 1) * slope_step)[:, None, :, None]
            both = reciprocal(y1 * y2)
            r1, r2 = y2 * both, y1 * both
            change += s1 * (r1 - r1 * r1)
            change += s2 * (r2 - r2 * r2)
            if WEIGHTS:
                share += s1 * r1
                share += s2 * r2
    return change, share


@triton.jit
def plain_walk(x, lines, inside, slope, length, slope_step, width, WEIGHTS: tl.constexpr):
    """The same from the pre-activations themselves, of any size."""
    change, share = tl.zeros_like(x), tl.zeros_like(x)
    for j in range(0, length):
        other = tl.load(lines + j * width, mask=inside, other=0.0).to(tl.float32) * TURN
        r = reciprocal(tl.exp2(x + other[None, :, None, :]) + 1.0)
        s = tl.load(slope + j * slope_step)[:, None, :, None]
        change += s * (r - r * r)
        if WEIGHTS:
            share += s * r
    return change, share


@triton.jit
def gradients(
    own, other, w, e_other, own_peaks, other_peaks, slope, d_own, d_w,
    own_length, other_length, own_padded, other_padded, width, slope_own, slope_other,
    W: tl.constexpr, WEIGHTS: tl.constexpr,
    RI: tl.constexpr, RJ: tl.constexpr, TI: tl.constexpr, TJ: tl.constexpr,
):  # fmt: skip
    """One (rows, width) block of dq or dk, walking along the other by tanh' = 4 r (1 - r); with WEIGHTS, part of dw."""
    n, i0, d0 = tl.program_id(2).to(tl.int64), tl.program_id(0) * RI * TI, tl.program_id(1) * RJ * TJ
    i, d = i0 + strides(RI, TI), d0 + strides(RJ, TJ)
    close = peak(own_peaks, n, own_padded, W) + peak(other_peaks, n, other_padded, W) < REACH
    slope = slope + n * own_padded * other_padded + i * slope_own
    inside = (i < own_length)[:, None, :, None] & (d < width)[None, :, None, :]
    place = n * own_length * width + (i * width)[:, None, :, None] + d[None, :, None, :]
    x = tl.load(own + place, mask=inside, other=0.0).to(tl.float32) * TURN
    if close:
        e_lines = e_other + n * other_padded * W + d
        change, share = paired_walk(tl.exp2(x), e_lines, slope, other_length, slope_other, W, WEIGHTS)
    else:
        lines = other + n * other_length * width + d
        change, share = plain_walk(x, lines, d < width, slope, other_length, slope_other, width, WEIGHTS)
    change *= 4.0 * tl.load(w + d)[None, :, None, :]
    tl.store(d_own + place, change.to(d_own.dtype.element_ty), mask=inside)
    if WEIGHTS:  # Σ s tanh = Σ s (1 - 2r), and the slopes of a softmax sum to zero
        row = n * tl.num_programs(0) + tl.program_id(0)
        tl.store(d_w + row * W + d, -2.0 * tl.sum(tl.sum(share, 2), 0))
