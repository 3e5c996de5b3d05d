"""CUDA graphs: the hundreds of small kernels of a recurrent step, launched as one.

A step of an RNN is bound by the CPU that launches its kernels. Batches come in few shapes, so forward and backward of
each shape are captured once and replayed from then on; only the contents of the buffers change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.data.batches import Batch

# Forward and backward of one batch: (batch, step, the factor of each term) → the sums of the terms.
Work = Callable[[Batch, int, Tensor], Tensor]

Kind = tuple[object, ...]

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
        inputs = {name: tensor.clone() for name, tensor in _tensors(batch).items()}
        fixed, fixed_factors = _with_tensors(batch, inputs), factors.clone()

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
            for name, tensor in _tensors(batch).items():
                inputs[name].copy_(tensor, non_blocking=True)
            fixed_factors.copy_(factors)
            graph.replay()
            return sums.clone()  # another graph may use its place

        return replay


def kind_of(batch: Batch) -> Kind:
    """What the kernels of a batch depend on: the shapes of all its tensors, and which inputs have no padding.

    An input without padding is read without a mask, by other kernels.
    """
    unpadded = tuple(name for name in sorted(batch.real) if batch.visible(name) is None)
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in sorted(_tensors(batch).items())), unpadded


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """Every tensor of a batch: a graph that missed one would read the values that it was captured with."""
    return {f"{kind}.{name}": tensor for kind in ("fields", "real") for name, tensor in getattr(batch, kind).items()}


def _with_tensors(batch: Batch, tensors: Mapping[str, Tensor]) -> Batch:
    """The batch with other tensors in the places of its own."""
    fields = {name: tensors[f"fields.{name}"] for name in batch.fields}
    return replace(batch, fields=fields, real={name: tensors[f"real.{name}"] for name in batch.real})
