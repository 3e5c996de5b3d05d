"""The cost of a layer as its input grows, and its path lengths.

Self-attention compares every position with every other: n² comparisons of width d, all in parallel, and any two
positions are one step apart. A recurrent layer does a fixed amount of work per position, about d² operations, but one
position after the other, and its first input is n steps away from its last. A convolution and a window see only near
positions, so many layers are needed to connect distant positions: about n/k layers of contiguous convolutions with k
inputs. In a stack of dilated convolutions the distance between the k inputs is multiplied by k from layer to layer, and
log_k(n) layers are enough. In self-attention without a window, one layer is enough at every length.

Which layer is cheaper depends on n and d. Table 1 has n²·d and n·d² without constant factors, and by these attention is
cheaper while n is smaller than d. With the constants of the layers that are measured here, 4·n²·d for attention and
16·n·d² for an LSTM (four gates, two matrices), both cost the same at n = 4·d, and attention is cheaper below that
length. The n² is in the number of operations; a fused kernel avoids it in the memory.

These are measurements for Table 1 of Vaswani et al. (2017). First come the operations at length 1000 and width 1000, by
the formula and as torch counts them on tensors without data. Then come time, memory and operations on this machine at
several lengths, with the exponent of the length: 1 means linear growth, 2 quadratic. The paths are measured by
gradients: the gradient of the last position is propagated back, one layer (or one time step) after the other, until the
first position has a gradient that is not 0.
"""

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.device import single_thread
from regard.explain.layer_kinds import CONTIGUOUS, KINDS, LayerKind, Sizes, TimeStep
from regard.explain.options import LayersOptions
from regard.explain.topic import Progress, Report, Result, no_report, prose, reading
from regard.report.sections import Curve, Line, Section, Table

READING = """
Attention takes quadratic time, but only linear memory if a fused kernel is used, which never stores all weights. At
some length the stored weights of unfused attention no longer fit the caches of the processor, and its time grows faster
than quadratically.

A window makes attention linear: `Mask(window=r)` is computed in blocks, at a cost of r·n·d. But the path is longer:
many layers are needed to connect the first position with the last.

Contiguous and dilated convolutions cost the same per layer. The path of the contiguous stack grows linearly with the
length, that of the dilated stack with its logarithm: this is why temporal convolutional networks are dilated.

Attention on top of a recurrent layer shortens the path to one step, and the cost is quadratic again.
"""
LINEAR = {"recurrent": "recurrent layer", CONTIGUOUS: "convolution"}  # layers whose operations are proportional to n·d²
PATH_LENGTHS = (16, 64, 256, 1024)  # at which paths are measured, up to the longest input
TIMING_SECONDS = 0.02  # how long a layer is run repeatedly in each round of timing
SIZE = 1000  # the length and the width of the textbook comparison
NOTE = (
    "“path” is the number of steps between the two positions that are farthest apart, which is how far a gradient must "
    "travel. For a window and for convolutions it counts the layers that are needed to connect them. “MB” is the peak "
    "memory of a forward pass in training."
)
PATH_NOTE = (
    "A step is a layer; in a recurrent layer it is a time step. The gradient is set to 1 after every step where it is "
    "not 0, so that it cannot vanish. All measured numbers are equal to those of the formulas: (n − 1)/r with r "
    "positions to either side, (n − 1)/(k − 1) and log_k(n) with causal convolutions of k = 3 inputs, rounded up."
)


@dataclass(frozen=True)
class Cost:
    """The measured cost of one layer at every length, and how fast it grows with the length."""

    name: str
    seconds: list[float]  # of a forward pass
    memory: list[int]  # peak bytes of a forward pass, with what the backward pass needs
    operations: list[int]  # counted by torch
    exponents: dict[str, float]  # of the length, for seconds, memory and operations: 1 is linear, 2 quadratic
    path: int  # the longest path between two positions at the largest length


def run(options: LayersOptions, report: Report = no_report) -> Result:
    """Counts the operations of each kind of layer, and measures its cost at several lengths."""
    lengths, sizes = lengths_to(options.length), Sizes(SIZE, SIZE, options.window)
    counts = {kind.name: (kind.operations(sizes), count_operations(kind, sizes)) for kind in KINDS}
    costs = []
    for number, kind in enumerate(KINDS, 1):
        costs.append(measure(kind, lengths, options.width, options.window, options.seed))
        report(Progress("measuring layers", number, len(KINDS)))
    theory = Table(
        f"Length n = {SIZE:,}, width d = {SIZE:,}, window r = {options.window}, kernel k = 3",
        ["layer", "operations", "by\nformula", "counted", "sequential", "longest\npath"],
        [
            [kind.name, kind.complexity, *(f"{n / 1e9:.3g}·10⁹" for n in counts[kind.name]), kind.sequential, kind.path]
            for kind in KINDS
        ],
        f"{cheaper_note(counts, options.width)} {_window_note(*counts['restricted'], options.window)}",
    )
    paths = measure_paths([n for n in PATH_LENGTHS if n <= options.length], options.window, options.seed)
    longest = f"{options.length:,}"
    practice = Table(
        f"Measured on this machine: width {options.width}, window {options.window}, one thread",
        [
            *("layer", *(f"ms at\n{n:,}" for n in lengths[-3:]), f"MB at\n{longest}", f"path at\n{longest}"),
            *(f"{name}\n∝ n^" for name in ("time", "memory", "counted")),
        ],
        [_practice_row(cost) for cost in costs],
        NOTE,
    )
    sections: list[Section] = [
        prose(__doc__),
        theory,
        practice,
        Table(
            f"Longest path, measured by gradients, window {options.window}",
            ["layer", "formula", *(f"n = {n:,}" for n in next(iter(paths.values())))],
            [[kind.name, kind.path, *(f"{steps:,}" for steps in paths[kind.name].values())] for kind in KINDS],
            PATH_NOTE,
        ),
        Curve(
            "Longest path",
            "length of the input",
            "steps",
            [Line(name, list(each), list(each.values())) for name, each in paths.items()],
            log_y=True,
            log_x=True,
        ),
        _curve("Time", "milliseconds of a forward pass", lengths, {one.name: one.seconds for one in costs}, 1e3),
        _curve("Memory", "megabytes", lengths, {one.name: one.memory for one in costs}, 1e-6),
        _curve("Operations", "10⁹ operations, counted", lengths, {one.name: one.operations for one in costs}, 1e-9),
        reading(READING, options),
    ]
    at_1000 = {name: {"formula": formula, "counted": counted} for name, (formula, counted) in counts.items()}
    about = {"lengths": lengths, "width": options.width, "window": options.window, "seed": options.seed}
    shown = (
        "No model is trained. One forward pass of each kind of layer, with random weights and inputs (seed "
        f"{options.seed}) of width {options.width}, is measured on this machine at lengths {lengths[0]:,} to "
        f"{lengths[-1]:,}."
    )
    return Result(
        "The cost of a layer", shown, {**about, "at_1000": at_1000, "paths": paths, "layers": costs}, sections
    )


def lengths_to(longest: int, count: int = 5) -> list[int]:
    """``longest``, its half, its quarter …, in ascending order."""
    return sorted({max(2, longest >> halvings) for halvings in range(count)})


def measure(kind: LayerKind, lengths: Sequence[int], width: int, window: int, seed: int = 1) -> Cost:
    """The cost of a kind of layer at every length."""
    torch.manual_seed(seed)
    sizes = [Sizes(length, width, window) for length in lengths]
    layer, inputs = kind.build(sizes[-1]), [torch.randn(1, length, width) for length in lengths]
    with single_thread():  # with several threads, time would grow differently
        seconds, memory = measure_seconds(layer, inputs), [measure_memory(layer, x) for x in inputs]
    operations = [count_operations(kind, size) for size in sizes]
    measured: dict[str, Sequence[float]] = {"seconds": seconds, "memory": memory, "operations": operations}
    exponents = {name: growth_exponent(lengths, values) for name, values in measured.items()}
    return Cost(kind.name, seconds, memory, operations, exponents, kind.path_length(sizes[-1]))


def measure_paths(lengths: Sequence[int], window: int, seed: int = 1) -> dict[str, dict[int, int]]:
    """The longest path of every kind of layer at every length, measured by gradients."""
    torch.manual_seed(seed)
    with single_thread():
        return {kind.name: {n: measure_path(kind, Sizes(n, 2, window)) for n in lengths} for kind in KINDS}


def measure_path(kind: LayerKind, sizes: Sizes) -> int:
    """The number of steps through which the gradient of the last position reaches the first input.

    A gradient through many layers would underflow. So it is propagated through one step at a time, with random states,
    and is then set to 1 wherever it is not 0.
    """
    reached, found, path = torch.zeros(sizes.length), False, 0
    reached[-1] = 1.0
    while not found:
        step = kind.build(sizes) if kind.step is None else kind.step(sizes, path)
        states = torch.randn(1, sizes.length, sizes.width, requires_grad=True)
        first = step.inputs if isinstance(step, TimeStep) else states
        outputs = step(states)
        found_at = torch.autograd.grad(outputs, (states, first), reached[None, :, None].expand_as(outputs))
        reached, inputs = ((each[0] != 0).any(dim=-1).float() for each in found_at)
        found, path = bool(inputs[0]), path + 1
    return path


def count_operations(kind: LayerKind, sizes: Sizes) -> int:
    """The operations that torch counts in a forward pass on tensors without data; nothing is computed."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        kind.build(sizes)(torch.empty(1, sizes.length, sizes.width))
    return counter.get_total_flops()


def cheaper_note(counts: Mapping[str, tuple[int, int]], width: int) -> str:
    """The lengths up to which attention has fewer operations than the layers that are linear in the length.

    ``counts`` has the operations at length SIZE and width SIZE: a·n²·d of attention and c·n·d² of another layer are
    equal at n = c ÷ a · d.
    """
    factors = {text: counts[name][1] / counts["self-attention"][1] for name, text in LINEAR.items()}
    lengths = " and ".join(
        f"fewer operations than the {name} up to n = {factor:g}·d (n = {factor * width:,.0f} at width {width})"
        for name, factor in factors.items()
    )
    return f"As counted, self-attention has {lengths}."


def _window_note(formula: int, counted: int, window: int) -> str:
    """Explains why torch counts more operations for a window than the formula has."""
    visible, compared = min(2 * window + 1, SIZE), counted / (4 * SIZE**2)  # QKᵀ and PV, two operations each
    return (
        f"Restricted: in the formula, every position is compared with the {visible} positions of its window. The "
        f"computation uses blocks, so it compares each position with {compared:.0f} others, which is "
        f"{counted / formula:.1f} times as many. (These are the blocks on a GPU. On a CPU they can be smaller.)"
    )


def _practice_row(cost: Cost) -> list[str]:
    times = [f"{ms:.{2 if ms < 100 else 0}f}" for ms in (1e3 * seconds for seconds in cost.seconds[-3:])]
    exponents = [f"{exponent:.2f}" for exponent in cost.exponents.values()]
    return [cost.name, *times, f"{cost.memory[-1] / 1e6:.1f}", f"{cost.path:,}", *exponents]


def _curve(title: str, label: str, lengths: list[int], values: Mapping[str, Sequence[float]], factor: float) -> Curve:
    lines = [Line(name, lengths, [factor * value for value in each]) for name, each in values.items()]
    return Curve(title, "length of the input", label, lines, log_y=True, log_x=True)


def growth_exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent b of values ≈ a · lengthᵇ: the slope of a line fitted to the logarithms of the last three values."""
    xs = torch.tensor(lengths[-3:], dtype=torch.float64).log()
    ys = torch.tensor(values[-3:], dtype=torch.float64).log()
    xs, ys = xs - xs.mean(), ys - ys.mean()
    return (xs @ ys / (xs @ xs)).item()


@torch.no_grad()
def measure_seconds(layer: nn.Module, inputs: Sequence[Tensor], rounds: int = 5) -> list[float]:
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


def measure_memory(layer: nn.Module, x: Tensor) -> int:
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
