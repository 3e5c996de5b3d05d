"""A recurrent stack unrolled by hand, for decoders whose input at one step depends on their output at the step before.

Three things such a loop need not do at every step. What is known of the inputs beforehand (the embedded tokens) is
multiplied by its weights once, for all steps. A weight's gradient, a sum over the steps of small products, is one large
product after the loop: ``Stepwise`` collects the factors on the way. And a cache that grows need not be copied so that
gradients find it as it was: ``filled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.attention import Memory
from regard.layers.recurrent import PARTS, POINTWISE, Recurrent


class Stepwise:
    """y_t = known_t + W x_t, called once for every t in order. ``known`` is (T, B, out)."""

    def __init__(self, weight: Tensor, known: Tensor) -> None:
        self.weight = weight.detach().t()
        self.inputs: list[Tensor] = []
        parts: Tensor = Collect.apply(known, weight, self.inputs)  # type: ignore[no-untyped-call]
        self.known = iter(parts.unbind(0))

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.inputs.append(x.detach())
        return torch.addmm(next(self.known), x, self.weight)


class Collect(torch.autograd.Function):
    """The identity on ``known``, at which the gradients of all steps meet: dW = Σ_t g_tᵀ x_t as one product."""

    @staticmethod
    def forward(ctx: Any, known: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs, ctx.dtype = inputs, weight.dtype
        return known.view_as(known)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x = torch.cat(ctx.inputs).to(gradient.dtype)  # (T·B, in)
        return gradient, (gradient.flatten(0, 1).t() @ x).to(ctx.dtype), None


class Unrolled:
    """``Recurrent`` as a loop of T steps: the first layer reads [x_t; fed_t], where ``fed`` is only known at step t."""

    def __init__(self, rnn: Recurrent, x: Tensor) -> None:
        self.rnn = rnn
        known_width = x.shape[-1]
        steps = x.transpose(0, 1)  # (T, B, E)
        self.inputs, self.hidden = [], []
        for depth in range(rnn.layers):
            w = rnn.weights(depth)
            if depth == 0:
                known = F.linear(steps, w.input[:, :known_width], w.input_bias)
                self.inputs.append(Stepwise(w.input[:, known_width:], known))
            else:
                self.inputs.append(Stepwise(w.input, _every_step(w.input_bias, steps)))
            self.hidden.append(Stepwise(w.hidden, _every_step(w.hidden_bias, steps)))

    def step(self, fed: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the stack: the output (B, width) and the state after it (B, layers, parts, width)."""
        rnn, after, x = self.rnn, [], fed
        for depth in range(rnn.layers):
            before = state[:, depth].unbind(1)
            parts = pointwise(rnn.cell, self.inputs[depth](x), self.hidden[depth](before[0]), before)
            after.append(torch.stack(parts, 1) if PARTS[rnn.cell] == 2 else parts[0][:, None])
            x = F.dropout(parts[0], rnn.dropout, rnn.training) if depth + 1 < rnn.layers else parts[0]
        return x, torch.stack(after, 1) if rnn.layers > 1 else after[0][:, None]


def filled(memory: Memory, slots: Tensor, new: Memory) -> Memory:
    """``memory.write_at`` where it stands, with gradients too: a text of T tokens then needs one cache, not T. Whoever
    writes gives the old memory away (``decode.State``)."""
    keys = Fill.apply(memory.keys, slots, new.keys)  # type: ignore[no-untyped-call]
    values = Fill.apply(memory.values, slots, new.values)  # type: ignore[no-untyped-call]
    return replace(memory, keys=keys, values=values)


class Fill(torch.autograd.Function):
    """Fills slots (T,) of a cache (…, S, W), each of them once and before anybody has seen it: what the steps before
    have read stays as it was, and their gradients still find it."""

    @staticmethod
    def forward(ctx: Any, cache: Tensor, slots: Tensor, new: Tensor) -> Tensor:
        ctx.slots, ctx.dtype = slots, new.dtype
        return cache.data.index_copy_(-2, slots, new.to(cache.dtype))  # under autocast what is new may be half

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor]:
        return gradient, None, gradient.index_select(-2, ctx.slots).to(ctx.dtype)


def pointwise(kind: str, x: Tensor, h: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The cell's equations after its two products; on a GPU the one kernel that torch's own cells launch."""
    if x.is_cuda and kind == "gru":
        return (torch.ops.aten._thnn_fused_gru_cell(x, h, before[0].to(x.dtype))[0],)
    if x.is_cuda and kind == "lstm":
        return torch.ops.aten._thnn_fused_lstm_cell(x, h, before[1].to(x.dtype))[:2]
    return POINTWISE[kind](x, h, before)


def _every_step(bias: Tensor, steps: Tensor) -> Tensor:
    return bias.expand(*steps.shape[:2], -1)
