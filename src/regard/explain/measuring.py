"""Measuring layers: the time and the peak memory of a forward pass, and how fast they grow with the length."""

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TIMING_SECONDS = 0.02  # how long a layer is run repeatedly in each round of timing


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
