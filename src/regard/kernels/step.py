"""Fused operations for one decoding step on a GPU: a step does little work, so its time is set by the kernel launches.

A linear layer, the norm before it, the activation after it and the residual sum are one kernel; attention to a KV cache
and the write of new keys and values are another. Nothing here has a gradient, and nothing waits for the device. Triton
is imported at the first call, so this module can be imported without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.kernels import has_triton

ACTIVATIONS = ("none", "relu", "gelu", "gelu-tanh", "gelu-sigmoid", "silu", "tanh")
MAX_QUERIES = 16  # queries of a sentence: one tile of the matrix unit
MAX_HEAD_WIDTH = 256


@dataclass(frozen=True, eq=False)
class Norm:
    """The parameters of a norm: gain ⊙ (x − mean) / deviation + shift, or for ``rms`` gain ⊙ x / root mean square."""

    kind: str  # layer or rms
    gain: Tensor
    shift: Tensor | None
    epsilon: float

    @property
    def arguments(self) -> tuple[str, Tensor, Tensor | None, float]:
        return self.kind, self.gain, self.shift, self.epsilon

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
    return (
        has_triton(device)
        and torch.cuda.get_device_capability(device) >= (8, 0)  # the oldest that Triton supports
        and dtype in (torch.bfloat16, torch.float16)
    )


def norm_step(x: Tensor, norm: Norm) -> Tensor:
    """norm(x) for every row of x (R, W)."""
    from regard.kernels.step_triton import launch_norm

    with torch.cuda.device_of(x):  # Triton launches on the current device
        return launch_norm(x.contiguous(), norm.arguments)


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
    from regard.kernels.step_triton import MAX_ROW, launch_linear

    if norm is not None and (len(x) > 1 or x.shape[1] > MAX_ROW):  # else every program would normalize the rows again
        x, norm = norm_step(x, norm), None
    assert activation in ACTIVATIONS, activation
    assert add is None or times is None
    assert weight.stride() == (x.shape[1], 1)
    other = add if times is None else times
    arguments = ("none", None, None, 0.0) if norm is None else norm.arguments
    join = "none" if other is None else "add" if times is None else "times"
    with torch.cuda.device_of(x):
        return launch_linear(
            x.contiguous(), weight, bias, arguments, activation, join, None if other is None else other.contiguous()
        )


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
    from regard.kernels.step_triton import launch_attention

    sentences, heads, length, head = keys.shape
    assert keys.stride()[2:] == values.stride()[2:] == (head, 1)
    assert q.shape == (sentences * queries, heads * head)
    assert new is None or new.stride() == q.stride()
    if table is not None:
        table = table.expand(sentences, heads, queries, length)  # strides of 0, not copies
    out = q.new_empty(q.shape)
    with torch.cuda.device_of(q):
        launch_attention(q, new, keys, values, slots, table, out, queries, scale)
    return out
