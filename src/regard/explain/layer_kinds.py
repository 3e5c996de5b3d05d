"""The kinds of layers that the topic `layers` compares: a module of each, and its formulas (Vaswani et al. 2017)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import attend, weights
from regard.layers.cells import cell
from regard.layers.convolution import CausalConvolution
from regard.layers.recurrent import Recurrent
from regard.mask import EVERYTHING, Mask
from regard.scores import ScaledDot

CONTIGUOUS, DILATED = "contiguous convolution", "dilated convolution"  # names of kinds


@dataclass(frozen=True)
class Sizes:
    """The symbols of the table: n, d, r and k."""

    length: int  # n
    width: int  # d
    window: int  # r: restricted attention sees this many positions to either side
    kernel: int = 3  # k: inputs of a convolution


class SelfAttention(nn.Module):
    """softmax(xxᵀ/√d)x with one head: QKᵀ and PV without the projections, as in the table."""

    def __init__(self, sizes: Sizes, mask: Mask = EVERYTHING) -> None:
        super().__init__()
        self.score, self.mask = ScaledDot(sizes.width), mask

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None]  # (B, T, D) → (B, 1, T, D): one head
        return attend(self.score, x, x, x, self.mask)[:, 0]


class UnfusedSelfAttention(SelfAttention):
    """The same without a fused kernel: the (T, T) weights are computed and stored."""

    def forward(self, x: Tensor) -> Tensor:
        return weights(self.score, x, x, self.mask) @ x


class Lstm(nn.Module):
    """An LSTM layer: its fused kernel, or for tensors without data (device "meta") its equations.

    torch cannot count the operations of a fused kernel. The equations cost the same at every step, so without data all
    steps are computed as one batch.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.rnn = Recurrent("lstm", sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:
            return cell("lstm", x, (x, x), self.rnn.weights(0))[0]
        return self.rnn.advance(x, self.rnn.zeros(len(x), x))[0]


class LstmAttention(nn.Module):
    """An LSTM layer whose states attend to all inputs (Luong et al. 2015)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.rnn, self.score = Lstm(sizes), ScaledDot(sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        states, memory = self.rnn(x)[:, None], x[:, None]
        return attend(self.score, states, memory, memory)[:, 0]


class Convolution(nn.Module):
    """A causal convolution: every output depends on ``kernel`` inputs, its own and earlier ones."""

    def __init__(self, sizes: Sizes, dilation: int = 1) -> None:
        super().__init__()
        self.convolution = CausalConvolution(sizes.width, sizes.width, sizes.kernel, dilation)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.convolution(x.mT, self.convolution.zeros(len(x)))[0]
        return outputs.mT


def dilated(sizes: Sizes, layer: int) -> Convolution:
    """Layer ``layer`` of a dilated stack, from 0: its inputs are kernel^layer positions apart."""
    return Convolution(sizes, sizes.kernel**layer)


class TimeStep(nn.Module):
    """One time step of an LSTM, at all positions at once: from the state of the position before and a random input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.rnn = Recurrent("lstm", sizes.width, sizes.width)
        self.inputs = nn.Parameter(torch.randn(1, sizes.length, sizes.width))

    def forward(self, states: Tensor) -> Tensor:
        before = F.pad(states, (0, 0, 1, 0))[:, :-1]
        return cell("lstm", self.inputs, (before, before), self.rnn.weights(0))[0]


@dataclass(frozen=True)
class LayerKind:
    """A row of the table: the theory of a kind of layer, and a function that builds one."""

    name: str
    complexity: str  # operations per layer
    sequential: str  # operations that cannot run in parallel
    path: str  # the longest path between two positions
    build: Callable[[Sizes], nn.Module]
    operations: Callable[[Sizes], int]  # a multiplication and an addition count as two
    path_length: Callable[[Sizes], int]  # the value of ``path``
    step: Callable[[Sizes, int], nn.Module] | None = None  # step N of a path, from 0; None: one more equal layer


def _attention(s: Sizes) -> int:
    return 4 * s.length**2 * s.width  # QKᵀ and PV, 2·n²·d each


def _lstm(s: Sizes) -> int:
    return 16 * s.length * s.width**2  # four gates, two matrices, 2·d² each


def _convolution(s: Sizes) -> int:
    return 2 * s.kernel * s.length * s.width**2


KINDS = (
    LayerKind("self-attention", "n²·d", "1", "1", SelfAttention, _attention, lambda s: 1),
    LayerKind("unfused self-attention", "n²·d", "1", "1", UnfusedSelfAttention, _attention, lambda s: 1),
    LayerKind(
        *("restricted", "r·n·d", "1", "n/r"),
        build=lambda s: SelfAttention(s, Mask(window=s.window)),
        operations=lambda s: 4 * s.length * min(2 * s.window + 1, s.length) * s.width,
        path_length=lambda s: math.ceil((s.length - 1) / s.window),
    ),
    LayerKind("recurrent", "n·d²", "n", "n", Lstm, _lstm, lambda s: s.length, lambda s, _: TimeStep(s)),
    LayerKind(
        "recurrent + attention", "n·d² + n²·d", "n", "1", LstmAttention, lambda s: _lstm(s) + _attention(s), lambda s: 1
    ),
    LayerKind(
        *(CONTIGUOUS, "k·n·d²", "1", "n/k", Convolution, _convolution),
        path_length=lambda s: math.ceil((s.length - 1) / (s.kernel - 1)),
    ),
    LayerKind(
        *(DILATED, "k·n·d²", "1", "log_k(n)"),
        build=lambda s: dilated(s, 1),  # the layer that is measured is the second of the stack
        operations=_convolution,
        path_length=lambda s: math.ceil(math.log(s.length) / math.log(s.kernel) - 1e-9),
        step=dilated,
    ),
)
