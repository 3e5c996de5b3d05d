"""Cross-entropy of a large vocabulary without the (N, V) logits that the formula asks for.

The logits are made for some positions at a time. The loss is a sum, so what comes back is one number that multiplies
every gradient: the gradients can be made at once, while the logits are there, and the backward pass only multiplies.
Nothing is computed twice, and what is kept is as large as the inputs. Nor does anything wait for the device: a call can
be captured in a CUDA graph, and gives the same bits every time.
"""

from __future__ import annotations

import importlib.util
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

CHUNK = {"cpu": 2**26, "cuda": 2**28}  # bytes of logits that exist at once
STEP = 128  # positions of a chunk come in multiples of this: whole tiles of a product
EDGE = 64  # columns to which a GPU's logits are padded: a vocabulary of 50257 would keep products off the fast kernels


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Σ −log p(target) for logits ``F.linear(x, weight, bias)``: (N, W), (V, W), (V,), (N,) → 0-d, at least float32.

    A target of ``IGNORED`` adds nothing. ``smoothing`` is the part of each target's weight that is spread evenly over
    the vocabulary (Szegedy et al. 2016, section 7). Under autocast the products are made in its dtype; the gradient of
    the weight is added up in float32 whatever it is.
    """
    dtype = _product_dtype(x)
    if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (x, weight, bias)):
        loss: Tensor = LinearCrossEntropy.apply(x, weight, bias, targets, smoothing, dtype)  # type: ignore[no-untyped-call]
        return loss
    return _walk(x, _Head.of(weight, bias, dtype), targets, smoothing, Gradients())


class LinearCrossEntropy(torch.autograd.Function):
    """The gradients are made on the way forward; a second way back is refused, since the first spends them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, dtype: torch.dtype
    ) -> Tensor:
        head, exact = _Head.of(weight, bias, dtype), _exact(dtype)
        for_x, for_weight, for_bias = ctx.needs_input_grad[:3]
        made = Gradients(
            torch.empty_like(x) if for_x else None,
            torch.zeros_like(head.weight, dtype=exact) if for_weight else None,
            torch.zeros_like(head.bias, dtype=exact) if head.bias is not None and for_bias else None,
        )
        loss = _walk(x, head, targets, smoothing, made)
        d_weight = None if made.weight is None else made.weight[: head.vocab].to(weight.dtype)
        d_bias = None if made.bias is None or bias is None else made.bias[: head.vocab].to(bias.dtype)
        ctx.save_for_backward(made.x, d_weight, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that there is never a second (V, W); torch itself then sees a second backward pass and raises.
        return *(None if made is None else made.mul_(upstream) for made in ctx.saved_tensors), None, None, None


@dataclass(frozen=True, eq=False)
class Gradients:
    """Where the gradients go that are wanted; those of weight and bias start at zero."""

    x: Tensor | None = None  # (N, W)
    weight: Tensor | None = None  # (V, W)
    bias: Tensor | None = None  # (V,)

    @property
    def wanted(self) -> bool:
        return not (self.x is None and self.weight is None and self.bias is None)


@dataclass(frozen=True, eq=False)
class _Head:
    """Weight and bias in the dtype of the products. On a GPU, rows of zeros may follow: their logits stay zero."""

    weight: Tensor
    bias: Tensor | None
    vocab: int

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> _Head:
        vocab, weight = len(weight), weight.detach().to(dtype)
        bias = None if bias is None else bias.detach().to(dtype)
        if extra := -vocab % _edge(weight):
            weight, bias = F.pad(weight, (0, 0, 0, extra)), None if bias is None else F.pad(bias, (0, extra))
        return _Head(weight, bias, vocab)


def _walk(x: Tensor, head: _Head, targets: Tensor, smoothing: float, gradients: Gradients) -> Tensor:
    """The loss, chunk by chunk; each chunk's logits turn into their own gradient, and that into the wanted ones."""
    size, judge = chunk(len(x), head.weight), _judge(head.weight)
    losses = x.new_empty(len(x), dtype=_exact(head.weight.dtype))
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            some = x[rows].to(head.weight.dtype)
            logits = F.linear(some, head.weight, head.bias)  # (n, V)
            losses[rows] = judge(logits, targets[rows], head.vocab, smoothing, gradients.wanted)
            if gradients.x is not None:
                _put_product(gradients.x[rows], logits, head.weight)
            if gradients.weight is not None:
                _add_product(gradients.weight, logits.t(), some)
            if gradients.bias is not None:
                gradients.bias.add_(logits.sum(0, dtype=gradients.bias.dtype))
    return losses.sum()


# (logits (n, V or more), targets (n,), V, smoothing, whether logits become their gradient) → the loss of each row, (n,)
Discriminator = Callable[[Tensor, Tensor, int, float, bool], Tensor]


def judge(logits: Tensor, targets: Tensor, vocab: int, smoothing: float, slopes: bool) -> Tensor:
    """−log p of each row's target, in at least float32; if asked, the logits are overwritten by their gradients."""
    logits = logits[:, :vocab]
    ignored = targets == IGNORED
    said = targets.masked_fill(ignored, 0).unsqueeze(1)  # (n, 1)
    logps = logits.log_softmax(1, dtype=_exact(logits.dtype))  # (n, V)
    losses = (smoothing - 1) * logps.gather(1, said).squeeze(1)
    if smoothing:
        losses -= smoothing * logps.mean(1)
    if slopes:  # p − (what the target says)
        slope = logps.exp_().scatter_add_(1, said, torch.full_like(said, smoothing - 1, dtype=logps.dtype))
        if smoothing:
            slope -= smoothing / vocab
        logits.copy_(slope.masked_fill_(ignored.unsqueeze(1), 0.0))
    return losses.masked_fill_(ignored, 0.0)


def chunk(count: int, weight: Tensor) -> int:
    """How many of `count` positions are judged at once, so that their logits stay within `CHUNK`; evenly shared out."""
    most = CHUNK.get(weight.device.type, CHUNK["cuda"]) // (len(weight) * weight.element_size())
    step = STEP if most >= STEP else 1
    most = max(most // step * step, 1)
    pieces = max(math.ceil(count / most), 1)
    return max(math.ceil(count / pieces / step) * step, 1)


def _judge(weight: Tensor) -> Discriminator:
    """The Triton program where it can run; it is imported here, so that this module can be imported anywhere."""
    able = weight.is_cuda and torch.version.hip is None and weight.dtype != torch.float64
    if not able or importlib.util.find_spec("triton") is None:
        return judge
    from regard.kernels.cross_entropy_triton import judge_rows

    return partial(judge_rows, ignored=IGNORED)


def _put_product(place: Tensor, a: Tensor, b: Tensor) -> None:
    """place = a @ b, where a and b may be less precise than the place."""
    if a.dtype == place.dtype:
        torch.mm(a, b, out=place)
    else:
        place.copy_(a @ b)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where a and b may be less precise than the total."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif total.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)  # halves in, float32 out, in one kernel
    else:
        total += a @ b


def _product_dtype(x: Tensor) -> torch.dtype:
    """What autocast would make of a product with x."""
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return x.dtype


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _edge(weight: Tensor) -> int:
    """What the columns of the logits are padded to: only halves on a GPU gain by it."""
    return EDGE if weight.is_cuda and weight.element_size() == 2 else 1
