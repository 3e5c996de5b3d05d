"""The cost of a layer as its input grows: time, memory, operations, and the path length between two positions.

These are measurements for Table 1 of Vaswani et al. (2017): self-attention, restricted self-attention, a recurrent
layer, a recurrent layer with attention, and a convolution. torch counts the operations, on tensors without data (device
"meta"); time and memory are measured on this machine.
"""

import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import attend, weights
from regard.explain.experiment import single_thread
from regard.layers.recurrent import Recurrent, cell
from regard.mask import EVERYTHING, Mask
from regard.scores import ScaledDot

TIMING_SECONDS = 0.02  # how long a layer is run repeatedly in each round of timing


@dataclass(frozen=True)
class Sizes:
    """The symbols of the table: n, d, r and k."""

    length: int  # n
    width: int  # d
    window: int  # r: restricted attention sees this many positions to either side
    kernel: int = 3  # k: inputs of a convolution


class SelfAttention(nn.Module):
    """softmax(xxᵀ/√d)x with one head: QKᵀ and PV without the projections, as in the table."""

    def __init__(self, width: int, mask: Mask = EVERYTHING) -> None:
        super().__init__()
        self.score, self.mask = ScaledDot(width), mask

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

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn = Recurrent("lstm", width, width)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:
            return cell("lstm", x, (x, x), self.rnn.weights(0))[0]
        return self.rnn.advance(x, self.rnn.zeros(len(x), x))[0]


class LstmAttention(nn.Module):
    """An LSTM layer whose states attend to all inputs (Luong et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn, self.score = Lstm(width), ScaledDot(width)

    def forward(self, x: Tensor) -> Tensor:
        states, memory = self.rnn(x)[:, None], x[:, None]
        return attend(self.score, states, memory, memory)[:, 0]


class Convolution(nn.Module):
    """A convolution: every output depends on ``kernel`` neighbouring inputs."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding="same")

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.conv(x.mT).mT
        return outputs


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


def _attention_operations(s: Sizes) -> int:
    return 4 * s.length**2 * s.width  # QKᵀ and PV, 2·n²·d each


def _lstm_operations(s: Sizes) -> int:
    return 16 * s.length * s.width**2  # four gates, two matrices, 2·d² each


KINDS = (
    LayerKind("self-attention", "n²·d", "1", "1", lambda s: SelfAttention(s.width), _attention_operations, lambda s: 1),
    LayerKind(
        "unfused self-attention",
        "n²·d",
        "1",
        "1",
        lambda s: UnfusedSelfAttention(s.width),
        _attention_operations,
        lambda s: 1,
    ),
    LayerKind(
        "restricted",
        "r·n·d",
        "1",
        "n/r",
        lambda s: SelfAttention(s.width, Mask(window=s.window)),
        lambda s: 4 * s.length * min(2 * s.window + 1, s.length) * s.width,
        lambda s: math.ceil((s.length - 1) / s.window),
    ),
    LayerKind("recurrent", "n·d²", "n", "n", lambda s: Lstm(s.width), _lstm_operations, lambda s: s.length),
    LayerKind(
        "recurrent + attention",
        "n·d² + n²·d",
        "n",
        "1",
        lambda s: LstmAttention(s.width),
        lambda s: _lstm_operations(s) + _attention_operations(s),
        lambda s: 1,
    ),
    LayerKind(
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
    """The measured cost of one layer at every length, and how fast it grows with the length."""

    name: str
    seconds: list[float]  # of a forward pass
    memory: list[int]  # peak bytes of a forward pass, with what the backward pass needs
    operations: list[int]  # counted by torch
    exponents: dict[str, float]  # of the length, for seconds, memory and operations: 1 is linear, 2 quadratic


def lengths_to(longest: int, count: int = 5) -> list[int]:
    """``longest``, its half, its quarter …, in ascending order."""
    return sorted({max(2, longest >> halvings) for halvings in range(count)})


def run(lengths: Sequence[int], width: int = 64, window: int = 32, seed: int = 1) -> Iterator[Cost]:
    """Measures each kind of layer at every length, and yields one result per kind."""
    for kind in KINDS:
        torch.manual_seed(seed)
        sizes = [Sizes(length, width, window) for length in lengths]
        layer, inputs = kind.build(sizes[-1]), [torch.randn(1, length, width) for length in lengths]
        with single_thread():  # with several threads, time would grow differently
            seconds, memory = _measure_seconds(layer, inputs), [_measure_memory(layer, x) for x in inputs]
        operations = [count_operations(kind, size) for size in sizes]
        measured: dict[str, Sequence[float]] = {"seconds": seconds, "memory": memory, "operations": operations}
        exponents = {name: growth_exponent(lengths, values) for name, values in measured.items()}
        yield Cost(kind.name, seconds, memory, operations, exponents)


def count_operations(kind: LayerKind, sizes: Sizes) -> int:
    """The operations that torch counts in a forward pass on tensors without data; nothing is computed."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        kind.build(sizes)(torch.empty(1, sizes.length, sizes.width))
    return counter.get_total_flops()


def growth_exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent b of values ≈ a · lengthᵇ: the slope of a line fitted to the logarithms of the last three values."""
    xs = torch.tensor(lengths[-3:], dtype=torch.float64).log()
    ys = torch.tensor(values[-3:], dtype=torch.float64).log()
    xs, ys = xs - xs.mean(), ys - ys.mean()
    return (xs @ ys / (xs @ xs)).item()


@torch.no_grad()
def _measure_seconds(layer: nn.Module, inputs: Sequence[Tensor], rounds: int = 5) -> list[float]:
    """The shortest processor time of a forward pass for each input.

    All inputs are timed in several rounds. If another program slows the machine down for a moment, only one round is
    affected, and all lengths of that round alike.
    """
    shortest = [math.inf] * len(inputs)
    for at, x in list(enumerate(inputs)) * rounds:
        until = time.process_time() + TIMING_SECONDS
        while (began := time.process_time()) < until:
            layer(x)
            shortest[at] = min(shortest[at], time.process_time() - began)
    return shortest


def _measure_memory(layer: nn.Module, x: Tensor) -> int:
    """The peak memory of a forward pass in bytes, with all tensors that the backward pass needs."""
    with PeakMemory() as memory:
        layer(x.requires_grad_())
    return memory.peak


class PeakMemory(TorchDispatchMode):
    """Measures the memory of the tensors that operations create inside the with-statement, on any device.

    Tensors that existed before do not count. The internal workspace of fused kernels is not seen; it is small.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = self.peak = 0  # bytes
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf.untyped_storage(), before)
        return out

    def _add(self, storage: torch.UntypedStorage, before: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in before or key in self._storages:  # a view, or written in place
            return

        def on_free(_: object) -> None:
            self.current -= size
            del self._storages[key]

        self._storages[key] = weakref.ref(storage, on_free)
        self.current += size
        self.peak = max(self.peak, self.current)
