"""One decoded token on a GPU in few launches: a step reads little, and is bound by how many programs it starts.

A product takes the norm before it, the activation behind it and the sum with what was there into one program; attention
to a growing past takes the writing of new keys and values into its own. Nothing here has a gradient, and nothing waits
for the device. Triton is imported with the first call, so that the module itself can be imported anywhere.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ACTIVATIONS = ("none", "relu", "gelu", "gelu-tanh", "gelu-sigmoid", "silu", "tanh")
QUERIES = 16  # of a sentence: a tile of the matrix unit
WIDEST_HEAD = 256


@dataclass(frozen=True, eq=False)
class Norm:
    """gain ⊙ (x − mean) / deviation + shift, or with the root of the mean square instead (``rms``)."""

    kind: str  # layer or rms
    gain: Tensor
    shift: Tensor | None
    epsilon: float

    @property
    def told(self) -> tuple[str, Tensor, Tensor | None, float]:
        return self.kind, self.gain, self.shift, self.epsilon

    @staticmethod
    def of(module: nn.Module) -> Norm | None:
        """What a norm computes; None: it is none of the two."""
        match module:
            case nn.LayerNorm(elementwise_affine=True) if module.bias is not None:
                return Norm("layer", module.weight, module.bias, module.eps)
            case nn.RMSNorm(elementwise_affine=True) if module.eps is not None:
                return Norm("rms", module.weight, None, module.eps)
        return None


def usable(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether there is a GPU for these programs, and they are for such numbers."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)  # Triton's oldest
        and dtype in (torch.bfloat16, torch.float16)
        and importlib.util.find_spec("triton") is not None
    )


def norm_step(x: Tensor, norm: Norm) -> Tensor:
    """norm(x) of every row (R, W)."""
    from regard.kernels.step_triton import launch_norm

    with torch.cuda.device_of(x):  # Triton launches on the current device
        return launch_norm(x.contiguous(), norm.told)


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
    from regard.kernels.step_triton import WIDEST, launch_product

    if norm is not None and (len(x) > 1 or x.shape[1] > WIDEST):  # not again by every program that reads them
        x, norm = norm_step(x, norm), None
    assert activation in ACTIVATIONS, activation
    assert add is None or times is None
    assert weight.stride() == (x.shape[1], 1)
    other = add if times is None else times
    told = ("none", None, None, 0.0) if norm is None else norm.told
    join = "none" if other is None else "add" if times is None else "times"
    with torch.cuda.device_of(x):
        return launch_product(
            x.contiguous(), weight, bias, told, activation, join, None if other is None else other.contiguous()
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
    """What the ``queries`` queries of each sentence read: q (B·K, H·D), keys and values (B, H, S, D) → (B·K, H·D).

    With ``new`` (B·K, 2·H·D) each has a key and a value of its own, which it reads as well and which is kept in one of
    ``slots`` (K,); of the others it reads those before the first of these. ``table``, broadcastable to (B, H, K, S), is
    a mask's; a query that sees nothing reads zeros.
    """
    from regard.kernels.step_triton import launch_read

    sentences, heads, length, head = keys.shape
    assert keys.stride()[2:] == values.stride()[2:] == (head, 1)
    assert q.shape == (sentences * queries, heads * head)
    assert new is None or new.stride() == q.stride()
    if table is not None:
        table = table.expand(sentences, heads, queries, length)  # strides of 0, not copies
    out = q.new_empty(q.shape)
    with torch.cuda.device_of(q):
        launch_read(q, new, keys, values, slots, table, out, queries, scale)
    return out
