# mypy: ignore-errors
# ruff: noqa: N803
"""The Triton programs of one decoded token: a product with what stands around it, and attention with its cache.

All sums are float32 inside, in the same order every time. Programs this short are bound by the time between them, so on
GPUs that can each is started while the one before still runs (AHEAD): it gets its weights, which are nobody's result,
and then waits. All of them wait before they read or write anything else, so nobody overtakes anybody's predecessor.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TURN = tl.constexpr(1.4426950408889634)  # 1 / ln 2: eˣ = 2^(TURN·x)
WIDEST = 4096  # of a single row, which is held in registers


@triton.jit
def _follow(AHEAD: tl.constexpr):
    """Lets the next program be started, and waits for the one before."""
    if AHEAD:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
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
def _joined(y, other, JOIN: tl.constexpr, inside):
    if JOIN == "add":
        y += tl.load(other, mask=inside, other=0.0).to(tl.float32)
    elif JOIN == "times":
        y *= tl.load(other, mask=inside, other=0.0).to(tl.float32)
    return y


@triton.jit
def _normed(u, inside, gain, shift, width, epsilon, NORM: tl.constexpr):
    """One row, in registers."""
    mean = tl.sum(u) / width if NORM == "layer" else 0.0
    u = tl.where(inside, u - mean, 0.0)
    u *= tl.rsqrt(tl.sum(u * u) / width + epsilon)
    u *= gain.to(tl.float32)
    return u + shift.to(tl.float32) if NORM == "layer" else u


@triton.jit
def norm_row(x, gain, shift, out, width, epsilon, NORM: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr):
    """A row, normed."""
    d = tl.arange(0, DEPTH)
    g = tl.load(gain + d, mask=d < width, other=0.0)
    s = tl.load(shift + d, mask=d < width, other=0.0) if NORM == "layer" else g
    _follow(AHEAD)
    place = tl.program_id(0) * width + d
    u = tl.load(x + place, mask=d < width, other=0.0).to(tl.float32)
    u = _normed(u, d < width, g, s, width, epsilon, NORM)
    tl.store(out + place, u.to(out.dtype.element_ty), mask=d < width)


@triton.jit
def product_of_row(
    x, weight, bias, gain, shift, other, out, width, columns, epsilon,
    NORM: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """COLUMNS of act(norm(x) Wᵀ + b) for a single x: nothing for a matrix unit to do.

    Every program norms x by itself: that is cheaper than another launch.
    """
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    inside = d < width
    w = tl.load(weight + n[:, None] * width + d[None, :], mask=(n < columns)[:, None] & inside[None, :], other=0.0)
    b = tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32) if BIAS else 0.0
    if NORM != "none":
        g = tl.load(gain + d, mask=inside, other=0.0)
        s = tl.load(shift + d, mask=inside, other=0.0) if NORM == "layer" else g
    _follow(AHEAD)
    u = tl.load(x + d, mask=inside, other=0.0).to(tl.float32)
    if NORM != "none":
        u = _normed(u, inside, g, s, width, epsilon, NORM).to(w.dtype).to(tl.float32)
    y = _activated(tl.sum(w.to(tl.float32) * u[None, :], 1) + b, ACTIVATION)
    y = _joined(y, other + n, JOIN, n < columns)
    tl.store(out + n, y.to(out.dtype.element_ty), mask=n < columns)


@triton.jit
def product_of_rows(
    x, weight, bias, other, out, rows, width, columns,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, JOIN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """ROWS × COLUMNS of act(x Wᵀ + b), added to or multiplied with ``other``."""
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    _follow(AHEAD)
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
    y = _joined(_activated(sums, ACTIVATION), other + place, JOIN, inside)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def read(
    q, new, keys, values, slots, table, out,
    heads, queries, filled, stride, scale,
    table_b, table_h, table_q, table_s, keys_b, keys_h, values_b, values_h,
    WRITES: tl.constexpr, TABLE: tl.constexpr, HEAD: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PADDED: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """What one head's queries of one sentence read of its slots; if asked, of their own new key and value as well.

    These are kept in the slots, which nobody else reads: no program waits for what it has written itself. ``q`` and
    ``new`` point into rows of ``stride`` numbers, of which a head has HEAD; in ``new``, keys, then values.
    """
    _follow(AHEAD)
    b, h = tl.program_id(0) // heads, tl.program_id(0) % heads
    i, d, s = tl.arange(0, QUERIES), tl.arange(0, PADDED), tl.arange(0, KEYS)
    mine = (i < queries)[:, None] & (d < HEAD)[None, :]
    rows = (b * queries + i)[:, None] * stride + h * HEAD + d[None, :]
    asked = tl.load(q + rows, mask=mine, other=0.0)
    keys += b.to(tl.int64) * keys_b + h * keys_h
    values += b.to(tl.int64) * values_b + h * values_h
    top = tl.full((QUERIES,), float("-inf"), tl.float32)
    mass = tl.zeros((QUERIES,), tl.float32)
    sums = tl.zeros((QUERIES, PADDED), tl.float32)
    if WRITES:
        slot = tl.load(slots + i, mask=i < queries, other=2**30)
        kept = mine & (slot < filled)[:, None]  # nobody writes behind the end
        filled = tl.min(slot).to(tl.int32)
        own_key = tl.load(new + rows, mask=mine, other=0.0)
        own_value = tl.load(new + rows + heads * HEAD, mask=mine, other=0.0)
        tl.store(keys + slot[:, None] * HEAD + d[None, :], own_key, mask=kept)
        tl.store(values + slot[:, None] * HEAD + d[None, :], own_value, mask=kept)
        top = tl.sum(asked.to(tl.float32) * own_key.to(tl.float32), 1) * (scale * TURN)
        if TABLE == "bias":
            own_cell = table + b * table_b + h * table_h + i * table_q + slot * table_s
            top += tl.load(own_cell, mask=i < queries, other=0.0).to(tl.float32) * TURN
        mass += 1.0
        sums += own_value.to(tl.float32)
    for start in range(0, filled, KEYS):
        there = start + s < filled
        held = there[:, None] & (d < HEAD)[None, :]
        k = tl.load(keys + (start + s)[:, None] * HEAD + d[None, :], mask=held, other=0.0)
        v = tl.load(values + (start + s)[:, None] * HEAD + d[None, :], mask=held, other=0.0)
        u = tl.dot(asked, tl.trans(k), input_precision="ieee") * (scale * TURN)
        seen = (i < queries)[:, None] & there[None, :]
        if TABLE != "none":
            cell = table + b * table_b + h * table_h + i[:, None] * table_q + (start + s)[None, :] * table_s
            if TABLE == "bool":
                seen &= tl.load(cell, mask=seen, other=0) != 0
            else:
                u += tl.load(cell, mask=seen, other=0.0).to(tl.float32) * TURN
        u = tl.where(seen, u, float("-inf"))
        higher = tl.maximum(top, tl.max(u, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen so far
        p = tl.exp2(u - base[:, None])
        fade = tl.exp2(top - base)
        mass = mass * fade + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * fade[:, None], input_precision="ieee")
        top = higher
    y = sums / tl.where(mass == 0.0, 1.0, mass)[:, None]
    place = (b * queries + i)[:, None] * (heads * HEAD) + h * HEAD + d[None, :]
    tl.store(out + place, y.to(out.dtype.element_ty), mask=mine)


def launch_norm(x: Tensor, norm: tuple) -> Tensor:
    """``kernels.step.norm_step`` without its questions; ``norm`` is kind, gain, shift and epsilon."""
    kind, gain, shift, epsilon = norm
    out, width = torch.empty_like(x), x.shape[1]
    norm_row[(len(x),)](
        x, gain, gain if shift is None else shift, out, width, epsilon,
        NORM=kind, DEPTH=triton.next_power_of_2(width), **_started(x, num_warps=4),
    )  # fmt: skip
    return out


def launch_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: tuple, activation: str, join: str, other: Tensor | None
) -> Tensor:
    """``kernels.step.linear_step`` without its questions."""
    kind, gain, shift, epsilon = norm
    (rows, width), columns = x.shape, len(weight)
    out = x.new_empty(rows, columns)
    other = out if other is None else other  # a place, if nothing is read there
    told = {"BIAS": bias is not None, "ACTIVATION": activation, "JOIN": join}
    if rows == 1 and width <= WIDEST:
        product_of_row[(triton.cdiv(columns, 2),)](
            x, weight, bias, gain, gain if shift is None else shift, other, out, width, columns, epsilon,
            NORM=kind, COLUMNS=2, DEPTH=triton.next_power_of_2(width), **told, **_started(x, num_warps=4),
        )  # fmt: skip
    else:
        assert kind == "none"
        block = min(64, max(16, triton.next_power_of_2(rows)))
        tile = {"ROWS": block, "COLUMNS": 16, "DEPTH": 256, "num_stages": 3}
        if rows > 64:
            tile = {"ROWS": block, "COLUMNS": 64 if columns > 1024 else 32, "DEPTH": 128, "num_stages": 3}
        product_of_rows[(triton.cdiv(columns, tile["COLUMNS"]), triton.cdiv(rows, block))](
            x, weight, bias, other, out, rows, width, columns, **told, **_started(x, num_warps=4, **tile),
        )  # fmt: skip
    return out


def launch_read(
    q: Tensor, new: Tensor | None, keys: Tensor, values: Tensor, slots: Tensor | None, table: Tensor | None,
    out: Tensor, queries: int, scale: float,
) -> None:  # fmt: skip
    """``kernels.step.attend_step`` without its questions."""
    sentences, heads, length, head = keys.shape
    kind = "none" if table is None else "bool" if table.dtype == torch.bool else "bias"
    strides = (0, 0, 0, 0) if table is None else table.stride()
    read[(sentences * heads,)](
        q, new, keys, values, slots, table.view(torch.uint8) if kind == "bool" else table, out,
        heads, queries, length, q.stride(0), scale, *strides,
        keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
        WRITES=new is not None, TABLE=kind, HEAD=head, QUERIES=16, KEYS=64 if length > 32 else 32,
        PADDED=max(16, triton.next_power_of_2(head)), **_started(q, num_warps=4, num_stages=2),
    )  # fmt: skip


def _started(x: Tensor, **options: int) -> dict[str, int]:
    """How a program is started: ahead of its turn where a GPU can do that (compute capability 9)."""
    ahead = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9
    return {"AHEAD": ahead, "launch_pdl": True, **options} if ahead else {"AHEAD": False, **options}
