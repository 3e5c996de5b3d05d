"""CUDA graphs: the hundreds of small kernels of a recurrent step, launched as one.

The speed of an RNN step is limited by the CPU, which launches its kernels. Batches have few shapes, so the forward and
backward passes of each shape are captured once and then replayed; only the contents of the buffers change.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.device import capture
from regard.tensor_tree import signature, tensors, with_tensors

# Forward and backward passes of one batch: (batch, step, the factor of each term, the carried state before the batch) →
# the sums of the terms, and the carried state after the batch.
Work = Callable[[Batch, int, Tensor, Any], tuple[Tensor, Any]]

Kind = tuple[object, ...]

WARMUPS = 3  # runs before the capture: they select kernels and allocate buffers


class Graphs:
    """The CUDA graph of `run` for each kind of batch. Gradients accumulate in buffers at fixed addresses."""

    def __init__(self, run: Work, weights: Sequence[nn.Parameter]) -> None:
        self._run = run
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._graphs: dict[Kind, Work] = {}
        self._pool = torch.cuda.graph_pool_handle()  # one memory pool for all graphs: only one replays at a time

    def of(self, batch: Batch, factors: Tensor, state: Any = None) -> Work:
        """The function that replays the graph for batches of this kind; the graph is captured at the first call."""
        kind = kind_of(batch, state)
        if kind not in self._graphs:
            with torch.cuda.device(factors.device):  # streams and graphs are created on the current device
                self._graphs[kind] = self._capture(batch, factors, state)
        return self._graphs[kind]

    def _capture(self, batch: Batch, factors: Tensor, state: Any) -> Work:
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        gradients = [weight.grad.clone() for weight in self._weights if weight.grad is not None]
        inputs = batch.fields, batch.real, factors, state  # a tensor left out would keep its values from the capture
        buffers = with_tensors(inputs, (tensor.clone() for tensor in tensors(inputs)))
        fields, real, fixed_factors, fixed_state = buffers
        fixed = replace(batch, fields=fields, real=real)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUPS):
                self._run(fixed, 0, fixed_factors, fixed_state)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with capture(graph, self._pool):
            sums, after = self._run(fixed, 0, fixed_factors, fixed_state)
        for weight, grad in zip(self._weights, gradients):
            assert weight.grad is not None
            weight.grad.copy_(grad)  # undoes what the warm-up runs added

        def replay(batch: Batch, step: int, factors: Tensor, state: Any) -> tuple[Tensor, Any]:
            inputs = batch.fields, batch.real, factors, state
            for buffer, tensor in zip(tensors(buffers), tensors(inputs), strict=True):
                buffer.copy_(tensor, non_blocking=True)
            graph.replay()
            # The results are cloned, since another graph may overwrite the memory.
            return sums.clone(), with_tensors(after, (tensor.clone() for tensor in tensors(after)))

        return replay


def kind_of(batch: Batch, state: Any = None) -> Kind:
    """What determines the kernels of a batch: the shapes of all its tensors and of the carried state, which inputs have
    no padding, and whether the batch is of contiguous text.

    An input without padding is read without a mask, by other kernels.
    """
    unpadded = tuple(name for name in sorted(batch.real) if batch.visible(name) is None)
    return signature((batch.fields, batch.real, state)), unpadded, batch.segment is None
