"""A recurrent stack as an explicit loop, for decoders whose input at one step depends on their output at the last step.

Two things keep such a loop fast. The part of the input that is known before the loop (the embedded tokens) is
multiplied by its weights once, for all steps. And the gradient of a weight, a sum of small products over the steps, is
one large product after the loop (``StepwiseLinear``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.device import autocast_dtype
from regard.layers.cells import EQUATIONS, PARTS
from regard.layers.recurrent import Recurrent


class StepwiseLinear:
    """y_t = precomputed_t + W x_t, called once for each step t in order. ``precomputed`` is (T, B, out)."""

    def __init__(self, weight: Tensor, precomputed: Tensor) -> None:
        # Autocast would convert the weight again at every step.
        self.weight = weight.detach().to(autocast_dtype(weight.device) or weight.dtype).t()
        self.inputs: list[Tensor] = []
        parts: Tensor = CollectGradients.apply(precomputed, weight, self.inputs)  # type: ignore[no-untyped-call]
        self.precomputed = iter(parts.unbind(0))

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.inputs.append(x.detach())
        return torch.addmm(next(self.precomputed), x, self.weight)


class CollectGradients(torch.autograd.Function):
    """The identity on ``precomputed``. Its backward gets all steps' gradients: dW = Σ_t g_tᵀ x_t is one product."""

    @staticmethod
    def forward(ctx: Any, precomputed: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs, ctx.dtype = inputs, weight.dtype
        return precomputed.view_as(precomputed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x = torch.cat(ctx.inputs).to(gradient.dtype)  # (T·B, in)
        return gradient, (gradient.flatten(0, 1).t() @ x).to(ctx.dtype), None


class UnrolledRecurrent:
    """``Recurrent`` as a loop of T steps: the first layer reads [x_t; fed_t], where fed_t is known only at step t."""

    def __init__(self, rnn: Recurrent, x: Tensor) -> None:
        self.rnn = rnn
        token_width = x.shape[-1]
        steps = x.transpose(0, 1)  # (T, B, E)
        self.inputs, self.hidden = [], []
        for depth in range(rnn.layers):
            w = rnn.weights(depth)
            if depth == 0:
                precomputed = F.linear(steps, w.input[:, :token_width], w.input_bias)
                self.inputs.append(StepwiseLinear(w.input[:, token_width:], precomputed))
            else:
                self.inputs.append(StepwiseLinear(w.input, _repeat_bias(w.input_bias, steps)))
            self.hidden.append(StepwiseLinear(w.hidden, _repeat_bias(w.hidden_bias, steps)))

    def step(self, fed: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the stack: the output (B, width) and the state after it (B, layers, parts, width)."""
        rnn, after, x = self.rnn, [], fed
        for depth in range(rnn.layers):
            before = state[:, depth].unbind(1)
            parts = pointwise(rnn.cell, self.inputs[depth](x), self.hidden[depth](before[0]), before)
            after.append(torch.stack(parts, 1) if PARTS[rnn.cell] == 2 else parts[0][:, None])
            x = F.dropout(parts[0], rnn.dropout, rnn.training) if depth + 1 < rnn.layers else parts[0]
        return x, torch.stack(after, 1) if rnn.layers > 1 else after[0][:, None]


def pointwise(kind: str, x: Tensor, h: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The cell's equations after its two matrix products; on a GPU, by the kernel that torch's own cells use."""
    if x.is_cuda and kind == "gru":
        return (torch.ops.aten._thnn_fused_gru_cell(x, h, before[0].to(x.dtype))[0],)
    if x.is_cuda and kind == "lstm":
        return torch.ops.aten._thnn_fused_lstm_cell(x, h, before[1].to(x.dtype))[:2]
    equations = EQUATIONS[kind]
    return equations.update(equations.gates(x, h), before)


def _repeat_bias(bias: Tensor, steps: Tensor) -> Tensor:
    return bias.expand(*steps.shape[:2], -1)
