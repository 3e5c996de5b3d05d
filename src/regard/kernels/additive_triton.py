"""Additive attention fused for a GPU: softmax(wᵀ tanh(q + k)) @ v without the (Tq, Tk, D) tensor of the plain formula.

The forward pass saves one number per query, its log-sum-exp. The backward pass recomputes the rest and keeps the
(Tq, Tk) gradients of the logits for a few rows at a time in a scratch tensor of bounded size. Nothing waits for the
device and no sum is atomic, so a call can be captured in a CUDA graph and is bitwise reproducible. Triton is imported
at the first call, so this module can be imported without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.kernels import has_triton, next_power_of_2

MAX_WIDTH = 1024  # of queries and keys
MAX_VALUE_BYTES = 1024  # of one value vector: the output of a block of queries stays in registers
MAX_ROWS = 2**16 - 1  # rows of a launch
MAX_PAIRS = 2**30  # queries × keys of one row, whose gradients are in scratch memory
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SCRATCH = 2**27  # logits whose gradients are in memory at once in the backward pass: half a GiB


def usable(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether these kernels can be used: on an NVIDIA GPU, with Triton, for supported dtypes and sizes.

    Queries need not be projected yet, so the width is that of the keys.
    """
    queries, width = q.shape[-2], k.shape[-1]
    keys, depth = v.shape[-2:]
    return (
        all(x.is_cuda and x.dtype in DTYPES and x.numel() > 0 for x in (q, k, v))
        and has_triton(q.device)
        and width <= MAX_WIDTH
        and depth * (2 if queries == 1 else v.element_size()) <= MAX_VALUE_BYTES
        and queries * keys <= MAX_PAIRS
        and q.shape[:-2].numel() <= MAX_ROWS
    )


def additive_attend(q: Tensor, k: Tensor, w: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
    """softmax(wᵀ tanh(q + k)) @ v: (N, Tq, D), (N, Tk, D), (D,), (N, Tk, Dv) → (N, Tq, Dv), in the dtype of v.

    ``table``: True where a query may look, broadcastable to (N, Tq, Tk); a query without keys gets zeros.
    """
    if table is not None:
        table = table.view(torch.uint8).expand(q.shape[0], q.shape[1], k.shape[1])  # strides of 0, not copies
    return FusedAdditive.apply(q.contiguous(), k.contiguous(), w, v.contiguous(), table)  # type: ignore[no-untyped-call]


class FusedAdditive(torch.autograd.Function):
    """A single query uses the kernels of ``additive_step``; more queries use those of ``additive_tiles``."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, w: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
        from regard.kernels import additive_step, additive_tiles

        out = v.new_empty(q.shape[0], q.shape[1], v.shape[-1])
        lse = q.new_empty(q.shape[:2], dtype=torch.float32)
        with torch.cuda.device_of(q):  # Triton launches on the current device
            if q.shape[1] == 1:
                sizes, options = step_shape(k, v, table, 2**13)
                additive_step.attend[(len(q),)](q, k, w, v, table, out, lse, *sizes, **options)
            else:
                eq, ek = Exponentials.of(q, rows=False), Exponentials.of(k, rows=False)
                exponentials = eq.columns, ek.columns, eq.maxima, ek.maxima
                tile, sizes, options = pairs_shape(q, v, table)
                additive_tiles.attend[(round_up(q.shape[1], tile.rows) // tile.rows, len(q))](
                    q, k, padded_weights(w), v, table, *exponentials, out, lse, *sizes, **options
                )
        ctx.save_for_backward(q, k, w, v, table, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        from regard.kernels import additive_step

        q, k, w, v, table, out, lse = ctx.saved_tensors
        d_out = d_out.contiguous()
        with torch.cuda.device_of(q):
            if q.shape[1] > 1:
                return *tiles_backward(q, k, w, v, table, out, lse, d_out), None
            sizes, options = step_shape(k, v, table, 2**12)
            d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
            d_w = w.new_empty(len(q), len(w), dtype=torch.float32)
            additive_step.gradients[(len(q),)](
                q, k, w, v, table, out, lse, d_out, d_q, d_k, d_w, d_v, *sizes, **options
            )
        return d_q, d_k, d_w.sum(0).to(w.dtype), d_v, None


def step_shape(k: Tensor, v: Tensor, table: Tensor | None, numbers: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The run-time sizes and the compile-time options of a step kernel; a block of keys has ``numbers`` elements."""
    keys, width, depth = k.shape[1], k.shape[2], v.shape[2]
    at_n, _, at_k = (0, 0, 0) if table is None else table.stride()
    wide, deep = next_power_of_2(width), next_power_of_2(depth)
    block = min(next_power_of_2(keys), max(1, numbers // max(wide, deep)))
    options = {"W": wide, "V": deep, "K": block, "MASKED": table is not None, "num_warps": 2}
    return (keys, width, depth, at_n, at_k), options


@dataclass(frozen=True)
class Tile:
    """The layout of a tile: (rows, columns) in the registers of each thread × (rows, columns) of threads."""

    registers: tuple[int, int]
    threads: tuple[int, int]
    max_registers: int | None = None  # the most registers of a thread, so that more programs run on one processor

    @property
    def rows(self) -> int:
        return self.registers[0] * self.threads[0]

    @property
    def columns(self) -> int:
        return self.registers[1] * self.threads[1]

    @property
    def options(self) -> dict[str, Any]:
        (ri, rj), (ti, tj) = self.registers, self.threads
        shape = {"RI": ri, "RJ": rj, "TI": ti, "TJ": tj}
        return shape | {"num_warps": ti * tj // 32, "maxnreg": self.max_registers, "enable_fp_fusion": True}


PAIRS = Tile((4, 8), (16, 8), max_registers=128)  # queries × keys
PAIRS_DEEP = Tile((2, 2), (16, 16))  # for wide values: the output then uses more registers
GRADIENTS = Tile((8, 4), (8, 16))  # queries or keys × width
BLOCK = 64  # lengths are padded to a multiple of this in scratch memory; a multiple of the sides of every tile


@dataclass(frozen=True)
class Exponentials:
    """e²ˣ of x (N, T, D), padded, by columns and by rows, and the largest |x| of every 32 × 32 tile."""

    columns: Tensor  # (N, blocks, W, BLOCK)
    rows: Tensor | None  # (N, padded, W)
    maxima: Tensor

    @staticmethod
    def of(x: Tensor, rows: bool) -> Exponentials:
        from regard.kernels import additive_tiles as programs

        count, length, width = x.shape
        padded, wide = round_up(length, BLOCK), round_up(width, BLOCK)
        made = Exponentials(
            x.new_empty(count, padded // BLOCK, wide, BLOCK, dtype=torch.float32),
            x.new_empty(count, padded, wide, dtype=torch.float32) if rows else None,
            x.new_empty(count, padded // 32, wide // 32, dtype=torch.float32),
        )
        grid = (padded // 32, wide // 32, count)
        programs.prepare[grid](
            x, made.columns, made.rows, made.maxima, length, padded, width, W=wide, BLOCK=BLOCK, ROWS=rows, num_warps=4
        )
        return made


def tiles_backward(
    q: Tensor, k: Tensor, w: Tensor, v: Tensor, table: Tensor | None, out: Tensor, lse: Tensor, d_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All gradients, a few rows of the batch at a time, so that the gradients of their logits fit in ``SCRATCH``."""
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    queries, keys = round_up(q.shape[1], BLOCK), round_up(k.shape[1], BLOCK)
    count = min(len(q), max(1, SCRATCH // (queries * keys)))
    d_logits = q.new_empty(count, queries, keys, dtype=torch.float32)
    wide = padded_weights(w)
    d_w = q.new_empty(len(q), queries // GRADIENTS.rows, len(wide), dtype=torch.float32)
    for start in range(0, len(q), count):
        rows = slice(start, start + count)
        some = None if table is None else table[rows]
        rows_backward(
            (q[rows], k[rows], wide, v[rows], some),
            (out[rows], lse[rows], d_out[rows]),
            (d_q[rows], d_k[rows], d_w[rows], d_v[rows]),
            d_logits,
        )
    return d_q, d_k, d_w.sum((0, 1))[: len(w)].to(w.dtype), d_v


def rows_backward(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None],
    read: tuple[Tensor, Tensor, Tensor],
    gradients: tuple[Tensor, Tensor, Tensor, Tensor],
    d_logits: Tensor,
) -> None:
    """Writes the gradients of some rows: first of values and logits, then of queries and w, then of keys."""
    from regard.kernels import additive_tiles as programs

    q, k, w, v, table = inputs
    d_q, d_k, d_w, d_v = gradients
    eq, ek = Exponentials.of(q, rows=True), Exponentials.of(k, rows=True)
    tile, sizes, options = pairs_shape(q, v, table)
    queries, keys, q_padded, k_padded, width = sizes[:5]
    programs.logit_gradients[(k_padded // tile.columns, len(q))](
        *inputs, eq.columns, ek.columns, eq.maxima, ek.maxima, *read, d_v, d_logits, *sizes, **options
    )
    across = len(w) // GRADIENTS.columns
    options = {"W": len(w)} | GRADIENTS.options
    programs.gradients[(q_padded // GRADIENTS.rows, across, len(q))](
        q, k, w, ek.rows, eq.maxima, ek.maxima, d_logits, d_q, d_w,
        queries, keys, q_padded, k_padded, width, k_padded, 1, WEIGHTS=True, **options,
    )  # fmt: skip
    programs.gradients[(k_padded // GRADIENTS.rows, across, len(q))](
        k, q, w, eq.rows, ek.maxima, eq.maxima, d_logits, d_k, d_w,
        keys, queries, k_padded, q_padded, width, 1, k_padded, WEIGHTS=False, **options,
    )  # fmt: skip


def pairs_shape(q: Tensor, v: Tensor, table: Tensor | None) -> tuple[Tile, tuple[int, ...], dict[str, Any]]:
    """The tile of (query, key) pairs, and the run-time sizes and compile-time options of a kernel."""
    (queries, width), (keys, depth) = q.shape[1:], v.shape[1:]
    strides = (0, 0, 0) if table is None else table.stride()
    tile = PAIRS if depth * v.element_size() <= 256 else PAIRS_DEEP
    sizes = (queries, keys, round_up(queries, BLOCK), round_up(keys, BLOCK), width, depth, *strides)
    precision = "tf32x3" if v.dtype == torch.float32 else "tf32"  # "tf32" has no effect on half precision
    options = {
        "W": round_up(width, BLOCK),
        "BLOCK": BLOCK,
        "V": max(16, next_power_of_2(depth)),
        "MASKED": table is not None,
    }
    return tile, sizes, options | {"PRECISION": precision} | tile.options


def padded_weights(w: Tensor) -> Tensor:
    return F.pad(w.float(), (0, -len(w) % BLOCK))


def round_up(size: int, step: int) -> int:
    """The smallest multiple of ``step`` that is no less than ``size``."""
    return (size + step - 1) // step * step
