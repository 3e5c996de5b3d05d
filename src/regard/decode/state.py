"""What a search asks of a model: take a step, and let the rows of the batch be moved about."""

from typing import Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor

NEVER = float("-inf")  # the logit, and the log-probability, of what cannot be
PAD = 0  # what a row that has finished goes on saying, whatever this id means to its tokenizer: nobody reads it


class State(Protocol):
    """All that a decoder carries from one step to the next: hidden vectors, a cache, the memory it reads.

    A state has R rows, one for each hypothesis. It is a value: a step takes one and returns another, and whoever gives
    a state away does not use it again, so that a model may write into its buffers.
    """

    def select(self, rows: Tensor) -> Self:
        """The state whose row i is this state's row `rows[i]`, where a row never leaves its sentence.

        This is how a beam forgets a hypothesis and doubles another. The rows of a sentence are neighbours and as many
        as those of any other: of R rows for B sentences, sentence b has rows b·R/B to (b + 1)·R/B - 1, before and
        after. Within its sentence a row may be dropped, moved or repeated. So what is the same for a whole sentence
        (the encoded source, say) can be stored once and stay where it is; and so `select` cannot drop a sentence or
        change the order of sentences: such rows are outside this contract, and nothing checks them.
        """
        ...


@runtime_checkable
class HiddenState(Protocol):
    """A state with the hidden vectors of a recurrent decoder. Optional: pictures then show them as its state."""

    @property
    def hidden(self) -> Tensor:
        """(R, layers, parts, width), of the last token read."""
        ...


S = TypeVar("S", bound=State)
S_advancing = TypeVar("S_advancing", bound=State)


class Decoder(Protocol[S]):
    """Whatever says which token comes next: an RNN, a Transformer, a table in a test."""

    def step(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Read one token per row, (R,) int64; return the logits of the next one, (R, V), and the state after it."""
        ...


@runtime_checkable
class Advancing(Protocol[S_advancing]):
    """A decoder that can read many tokens at once, as a Transformer reads a prompt. Optional: `step` is enough."""

    def advance(self, tokens: Tensor, state: S_advancing) -> tuple[Tensor, S_advancing]:
        """Read (R, P) tokens; return the features of each, (R, P, width), and the state after the last of them."""
        ...


class DelayedFlag:
    """Asks "is everything done?" after each step without making the GPU wait for the answer.

    The CPU runs ahead of the GPU: while one step is computed the next is already being queued. Reading a flag at once
    would stall the queue at every token. So on a GPU the flag sets off for the CPU and the answer is that of the call
    before, which has long arrived; the price is one step too many at the end. On a CPU nothing waits: read at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.behind = device.type == "cuda"
        self._arrived = torch.Event(device) if self.behind else None
        self._answer = torch.zeros((), dtype=torch.bool, pin_memory=self.behind)

    def __call__(self, flag: Tensor) -> bool:
        if self._arrived is None:
            return bool(flag)
        self._arrived.synchronize()  # returns at once before the first record
        answer = bool(self._answer)
        self._answer.copy_(flag, non_blocking=True)
        with torch.cuda.device_of(flag):  # an event is recorded on a stream of the current device
            self._arrived.record()
        return answer
