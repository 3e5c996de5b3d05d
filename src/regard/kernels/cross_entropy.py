"""Cross-entropy of a large vocabulary without the (N, V) logits of the plain formula.

The logits are computed for a chunk of positions at a time. The loss is a sum, so the upstream gradient is one number:
the forward pass can compute all gradients while it has the logits of a chunk, and the backward pass only multiplies
them by that number. Nothing is computed twice, and the saved tensors are as large as the inputs. Nothing waits for the
device, so a call can be captured in a CUDA graph, and it is bitwise reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.data.batches import IGNORED
from regard.kernels import has_triton

CHUNK = {"cpu": 2**26, "cuda": 2**28}  # bytes of logits that exist at once
ROW_MULTIPLE = 128  # the positions of a chunk are a multiple of this: whole tiles of a matrix product
COLUMN_MULTIPLE = 64  # the columns of a GPU's logits are padded to a multiple of this, for faster matrix products


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Σ −log p(target) for logits ``F.linear(x, weight, bias)``: (N, W), (V, W), (V,), (N,) → 0-d, at least float32.

    A target of ``IGNORED`` adds nothing. ``smoothing`` is label smoothing (Szegedy et al. 2016, section 7): the part of
    each target's weight that is spread evenly over the vocabulary. Under autocast the products use its dtype; the
    gradient of the weight is always summed in at least float32.
    """
    dtype, device = x.dtype, x.device.type
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (x, weight, bias)):
        return LinearCrossEntropy.apply(x, weight, bias, targets, smoothing, dtype)  # type: ignore[no-untyped-call]
    return _loss_in_chunks(x, _Head.of(weight, bias, dtype), targets, smoothing, Gradients())


class LinearCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass. Only one backward pass is possible, since it overwrites them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, dtype: torch.dtype
    ) -> Tensor:
        head, exact = _Head.of(weight, bias, dtype), _at_least_float32(dtype)
        for_x, for_weight, for_bias = ctx.needs_input_grad[:3]
        made = Gradients(
            torch.empty_like(x) if for_x else None,
            torch.zeros_like(head.weight, dtype=exact) if for_weight else None,
            torch.zeros_like(head.bias, dtype=exact) if head.bias is not None and for_bias else None,
        )
        loss = _loss_in_chunks(x, head, targets, smoothing, made)
        d_weight = None if made.weight is None else made.weight[: head.vocab].to(weight.dtype)
        d_bias = None if made.bias is None or bias is None else made.bias[: head.vocab].to(bias.dtype)
        ctx.save_for_backward(made.x, d_weight, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # In place, to avoid a second (V, W) tensor; torch detects a second backward pass and raises.
        return *(None if made is None else made.mul_(upstream) for made in ctx.saved_tensors), None, None, None


@dataclass(frozen=True, eq=False)
class Gradients:
    """The tensors that receive the gradients; None for those not needed. Those of weight and bias start at zero."""

    x: Tensor | None = None  # (N, W)
    weight: Tensor | None = None  # (V, W)
    bias: Tensor | None = None  # (V,)

    @property
    def wanted(self) -> bool:
        return not (self.x is None and self.weight is None and self.bias is None)


@dataclass(frozen=True, eq=False)
class _Head:
    """Weight and bias in the dtype of the products. On a GPU they may be padded with rows of zeros."""

    weight: Tensor
    bias: Tensor | None
    vocab: int

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> _Head:
        vocab, weight = len(weight), weight.detach().to(dtype)
        bias = None if bias is None else bias.detach().to(dtype)
        if extra := -vocab % _column_multiple(weight):
            weight, bias = F.pad(weight, (0, 0, 0, extra)), None if bias is None else F.pad(bias, (0, extra))
        return _Head(weight, bias, vocab)


def _loss_in_chunks(x: Tensor, head: _Head, targets: Tensor, smoothing: float, gradients: Gradients) -> Tensor:
    """The loss, chunk by chunk. The gradient of a chunk's logits overwrites them; other gradients follow from it."""
    size, rows_function = chunk_size(len(x), head.weight), _rows_function(head.weight)
    losses = x.new_empty(len(x), dtype=_at_least_float32(head.weight.dtype))
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            chunk = x[rows].to(head.weight.dtype)
            logits = F.linear(chunk, head.weight, head.bias)  # (n, V)
            losses[rows] = rows_function(logits, targets[rows], head.vocab, smoothing, gradients.wanted)
            if gradients.x is not None and gradients.x.dtype == logits.dtype:
                torch.mm(logits, head.weight, out=gradients.x[rows])
            elif gradients.x is not None:
                gradients.x[rows] = logits @ head.weight
            if gradients.weight is not None:
                _add_product(gradients.weight, logits.t(), chunk)
            if gradients.bias is not None:
                gradients.bias.add_(logits.sum(0, dtype=gradients.bias.dtype))
    return losses.sum()


# (logits (n, V or more), targets (n,), V, smoothing, whether to overwrite logits by their gradients) → losses (n,)
RowsFunction = Callable[[Tensor, Tensor, int, float, bool], Tensor]


def cross_entropy_rows(logits: Tensor, targets: Tensor, vocab: int, smoothing: float, with_gradients: bool) -> Tensor:
    """−log p of each row's target in at least float32; ``with_gradients`` overwrites the logits by their gradients."""
    logits = logits[:, :vocab]
    ignored = targets == IGNORED
    labels = targets.masked_fill(ignored, 0).unsqueeze(1)  # (n, 1)
    logps = logits.log_softmax(1, dtype=_at_least_float32(logits.dtype))  # (n, V)
    losses = (smoothing - 1) * logps.gather(1, labels).squeeze(1)
    if smoothing:
        losses -= smoothing * logps.mean(1)
    if with_gradients:  # p − (the smoothed one-hot target)
        gradient = logps.exp_().scatter_add_(1, labels, torch.full_like(labels, smoothing - 1, dtype=logps.dtype))
        if smoothing:
            gradient -= smoothing / vocab
        logits.copy_(gradient.masked_fill_(ignored.unsqueeze(1), 0.0))
    return losses.masked_fill_(ignored, 0.0)


def chunk_size(count: int, weight: Tensor) -> int:
    """The number of positions in a chunk, for `count` in all: their logits fit in `CHUNK`, and chunks are even."""
    most = CHUNK.get(weight.device.type, CHUNK["cuda"]) // (len(weight) * weight.element_size())
    step = ROW_MULTIPLE if most >= ROW_MULTIPLE else 1
    most = max(most // step * step, 1)
    pieces = max(math.ceil(count / most), 1)
    return max(math.ceil(count / pieces / step) * step, 1)


def _rows_function(weight: Tensor) -> RowsFunction:
    """The Triton kernel where it can run, else ``cross_entropy_rows``. Triton is imported only here."""
    if not has_triton(weight.device) or weight.dtype == torch.float64:
        return cross_entropy_rows
    from regard.kernels.cross_entropy_triton import launch_rows

    return partial(launch_rows, ignored=IGNORED)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where a and b may have a lower precision than total."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)  # half-precision in, float32 out, in one kernel
    else:
        total += a @ b


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _column_multiple(weight: Tensor) -> int:
    """The columns of the logits are padded to a multiple of this; only half precision on a GPU gains from padding."""
    return COLUMN_MULTIPLE if weight.is_cuda and weight.element_size() == 2 else 1
