# mypy: ignore-errors
# ruff: noqa: N803
"""Triton kernels for one decoding step: a linear layer with norm and activation, and attention with its KV cache.

All sums are in float32 and in a fixed order. The time of such short kernels is mostly the gap between them, so GPUs
that support programmatic dependent launch (PDL) start a kernel while the previous one still runs. A kernel first loads
its weights, which no kernel changes; then it waits for the previous kernel before it reads or writes anything else.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # 1 / ln 2: eˣ = 2^(LOG2E·x)


@triton.jit
def _wait_for_previous(PDL: tl.constexpr):
    """Allows the next kernel to start, and waits for the previous one to finish."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def _activate(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    elif ACTIVATION == "gelu":
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif ACTIVATION == "gelu-tanh":  # ½ (1 + tanh u) = σ(2u)
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif ACTIVATION == "gelu-sigmoid":
        y = y * tl.sigmoid(1.702 * y)
    elif ACTIVATION == "silu":
        y = y * tl.sigmoid(y)
    elif ACTIVATION == "tanh":
        y = 2.0 * tl.sigmoid(2.0 * y) - 1.0
    return y


@triton.jit
def _combine(y, other, JOIN: tl.constexpr, inside):
    if JOIN == "add":
        y += tl.load(other, mask=inside, other=0.0).to(tl.float32)
    elif JOIN == "times":
        y *= tl.load(other, mask=inside, other=0.0).to(tl.float32)
    return y


@triton.jit
def _normalize(u, inside, gain, shift, width, epsilon, NORM: tl.constexpr):
    """The norm of one row in registers."""
    mean = tl.sum(u) / width if NORM == "layer" else 0.0
    u = tl.where(inside, u - mean, 0.0)
    u *= tl.rsqrt(tl.sum(u * u) / width + epsilon)
    u *= gain.to(tl.float32)
    return u + shift.to(tl.float32) if NORM == "layer" else u


@triton.jit
def norm_row(x, gain, shift, out, width, epsilon, NORM: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr):
    """The norm of one row of x."""
    d = tl.arange(0, DEPTH)
    g = tl.load(gain + d, mask=d < width, other=0.0)
    s = tl.load(shift + d, mask=d < width, other=0.0) if NORM == "layer" else g
    _wait_for_previous(PDL)
    place = tl.program_id(0) * width + d
    u = tl.load(x + place, mask=d < width, other=0.0).to(tl.float32)
    u = _normalize(u, d < width, g, s, width, epsilon, NORM)
    tl.store(out + place, u.to(out.dtype.element_ty), mask=d < width)


@triton.jit
def linear_row(
    x, weight, bias, gain, shift, other, out, width, columns, epsilon,
    NORM: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """COLUMNS columns of act(norm(x) Wᵀ + b) for a single row x, without the matrix unit.

    Every program computes the norm of x itself: that is cheaper than another launch.
    """
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    inside = d < width
    w = tl.load(weight + n[:, None] * width + d[None, :], mask=(n < columns)[:, None] & inside[None, :], other=0.0)
    b = tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32) if BIAS else 0.0
    if NORM != "none":
        g = tl.load(gain + d, mask=inside, other=0.0)
        s = tl.load(shift + d, mask=inside, other=0.0) if NORM == "layer" else g
    _wait_for_previous(PDL)
    u = tl.load(x + d, mask=inside, other=0.0).to(tl.float32)
    if NORM != "none":
        u = _normalize(u, inside, g, s, width, epsilon, NORM).to(w.dtype).to(tl.float32)
    y = _activate(tl.sum(w.to(tl.float32) * u[None, :], 1) + b, ACTIVATION)
    y = _combine(y, other + n, JOIN, n < columns)
    tl.store(out + n, y.to(out.dtype.element_ty), mask=n < columns)


@triton.jit
def linear_rows(
    x, weight, bias, other, out, rows, width, columns,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A tile of ROWS × COLUMNS of act(x Wᵀ + b), added to or multiplied with ``other``."""
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    _wait_for_previous(PDL)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, width, DEPTH):
        inside = (start + d < width)[None, :]
        u = tl.load(x + m[:, None] * width + start + d[None, :], mask=(m < rows)[:, None] & inside, other=0.0)
        w = tl.load(weight + n[:, None] * width + start + d[None, :], mask=(n < columns)[:, None] & inside, other=0.0)
        sums = tl.dot(u, tl.trans(w), sums, input_precision="ieee")
    if BIAS:
        sums += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
    place = m[:, None] * columns + n[None, :]
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    y = _combine(_activate(sums, ACTIVATION), other + place, JOIN, inside)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def attention(
    q, new, keys, values, slots, table, out,
    heads, queries, used, stride, scale,
    table_b, table_h, table_q, table_s, keys_b, keys_h, values_b, values_h,
    WRITES: tl.constexpr, TABLE: tl.constexpr, HEAD: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PADDED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The attention output of one head for the queries of one sentence; with WRITES, new keys and values are included.

    These are also written to their slots. No program reads those slots in this launch, so there is nothing to wait for.
    ``q`` and ``new`` have rows of ``stride`` numbers, of which each head has HEAD; in ``new``, values follow the keys.
    """
    _wait_for_previous(PDL)
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    i, d, s = tl.arange(0, QUERIES), tl.arange(0, PADDED), tl.arange(0, KEYS)
    inside = (i < queries)[:, None] & (d < HEAD)[None, :]
    rows = (b * queries + i)[:, None] * stride + h * HEAD + d[None, :]
    query = tl.load(q + rows, mask=inside, other=0.0)
    keys += b.to(tl.int64) * keys_b + h * keys_h
    values += b.to(tl.int64) * values_b + h * values_h
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    sums = tl.zeros((QUERIES, PADDED), tl.float32)
    if WRITES:
        slot = tl.load(slots + i, mask=i < queries, other=2**30)
        writable = inside & (slot < used)[:, None]  # do not write past the end
        used = tl.min(slot).to(tl.int32)
        own_key = tl.load(new + rows, mask=inside, other=0.0)
        own_value = tl.load(new + rows + heads * HEAD, mask=inside, other=0.0)
        tl.store(keys + slot[:, None] * HEAD + d[None, :], own_key, mask=writable)
        tl.store(values + slot[:, None] * HEAD + d[None, :], own_value, mask=writable)
        top = tl.sum(query.to(tl.float32) * own_key.to(tl.float32), 1) * (scale * LOG2E)
        if TABLE == "bias":
            own_cell = table + b * table_b + h * table_h + i * table_q + slot * table_s
            top += tl.load(own_cell, mask=i < queries, other=0.0).to(tl.float32) * LOG2E
        total += 1.0
        sums += own_value.to(tl.float32)
    for start in range(0, used, KEYS):
        in_use = start + s < used
        key_inside = in_use[:, None] & (d < HEAD)[None, :]
        k = tl.load(keys + (start + s)[:, None] * HEAD + d[None, :], mask=key_inside, other=0.0)
        v = tl.load(values + (start + s)[:, None] * HEAD + d[None, :], mask=key_inside, other=0.0)
        u = tl.dot(query, tl.trans(k), input_precision="ieee") * (scale * LOG2E)
        visible = (i < queries)[:, None] & in_use[None, :]
        if TABLE != "none":
            cell = table + b * table_b + h * table_h + i[:, None] * table_q + (start + s)[None, :] * table_s
            if TABLE == "bool":
                visible &= tl.load(cell, mask=visible, other=0) != 0
            else:
                u += tl.load(cell, mask=visible, other=0.0).to(tl.float32) * LOG2E
        u = tl.where(visible, u, float("-inf"))
        new_top = tl.maximum(top, tl.max(u, 1))
        base = tl.where(new_top == float("-inf"), 0.0, new_top)  # -∞ while no key was visible
        p = tl.exp2(u - base[:, None])
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * rescale[:, None], input_precision="ieee")
        top = new_top
    y = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    place = (b * queries + i)[:, None] * (heads * HEAD) + h * HEAD + d[None, :]
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)
