"""What a layer costs as its input grows: time, operations, memory, and how far apart two positions are.

Table 1 of Vaswani et al. (2017), measured: self-attention, restricted self-attention, a recurrent layer, a recurrent
layer that attends, and a convolution. Operations are counted by torch as the layer runs on tensors without data;
seconds and bytes are those of this machine.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import attend, weights
from regard.explain.memory import Bytes
from regard.explain.small import one_thread
from regard.layers.recurrent import Recurrent, cell
from regard.mask import EVERYTHING, Mask
from regard.scores import ScaledDot

MOMENT = 0.02  # seconds for which a layer is run again and again, to be timed


@dataclass(frozen=True)
class Sizes:
    """n, d, r and k of the table."""

    length: int
    width: int
    window: int  # restricted attention sees so far to either side
    kernel: int = 3  # inputs under a convolution


class SelfAttention(nn.Module):
    """softmax(xxᵀ/√d)x, one head: QKᵀ and PV, without the projections, as the table counts it."""

    def __init__(self, width: int, mask: Mask = EVERYTHING) -> None:
        super().__init__()
        self.score, self.mask = ScaledDot(width), mask

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None]  # (B, T, D) → (B, 1, T, D): one head
        return attend(self.score, x, x, x, self.mask)[:, 0]


class WrittenOut(SelfAttention):
    """The same by the definition: the (T, T) weights exist."""

    def forward(self, x: Tensor) -> Tensor:
        return weights(self.score, x, x, self.mask) @ x


class Lstm(nn.Module):
    """A recurrent layer, by its fused kernel, and where there is no data by its equations.

    torch's counter cannot see into fused kernels. What a step of the equations costs does not depend on the state
    before it, so without data all steps may as well be one.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn = Recurrent("lstm", width, width)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:
            return cell("lstm", x, (x, x), self.rnn.weights(0))[0]
        return self.rnn.advance(x, self.rnn.zeros(len(x), x))[0]


class LstmAttention(nn.Module):
    """A recurrent layer whose every state reads all the inputs (Luong et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn, self.score = Lstm(width), ScaledDot(width)

    def forward(self, x: Tensor) -> Tensor:
        states, memory = self.rnn(x)[:, None], x[:, None]
        return attend(self.score, states, memory, memory)[:, 0]


class Convolution(nn.Module):
    """Every output sees ``kernel`` neighbouring inputs."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.conv(x.mT).mT
        return read


@dataclass(frozen=True)
class Kind:
    """A row of the table: what theory says of a layer, and how to build one."""

    name: str
    complexity: str  # operations per layer
    sequential: str  # operations that must wait for one another
    path: str  # the longest way between two positions
    build: Callable[[Sizes], nn.Module]
    operations: Callable[[Sizes], int]  # a multiplication and an addition are two
    distance: Callable[[Sizes], int]  # the path, in figures


def _attention(s: Sizes) -> int:
    return 4 * s.length**2 * s.width  # QKᵀ and PV, 2·n²·d each


def _lstm(s: Sizes) -> int:
    return 16 * s.length * s.width**2  # four gates, two matrices, 2·d² each


KINDS = (
    Kind("self-attention", "n²·d", "1", "1", lambda s: SelfAttention(s.width), _attention, lambda s: 1),
    Kind("the same, written out", "n²·d", "1", "1", lambda s: WrittenOut(s.width), _attention, lambda s: 1),
    Kind(
        "restricted",
        "r·n·d",
        "1",
        "n/r",
        lambda s: SelfAttention(s.width, Mask(window=s.window)),
        lambda s: 4 * s.length * min(2 * s.window + 1, s.length) * s.width,
        lambda s: math.ceil((s.length - 1) / s.window),
    ),
    Kind("recurrent", "n·d²", "n", "n", lambda s: Lstm(s.width), _lstm, lambda s: s.length),
    Kind(
        "recurrent + attention",
        "n·d² + n²·d",
        "n",
        "1",
        lambda s: LstmAttention(s.width),
        lambda s: _lstm(s) + _attention(s),
        lambda s: 1,
    ),
    Kind(
        "convolutional",
        "k·n·d²",
        "1",
        "log_k(n)",
        lambda s: Convolution(s.width, s.kernel),
        lambda s: 2 * s.kernel * s.length * s.width**2,
        lambda s: math.ceil(math.log(s.length) / math.log(s.kernel) - 1e-9),
    ),
)


@dataclass(frozen=True)
class Cost:
    """What one layer took at every length, and the powers of the length by which it grows."""

    name: str
    seconds: list[float]  # of a forward pass
    memory: list[int]  # bytes of a forward pass that is to be learnt from, at most at a time
    operations: list[int]  # as counted by torch
    slopes: dict[str, float]  # of seconds, memory and operations: 1 is linear, 2 quadratic


def lengths_to(longest: int, count: int = 5) -> list[int]:
    """The longest, its half, the half of that …"""
    return sorted({max(2, longest >> halvings) for halvings in range(count)})


def layers(lengths: Sequence[int], width: int = 64, window: int = 32, seed: int = 1) -> Iterator[Cost]:
    """Every layer at every length, one after the other."""
    for kind in KINDS:
        torch.manual_seed(seed)
        sizes = [Sizes(length, width, window) for length in lengths]
        layer, inputs = kind.build(sizes[-1]), [torch.randn(1, length, width) for length in lengths]
        with one_thread():  # slopes are of the work, not of how it was shared out
            seconds, memory = _timed(layer, inputs), [_held(layer, x) for x in inputs]
        operations = [counted(kind, size) for size in sizes]
        measured: dict[str, Sequence[float]] = {"seconds": seconds, "memory": memory, "operations": operations}
        slopes = {name: slope(lengths, values) for name, values in measured.items()}
        yield Cost(kind.name, seconds, memory, operations, slopes)


def counted(kind: Kind, sizes: Sizes) -> int:
    """The operations that torch counts in a forward pass. Nothing is computed: the tensors have shapes only."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        kind.build(sizes)(torch.empty(1, sizes.length, sizes.width))
    return counter.get_total_flops()


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The power of the length by which values grow: a straight line through the logarithms of the last three."""
    xs = torch.tensor(lengths[-3:], dtype=torch.float64).log()
    ys = torch.tensor(values[-3:], dtype=torch.float64).log()
    xs, ys = xs - xs.mean(), ys - ys.mean()
    return (xs @ ys / (xs @ xs)).item()


@torch.no_grad()
def _timed(layer: nn.Module, inputs: Sequence[Tensor], rounds: int = 5) -> list[float]:
    """The least time of a forward pass over each input, in seconds of the processor.

    Rounds over all inputs, each of them run for a moment: where somebody else keeps the machine busy for a while, all
    lengths suffer alike, and another round is better.
    """
    least = [math.inf] * len(inputs)
    for at, x in list(enumerate(inputs)) * rounds:
        until = time.process_time() + MOMENT
        while (began := time.process_time()) < until:
            layer(x)
            least[at] = min(least[at], time.process_time() - began)
    return least


def _held(layer: nn.Module, x: Tensor) -> int:
    """The most bytes alive at a time in a forward pass, with all that the way back will need."""
    with Bytes() as held:
        layer(x.requires_grad_())
    return held.most
