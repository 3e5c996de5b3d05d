"""Small networks that learn while you wait: one Transformer made of the library's layers, one loop."""

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

IGNORED = -100  # targets that do not count

T = TypeVar("T")
Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # fresh tokens (B, T) and their targets (B, T)


@dataclass(frozen=True)
class Going:
    """An experiment on its way: which of its networks, how far, how well."""

    what: str
    step: int
    steps: int
    loss: float


Experiment = Generator[Going, None, T]  # tells how it goes, and returns what it found


def finished(experiment: Experiment[T]) -> T:
    """What an experiment found, once it is over."""
    while True:
        try:
            next(experiment)
        except StopIteration as end:
            found: T = end.value
            return found


@contextmanager
def one_thread() -> Iterator[None]:
    """What is small is not shared out: threads would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Reader(nn.Module):
    """Tokens in, logits of a token at every place out: the causal mask makes it a language model, none an encoder."""

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
        """What the stack makes of tokens (B, T), seen through its own mask or another: (B, T, width)"""
        at = torch.arange(tokens.shape[1], device=tokens.device)[None]
        states: Tensor = self.stack(self.embedding(tokens, at), mask=self.mask if mask is None else mask)
        return states


def learn(what: str, network: nn.Module, draw: Draw, steps: int, seed: int, rate: float = 3e-3) -> Experiment[float]:
    """Adam on fresh examples, its rate rising for a tenth of the steps and then falling to nothing; the last loss.

    The loss is a mean over the last twentieth of the steps, in nats.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.98))
    generator, losses = torch.Generator().manual_seed(seed), deque[float](maxlen=max(1, steps // 20))
    for step in range(1, steps + 1):
        with one_thread():
            for group in optimizer.param_groups:
                group["lr"] = rate * min(10 * step / steps, (steps - step + 1) / steps * 10 / 9, 1.0)
            tokens, targets = draw(generator)
            optimizer.zero_grad()
            loss = F.cross_entropy(network(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        yield Going(what, step, steps, losses[-1])
    return sum(losses) / len(losses) if losses else math.nan
