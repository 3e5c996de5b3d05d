"""The protocols of decoding: a decoder takes a step, and a state lets the rows of the batch be selected."""

from typing import Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor

NEG_INF = float("-inf")  # the logit, and the log-probability, of a token that cannot occur
PAD = 0  # the token of a finished row, in every vocabulary: no caller reads the tokens after the end of a row


class State(Protocol):
    """Everything that a decoder carries from one step to the next: hidden vectors, a KV cache, the encoded source.

    A state has R rows, one for each hypothesis. A step takes a state and returns the next one. It may write into the
    buffers of the state that it was given, so the caller must not use that state again.
    """

    def select(self, rows: Tensor) -> Self:
        """The state whose row i is this state's row `rows[i]`, which must belong to the same sentence as row i.

        Beam search uses this to drop a hypothesis and to duplicate another. The rows of a sentence are neighbours, and
        every sentence has the same number of rows: of R rows for B sentences, sentence b has rows b·R/B to
        (b + 1)·R/B - 1, before and after. Within its sentence a row may be dropped, moved or repeated. So what is
        the same for a whole sentence (the encoded source, for example) is stored once and does not move. `select`
        cannot drop a sentence or change the order of sentences; such `rows` are not allowed, and are not checked.
        """
        ...


@runtime_checkable
class DropsSentences(Protocol):
    """A state that can drop sentences. Optional: a search on a CPU then stops computing those that are done."""

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        ...

    def keep(self, sentences: Tensor, rows: Tensor) -> Self:
        """The state of these sentences alone, (n,) numbers; `rows` are the numbers of all rows that they have."""
        ...


@runtime_checkable
class SumsWeights(Protocol):
    """A state that can sum the attention weights of all steps. Optional: a coverage penalty needs it."""

    def with_coverage(self) -> Self:
        """The state before the first token, whose later states sum the weights."""
        ...

    def log_coverage(self) -> Tensor:
        """(R,) Σⱼ ln min(Σₜ wₜⱼ, 1), with wₜⱼ the weight of source position j at step t (Wu et al. 2016, eq. 14)."""
        ...


@runtime_checkable
class HiddenState(Protocol):
    """A state with the hidden vectors of a recurrent decoder. Optional: pictures then show them as its state."""

    @property
    def hidden(self) -> Tensor:
        """(R, layers, parts, width), of the last token read."""
        ...


S = TypeVar("S", bound=State)


def drop_finished(done: Tensor, state: S, beams: int = 1) -> tuple[Tensor, Tensor, S] | None:
    """The sentences that are not done, (n,), their rows and their state, if a search should drop the others.

    On a CPU a sentence that is done costs as much as the others. Dropping it copies the state of the rest, so this pays
    when half of the sentences are done. On a GPU the shapes of a step must not change.
    """
    if done.device.type != "cpu" or not isinstance(state, DropsSentences) or state.sentences != len(done):
        return None
    going = (~done).nonzero()[:, 0]
    rows = (going[:, None] * beams + torch.arange(beams)).flatten()
    return (going, rows, state.keep(going, rows)) if 2 * len(going) <= len(done) else None


def place(values: Tensor, sentences: Tensor, batch: int, fill: float) -> Tensor:
    """The values (n, …) of sentences in a new tensor of the whole batch; `fill` in the places of the others."""
    if len(sentences) == batch:
        return values.clone()
    return values.new_full((batch, *values.shape[1:]), fill).index_copy_(0, sentences, values)


class Decoder(Protocol[S]):
    """Any model that predicts the next token: an RNN, a Transformer, a table in a test."""

    def step(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Read one token per row, (R,) int64; return the logits of the next one, (R, V), and the state after it."""
        ...


@runtime_checkable
class Advancing(Protocol[S]):
    """A decoder that can read many tokens at once, as a Transformer reads a prompt. Optional: `step` is enough."""

    def advance(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Read (R, P) tokens; return the features of each, (R, P, width), and the state after the last of them."""
        ...


@runtime_checkable
class Preallocates(Protocol[S]):
    """A decoder whose states can get the buffers for all steps to come. Optional: a GPU can then capture its steps."""

    def preallocate(self, state: S, steps: int) -> S:
        """The state with a shape that does not change in the next `steps` steps."""
        ...


class DelayedFlag:
    """Reads a boolean flag after each step without making the CPU wait for the GPU.

    The CPU runs ahead of the GPU: while the GPU computes one step, the CPU already queues the next. Reading the flag at
    once would stall the queue at every token. So on a GPU the flag is copied to the CPU asynchronously, and a call
    returns the flag of the call before. The cost is one extra step at the end. On a CPU the flag is read at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.behind = device.type == "cuda"  # whether calls return the flag of the call before
        self._copied = torch.Event(device) if self.behind else None
        self._value = torch.zeros((), dtype=torch.bool, pin_memory=self.behind)

    def __call__(self, flag: Tensor) -> bool:
        if self._copied is None:
            return bool(flag)
        self._copied.synchronize()  # returns at once before the first record
        previous = bool(self._value)
        self._value.copy_(flag, non_blocking=True)
        with torch.cuda.device_of(flag):  # an event is recorded on a stream of the current device
            self._copied.record()
        return previous
