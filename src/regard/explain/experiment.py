"""What the experiments share: a small Transformer, a training loop, and progress reports."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.tokens import TokenEmbedding
from regard.layers.transformer import Shape, Stack
from regard.mask import EVERYTHING, Mask

IGNORE_INDEX = -100  # targets with this value do not count in the loss

T = TypeVar("T")
SampleBatch = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # returns new tokens (B, T) and their targets (B, T)


@dataclass(frozen=True)
class Progress:
    """The state of training after a step: the network's name, the step and the loss."""

    name: str
    step: int
    steps: int
    loss: float


Experiment = Generator[Progress, None, T]  # yields its progress and returns its result


def result_of(experiment: Experiment[T]) -> T:
    """Runs an experiment to its end and returns its result."""
    while True:
        try:
            next(experiment)
        except StopIteration as end:
            result: T = end.value
            return result


@contextmanager
def single_thread() -> Iterator[None]:
    """Limits torch to one thread: for small tensors, several threads are slower than one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class TinyTransformer(nn.Module):
    """A small Transformer with logits at every position: a language model with a causal mask, else an encoder."""

    def __init__(self, shape: Shape, vocab: int, mask: Mask = EVERYTHING) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(shape, vocab)
        self.stack = Stack(shape, mask.causal)
        self.readout = nn.Linear(shape.width, vocab)
        self.mask = mask

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → (B, T, vocab)"""
        logits: Tensor = self.readout(self.states(tokens))
        return logits

    def states(self, tokens: Tensor, mask: Mask | None = None) -> Tensor:
        """The output of the stack for tokens (B, T), with its own mask or another: (B, T, width)"""
        at = torch.arange(tokens.shape[1], device=tokens.device)[None]
        states: Tensor = self.stack(self.embedding(tokens, at), mask=self.mask if mask is None else mask)
        return states


def train(
    name: str, network: nn.Module, sample_batch: SampleBatch, steps: int, seed: int, rate: float = 3e-3
) -> Experiment[float]:
    """Trains with Adam on new examples at every step, and returns the final loss in nats.

    The learning rate rises during the first tenth of the steps and then falls linearly to 0. The final loss is the mean
    over the last twentieth of the steps.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.98))
    generator, losses = torch.Generator().manual_seed(seed), deque[float](maxlen=max(1, steps // 20))
    for step in range(1, steps + 1):
        with single_thread():
            for group in optimizer.param_groups:
                group["lr"] = rate * min(10 * step / steps, (steps - step + 1) / steps * 10 / 9, 1.0)
            tokens, targets = sample_batch(generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORE_INDEX)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        yield Progress(name, step, steps, losses[-1])
    return sum(losses) / len(losses) if losses else math.nan
