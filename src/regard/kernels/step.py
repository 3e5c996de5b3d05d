"""Fused operations for one decoding step on a GPU: a step does little work, so its time is set by the kernel launches.

A linear layer, the norm before it, the activation after it and the residual sum are one kernel; attention to a KV cache
and the write of new keys and values are another. Nothing here has a gradient, and nothing waits for the device. Triton
is imported at the first call, so this module can be imported without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.kernels import has_triton, next_power_of_2

ACTIVATIONS = ("none", "relu", "gelu", "gelu-tanh", "gelu-sigmoid", "silu", "tanh")
MAX_QUERIES = 16  # queries of a sentence: one tile of the matrix unit
MAX_HEAD_WIDTH = 256
MAX_ROW = 4096  # the widest row that is held in registers


class Norm(NamedTuple):
    """The parameters of a norm: gain ⊙ (x − mean) / deviation + shift, or for ``rms`` gain ⊙ x / root mean square."""

    kind: str  # layer or rms
    gain: Tensor
    shift: Tensor | None
    epsilon: float

    @staticmethod
    def of(module: nn.Module) -> Norm | None:
        """The parameters of a torch norm; None if it is neither a layer norm nor an RMS norm with learned gain."""
        match module:
            case nn.LayerNorm(elementwise_affine=True) if module.bias is not None:
                return Norm("layer", module.weight, module.bias, module.eps)
            case nn.RMSNorm(elementwise_affine=True) if module.eps is not None:
                return Norm("rms", module.weight, None, module.eps)
        return None


def usable(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether these kernels can run on this device with this dtype."""
    return has_triton(device) and dtype in (torch.bfloat16, torch.float16)


def norm_step(x: Tensor, norm: Norm) -> Tensor:
    """norm(x) for every row of x (R, W)."""
    from regard.kernels import step_triton as programs

    x = x.contiguous()
    out, width = torch.empty_like(x), x.shape[1]
    shift = norm.gain if norm.shift is None else norm.shift  # any valid pointer: it is not read
    with torch.cuda.device_of(x):  # Triton launches on the current device
        programs.norm_row[(len(x),)](
            x, norm.gain, shift, out, width, norm.epsilon,
            NORM=norm.kind, DEPTH=next_power_of_2(width), **_launch_options(x),
        )  # fmt: skip
    return out


def linear_step(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: Norm | None = None,
    activation: str = "none",
    add: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """act(norm(x) Wᵀ + b), plus ``add`` or times ``times``: (R, W), (V, W) → (R, V)."""
    from regard.kernels import step_triton as programs

    (rows, width), columns = x.shape, len(weight)
    one_row = rows == 1 and width <= MAX_ROW
    if norm is not None and not one_row:  # else every program would normalize the rows again
        x, norm = norm_step(x, norm), None
    assert activation in ACTIVATIONS, activation
    assert add is None or times is None
    assert weight.stride() == (width, 1)
    other = add if times is None else times
    x, out = x.contiguous(), x.new_empty(rows, columns)
    join = "none" if other is None else "add" if times is None else "times"
    other = out if other is None else other.contiguous()  # any valid pointer: it is not read
    flags = {"BIAS": bias is not None, "ACTIVATION": activation, "JOIN": join, **_launch_options(x)}
    with torch.cuda.device_of(x):
        if one_row:
            kind, gain, shift, epsilon = norm or ("none", None, None, 0.0)
            programs.linear_row[(-(-columns // 2),)](
                x, weight, bias, gain, gain if shift is None else shift, other, out, width, columns, epsilon,
                NORM=kind, COLUMNS=2, DEPTH=next_power_of_2(width), **flags,
            )  # fmt: skip
        else:
            block = min(64, max(16, next_power_of_2(rows)))
            across, depth = (16, 256) if rows <= 64 else (64 if columns > 1024 else 32, 128)
            programs.linear_rows[(-(-columns // across), -(-rows // block))](
                x, weight, bias, other, out, rows, width, columns,
                ROWS=block, COLUMNS=across, DEPTH=depth, num_stages=3, **flags,
            )  # fmt: skip
    return out


def attend_step(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    queries: int,
    scale: float,
    table: Tensor | None = None,
    new: Tensor | None = None,
    slots: Tensor | None = None,
) -> Tensor:
    """The output of ``queries`` queries per sentence: q (B·K, H·D), keys and values (B, H, S, D) → (B·K, H·D).

    ``new`` (B·K, 2·H·D) has a new key and value for each query. The query attends to its own new key and to the slots
    before the first of ``slots`` (K,), and the new key and value are written to these slots. ``table``, broadcastable
    to (B, H, K, S), is that of a mask; a query that may look at no key gets zeros.
    """
    from regard.kernels import step_triton as programs

    sentences, heads, length, head = keys.shape
    assert keys.stride()[2:] == values.stride()[2:] == (head, 1)
    assert q.shape == (sentences * queries, heads * head)
    assert new is None or new.stride() == q.stride()
    strides: tuple[int, ...] = (0, 0, 0, 0)
    kind, out = "none", q.new_empty(q.shape)
    if table is not None:
        kind = "bool" if table.dtype == torch.bool else "bias"
        table = table.expand(sentences, heads, queries, length)  # strides of 0, not copies
        strides, table = table.stride(), table.view(torch.uint8) if kind == "bool" else table
    with torch.cuda.device_of(q):
        programs.attention[(sentences * heads,)](
            q, new, keys, values, slots, table, out, heads, queries, length, q.stride(0), scale, *strides,
            keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
            WRITES=new is not None, TABLE=kind, HEAD=head, QUERIES=MAX_QUERIES, KEYS=64 if length > 32 else 32,
            PADDED=max(16, next_power_of_2(head)), num_stages=2, **_launch_options(q),
        )  # fmt: skip
    return out


def _launch_options(x: Tensor) -> dict[str, Any]:
    """The launch options of a kernel: with PDL if the GPU supports it (compute capability 9 or later)."""
    pdl = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9
    return {"num_warps": 4, "PDL": pdl, **({"launch_pdl": True} if pdl else {})}
