"""CUDA graphs for decoding: the hundreds of small kernels of one step, launched as one.

A step of a search is bound by the CPU that launches its kernels. Its state has static shapes (a cache is preallocated),
so a step is captured once for each shape and replayed from then on. What the step carries lives in buffers that never
move: the captured step ends by writing the new state where it found the old one, and the next step has nothing to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decode.fused_step import with_fused_steps
from regard.decode.trees import outline, put_back, tensors, with_tensors
from regard.layers.product import Product

T = TypeVar("T")  # a tree: tensors in dataclasses, tuples and lists
C = TypeVar("C", bound=tuple[Any, ...])  # what is carried from one step to the next: tensors, and a state
O = TypeVar("O")  # what a step puts out  # noqa: E741

TILE = 64  # rows of a readout come in multiples of this
KEPT_GRAPHS = 4  # graphs of a step; each holds a cache of its own
WARMUPS = 2  # runs before the capture, in which kernels are chosen and compiled


@dataclass(eq=False)
class CapturedGraph(Generic[C, O]):
    """A graph, the buffers that it reads from and writes to, and the search that uses them."""

    key: object  # what it was captured for
    graph: torch.cuda.CUDAGraph
    carry: C
    output: O
    user: Callable[[], object] = lambda: None  # the state of that search; None once that search has ended

    def assign(self, carry: C) -> Any:
        """Begins a search here: its state, from now on in these buffers. The search holds it as long as it goes on."""
        for place, value in zip(tensors(self.carry), tensors(carry)):
            if place is not value:
                place.copy_(value)
        state = with_tensors(self.carry[-1], tensors(self.carry[-1]))  # the same buffers in a shell of its own
        self.user = ref(state)
        return state


class CapturedStep(Generic[C, O]):
    """A step (carry → carry, output), on a GPU captured at its second call with each shape.

    The state stands last in what is carried. What is put out is overwritten by the next call of the same search; of two
    searches that go on at once, each has a graph of its own. On a CPU the step is simply called.
    """

    def __init__(self, step: Callable[[C], tuple[C, O]]) -> None:
        self._step = step
        self._graphs: list[CapturedGraph[C, O]] = []  # the oldest first
        self._steady: dict[object, bool] = {}  # by shape: whether a step carries on what it was given

    def __call__(self, carry: C) -> tuple[C, O]:
        if not self.able(carry):
            return self._step(carry)
        state = carry[-1]
        graph = next((one for one in self._graphs if one.user() is state), None)
        if graph is None:
            key = outline(carry), torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
            if not self._steady.get(key, False):  # the first time, or one that changes the shape of what it carries
                after, said = self._step(carry)
                self._steady[key] = outline(after) == key[0]
                return after, said
            graph = self._free(key, carry)
            state = graph.assign(carry)
        for place, value in zip(graph.carry[:-1], carry):
            if place is not value:
                place.copy_(value)
        graph.graph.replay()
        carried: Any = (*graph.carry[:-1], state)
        return carried, graph.output

    def able(self, carry: C) -> bool:
        """Whether this can be captured."""
        return bool(carry[0].is_cuda)

    def _free(self, key: object, carry: C) -> CapturedGraph[C, O]:
        """A graph for this shape that no search is using."""
        for one in self._graphs:
            if one.key == key and one.user() is None:
                return one
        self._graphs.append(self._capture(key, carry))
        if len(self._graphs) > KEPT_GRAPHS:
            del self._graphs[0]  # with its buffers, unless a search still has them, which then goes on elsewhere
        return self._graphs[-1]

    def _capture(self, key: object, carry: C) -> CapturedGraph[C, O]:
        """A step consumes what it is given, so its buffers may be kept; not a tensor that stands in two places, nor a
        view, which may be one of something that others read."""
        seen: set[int] = set()

        def own(tensor: Tensor) -> Tensor:
            alone = tensor.data_ptr() not in seen and tensor.is_contiguous() and not tensor._is_view()
            seen.add(tensor.data_ptr())
            return tensor if alone else tensor.clone()

        fixed = with_tensors(carry, map(own, tensors(carry)))
        with torch.cuda.device(carry[0].device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARMUPS):
                    self._step(fixed)  # what it writes into a cache, the captured step will write again
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                after, output = self._step(fixed)
                put_back(list(tensors(fixed)), list(tensors(after)))
        return CapturedGraph(key, graph, fixed, output)


class CapturedDecoder:
    """A decoder whose steps are captured: to searches the same as the decoder itself.

    It may be used for many searches, at once or one after the other; of the latter, those of one shape share a
    graph. A search that can be captured whole, with its choice of the next token, asks for that by ``captured``.
    The weights must stay as they were: ``PaddedReadout`` has copied some. A tape records nothing of
    what ``with_fused_steps`` has replaced.
    """

    def __init__(self, decoder: Any) -> None:
        self.plain = PaddedReadout(with_fused_steps(decoder))
        self._steps: dict[object, CapturedStep[Any, Any]] = {}

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        def take(carry: tuple[Tensor, Any]) -> tuple[tuple[Tensor, Any], Tensor]:
            logits, after = self.plain.step(*carry)
            return (carry[0], after), logits

        (_, state), logits = self.captured("step", take)((tokens, state))
        return logits, state

    def advance(self, tokens: Tensor, state: Any, *given: Any) -> tuple[Tensor, Any]:
        """Reads many tokens at once, of whatever number: not captured."""
        found: tuple[Tensor, Any] = self.plain.decoder.advance(tokens, state, *given)
        return found

    def preallocate(self, state: T, steps: int) -> T:
        """The state in the shape that a captured run of so many steps needs."""
        inner = self.plain.decoder
        allocated: T = inner.preallocate(state, steps) if hasattr(inner, "preallocate") else state
        return allocated

    def captured(self, key: object, step: Callable[[C], tuple[C, O]]) -> Callable[[C], tuple[C, O]]:
        """The captured step that this key is for."""
        found = self._steps.pop(key, None) or CapturedStep(step)
        self._steps[key] = found  # the latest last
        if len(self._steps) > KEPT_GRAPHS:
            del self._steps[next(iter(self._steps))]
        return found


class PaddedReadout:
    """A decoder whose last product has as many rows as tiles want.

    A vocabulary of 50257 would keep it off a GPU's fast kernels; so the readout's weights are kept once more, with rows
    of nothing behind them, whose logits nobody sees.
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self._weights: tuple[Tensor, Tensor | None] | None = None

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        weight = next(self.decoder.parameters())
        if not weight.is_cuda or weight.dtype == torch.float32 or not hasattr(self.decoder, "product"):
            stepped: tuple[Tensor, Any] = self.decoder.step(tokens, state)
            return stepped
        features, state = self.decoder.advance(tokens[:, None], state)
        product = self.decoder.product(features[:, 0])
        if not isinstance(product, Product) or len(product.weight) % TILE == 0:
            return self.decoder.readout(features[:, 0]), state
        if self._weights is None:
            more = -len(product.weight) % TILE
            bias = None if product.bias is None else F.pad(product.bias, (0, more))
            self._weights = F.pad(product.weight, (0, 0, 0, more)), bias
        return F.linear(product.x, *self._weights)[:, : len(product.weight)], state


@dataclass(frozen=True)
class UncapturedDecoder:
    """A decoder whose steps are simply taken, with what a search asks of one whose steps are captured."""

    plain: Any

    def captured(self, key: object, step: Callable[[C], tuple[C, O]]) -> Callable[[C], tuple[C, O]]:
        return step

    def preallocate(self, state: T, steps: int) -> T:
        return state


def step_runner(decoder: Any) -> CapturedDecoder | UncapturedDecoder:
    """How the steps of a decoder are taken."""
    return decoder if isinstance(decoder, CapturedDecoder) else UncapturedDecoder(decoder)
