"""CUDA graphs: the hundreds of small kernels of a recurrent step, launched as one.

A step of an RNN is bound by the CPU that launches its kernels. Batches come in few shapes, so forward and backward of
each shape are captured once and replayed from then on; only the contents of the buffers change.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch

# Forward and backward of one batch: (batch, step, the factor of each term) → the sums of the terms.
Work = Callable[[Batch, int, Tensor], Tensor]

Kind = tuple[torch.Size | None, ...]

WARMUPS = 3  # runs before the capture, in which kernels are chosen and buffers made


class Graphs:
    """The CUDA graph of `run` for each kind of batch. Gradients add up in buffers that never move."""

    def __init__(self, run: Work, weights: Sequence[nn.Parameter]) -> None:
        self._run = run
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._graphs: dict[Kind, Work] = {}
        self._pool = torch.cuda.graph_pool_handle()  # of the graphs' memory, one for all: only one replays at a time

    def of(self, batch: Batch, factors: Tensor) -> Work:
        """What to call for a batch of this kind; captured at the first."""
        kind = kind_of(batch)
        if kind not in self._graphs:
            with torch.cuda.device(factors.device):  # streams and graphs are made on the current one
                self._graphs[kind] = self._capture(batch, factors)
        return self._graphs[kind]

    def _capture(self, batch: Batch, factors: Tensor) -> Work:
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        kept = [weight.grad.clone() for weight in self._weights if weight.grad is not None]
        inputs: dict[str, Any] = {name: part.clone() for name, part in _tensors(batch).items() if part is not None}
        fixed, fixed_factors = replace(batch, **inputs), factors.clone()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUPS):
                self._run(fixed, 0, fixed_factors)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            sums = self._run(fixed, 0, fixed_factors)
        for weight, grad in zip(self._weights, kept):
            assert weight.grad is not None
            weight.grad.copy_(grad)  # what the warm-up added is taken back

        def replay(batch: Batch, step: int, factors: Tensor) -> Tensor:
            for name, tensor in inputs.items():
                tensor.copy_(getattr(batch, name), non_blocking=True)
            fixed_factors.copy_(factors)
            graph.replay()
            return sums.clone()  # another graph may use its place

        return replay


def kind_of(batch: Batch) -> Kind:
    """What the kernels of a batch depend on: its shapes, and where nothing is padding, since no mask is read there."""
    seen = {"visible": batch.visible, "source_visible": batch.source_visible}
    return tuple(None if tensor is None else tensor.shape for tensor in (_tensors(batch) | seen).values())


def _tensors(batch: Batch) -> dict[str, Tensor | None]:
    """The parts of a batch that are on the device."""
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: part for name, part in parts.items() if part is None or isinstance(part, Tensor)}
