"""CUDA graphs for decoding: the hundreds of small kernels of one step are launched as one.

The speed of a decoding step is limited by the CPU, which launches its kernels. The state of a search has static shapes
(a KV cache is preallocated), so a step is captured once for each shape and then replayed. What a step carries to the
next one is kept in static buffers: the captured step ends by writing the new state into the buffers of the old one, so
the next step copies nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor

from regard.decode.fast_layers import with_fused_steps
from regard.decode.state import Preallocates
from regard.device import capture
from regard.errors import UserError
from regard.tensor_tree import signature, tensors, with_tensors

T = TypeVar("T")  # a state: tensors in dataclasses, tuples and lists
C = TypeVar("C", bound=tuple[Any, ...])  # what is carried from one step to the next: tensors, and a state
O = TypeVar("O")  # the output of a step  # noqa: E741

KEPT_GRAPHS = 4  # graphs of a step, besides those of running searches; each holds a KV cache of its own
WARMUPS = 2  # runs before the capture, in which kernels are chosen and compiled


def stream_of(tensor: Tensor) -> object:
    """The stream on which this thread launches kernels on the device of the tensor; None on a CPU."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


@dataclass(eq=False)
class CapturedGraph(Generic[C, O]):
    """A CUDA graph, the buffers that it reads and writes, and the search that uses them."""

    key: object  # the signature that it was captured for
    graph: torch.cuda.CUDAGraph
    carry: C
    output: O
    user: Callable[[], object] = lambda: None  # the state of that search; None once that search has ended

    def assign(self, carry: C) -> Any:
        """Copy a search into these buffers; return its state there, which the search must hold until it ends."""
        for buffer, value in zip(tensors(self.carry), tensors(carry)):
            if buffer is not value:
                buffer.copy_(value)
        state = copy(self.carry[-1])  # a new object that has the same buffers
        self.user = ref(state)
        return state


class CapturedStep(Generic[C, O]):
    """A step (carry → carry, output), which a GPU captures at the second call with each shape.

    The state is the last item of the carry. The next call of the same search overwrites the output. Two searches that
    run at the same time, also in two threads, use two graphs. A search gives its graph back when it drops the state, so
    until then it must launch all kernels that read the outputs. The next search with this graph uses the same stream,
    so its kernels run after those. On a CPU the step is called directly.
    """

    def __init__(self, step: Callable[[C], tuple[C, O]]) -> None:
        self._step = step
        self._choice = Lock()  # held while a search takes a graph
        self._graphs: list[CapturedGraph[C, O]] = []  # oldest first
        self._keeps_shape: dict[object, bool] = {}  # by key: whether the carry after a step has the same signature

    def __call__(self, carry: C) -> tuple[C, O]:
        if not self.can_capture(carry):
            return self._step(carry)
        state = carry[-1]
        graph = next((one for one in tuple(self._graphs) if one.user() is state), None)
        if graph is None:
            modes = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda")
            key = signature(carry), modes, torch.get_autocast_dtype("cuda"), stream_of(carry[0])
            if not self._keeps_shape.get(key, False):  # the first call, or a step that changes the signature
                after, output = self._step(carry)
                self._keeps_shape[key] = signature(after) == key[0]
                return after, output
            with self._choice:
                graph = self._unused_graph(key, carry)
                state = graph.assign(carry)
        for buffer, value in zip(graph.carry[:-1], carry):
            if buffer is not value:
                buffer.copy_(value)
        graph.graph.replay()
        carried: Any = (*graph.carry[:-1], state)
        return carried, graph.output

    def can_capture(self, carry: C) -> bool:
        return bool(carry[0].is_cuda)

    def _unused_graph(self, key: object, carry: C) -> CapturedGraph[C, O]:
        """A graph for this key that no running search uses."""
        for one in self._graphs:
            if one.key == key and one.user() is None:
                return one
        made = self._capture(key, carry)
        unused = [one for one in self._graphs if one.user() is None]
        for one in unused[: max(len(self._graphs) + 1 - KEPT_GRAPHS, 0)]:
            self._graphs.remove(one)
        self._graphs.append(made)
        return made

    def _capture(self, key: object, carry: C) -> CapturedGraph[C, O]:
        """Capture the step. The tensors of the carry become its buffers, since a step consumes them. A tensor that
        occurs twice, or is a view of memory that others may read, is cloned first."""
        seen: set[int] = set()

        def as_buffer(tensor: Tensor) -> Tensor:
            view = tensor._is_view() or tensor.is_inference()  # inference mode does not tell what is a view
            unshared = tensor.data_ptr() not in seen and tensor.is_contiguous() and not view
            seen.add(tensor.data_ptr())
            return tensor if unshared else tensor.clone()

        buffers = with_tensors(carry, map(as_buffer, tensors(carry)))
        with torch.cuda.device(carry[0].device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARMUPS):
                    self._step(buffers)  # the captured step overwrites what this writes into a KV cache
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with capture(graph):
                after, output = self._step(buffers)
                copy_back(list(tensors(buffers)), list(tensors(after)))
        return CapturedGraph(key, graph, buffers, output)


class CapturedDecoder:
    """A decoder whose steps are captured. Searches use it like the decoder itself.

    Many searches may use it, at the same time or one after the other; consecutive searches of one shape share a graph.
    A search whose choice of the next token can be captured too calls ``capture`` with its whole step.
    The weights must not change, because the layers of ``with_fused_steps`` copy some of them.
    """

    def __init__(self, decoder: Any) -> None:
        self.eager: Any = with_fused_steps(decoder)
        self._steps: dict[object, CapturedStep[Any, Any]] = {}
        self._steps_left: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # of preallocated states
        self._order = Lock()  # held while the order of the steps changes

    def start(self, *given: Any) -> Any:
        """The state before the first token."""
        return self.eager.start(*given)

    def advance(self, tokens: Tensor, state: Any, *given: Any) -> tuple[Tensor, Any]:
        """Read any number of tokens at once. This is not captured."""
        return self.eager.advance(tokens, state, *given)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        def eager_step(carry: tuple[Tensor, Any]) -> tuple[tuple[Tensor, Any], Tensor]:
            logits, after = self.eager.step(*carry)
            return (carry[0], after), logits

        left = self._steps_left.pop(state, None)
        if left == 0:
            raise UserError("steps: more than the state was preallocated for; call preallocate with a larger number")
        (_, state), logits = self.capture("step", eager_step)((tokens, state))
        if left is not None:
            self._steps_left[state] = left - 1
        return logits, state

    def preallocate(self, state: T, steps: int) -> T:
        """The state with buffers for this many more steps, so that its shapes stay the same."""
        if isinstance(self.eager, Preallocates):
            state = self.eager.preallocate(state, steps)
            self._steps_left[state] = steps  # a captured step cannot find out that its buffers are full
        return state

    def capture(self, key: object, step: Callable[[C], tuple[C, O]]) -> Callable[[C], tuple[C, O]]:
        """The captured form of a step; calls with an equal key return the same one."""
        with self._order:
            found = self._steps.pop(key, None) or CapturedStep(step)
            self._steps[key] = found  # the most recently used is last
            if len(self._steps) > KEPT_GRAPHS:
                del self._steps[next(iter(self._steps))]
        return found


@dataclass(frozen=True)
class EagerDecoder:
    """A decoder whose steps are not captured, with the methods of ``CapturedDecoder`` that a search calls."""

    eager: Any

    def capture(self, key: object, step: Callable[[C], tuple[C, O]]) -> Callable[[C], tuple[C, O]]:
        return step

    def preallocate(self, state: T, steps: int) -> T:
        return state


def step_runner(decoder: Any) -> CapturedDecoder | EagerDecoder:
    """The object that runs the steps of a search with this decoder, captured or not."""
    return decoder if isinstance(decoder, CapturedDecoder) else EagerDecoder(decoder)


def copy_back(buffers: list[Tensor], values: list[Tensor]) -> None:
    """Copy values into buffers, one call for each dtype: most are single numbers, and kernel launches are expensive."""
    moved = [(buffer, value) for buffer, value in zip(buffers, values) if buffer.data_ptr() != value.data_ptr()]
    for dtype in {buffer.dtype for buffer, _ in moved}:
        pairs = [pair for pair in moved if pair[0].dtype == dtype]
        torch._foreach_copy_([buffer for buffer, _ in pairs], [value for _, value in pairs])
