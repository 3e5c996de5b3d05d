"""How far back a network can learn from: the gradient of its last answer at every earlier input.

The task is recall: somewhere in a row of random symbols one is marked, and at the end the network must name it. In a
plain RNN the gradient shrinks by about the same factor at every step back (Bengio et al. 1994); an LSTM's gates let it
pass (Hochreiter & Schmidhuber 1997); attention is a path of length one to every input (Bahdanau et al. 2015), and a
Transformer has no other (Vaswani et al. 2017).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention
from regard.explain.small import Experiment, learn
from regard.layers.recurrent import Recurrent
from regard.layers.tokens import TokenEmbedding
from regard.layers.transformer import Shape, Stack
from regard.mask import CAUSAL
from regard.scores import Additive

SYMBOLS = 8  # to be recalled
WIDTH = 32
ROWS, RATE = 32, 2e-2


class Recaller(nn.Module):
    """Reads a row of inputs and answers at its end; with attention it may look back at every state."""

    def __init__(self, cell: str, attention: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(SYMBOLS + 1, WIDTH)  # symbols one-hot, and the mark
        self.rnn = Recurrent(cell, WIDTH, WIDTH)
        self.attention = Attention(Additive(WIDTH, WIDTH, WIDTH)) if attention else None
        self.readout = nn.Linear(2 * WIDTH if attention else WIDTH, SYMBOLS)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, symbols + 1) → logits of the recalled symbol (B, 1, symbols)"""
        states, _ = self.rnn(self.embedding(inputs))
        last = states[:, -1:]
        if self.attention is not None:
            last = torch.cat([last, self.attention(last, self.attention.memory(states))], dim=-1)
        logits: Tensor = self.readout(last)
        return logits


class Transformer(nn.Module):
    """The same with a small causal Transformer, as GPT is one: nothing is carried along, everything is looked up."""

    def __init__(self, length: int) -> None:
        super().__init__()
        shape = Shape(WIDTH, heads=4, layers=2, inner=2 * WIDTH, context=length, positions="sinusoidal", dropout=0.0)
        self.embedding = TokenEmbedding(shape, 0, tokens=nn.Linear(SYMBOLS + 1, WIDTH))
        self.stack = Stack(shape, causal=True)
        self.readout = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, symbols + 1) → logits of the recalled symbol (B, 1, symbols)"""
        places = torch.arange(inputs.shape[1])[None]
        logits: Tensor = self.readout(self.stack(self.embedding(inputs, places), mask=CAUSAL)[:, -1:])
        return logits


NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # by the length of what they read
    "RNN": lambda _: Recaller("rnn", attention=False),
    "LSTM": lambda _: Recaller("lstm", attention=False),
    "LSTM + attention": lambda _: Recaller("lstm", attention=True),
    "Transformer": Transformer,
}


@dataclass(frozen=True)
class Reach:
    """How a network's last answer depends on each input, by distance: item d is the input d steps before the last."""

    name: str
    before: list[float]  # ‖∂logit/∂input‖, mean over rows, at the first weights
    after: list[float]  # … and after training
    accuracy: float  # of the recall, after training; chance is 1 / 8
    steps: int  # of training: the same for all


def gradients(length: int = 40, steps: int = 300, seed: int = 1) -> Experiment[list[Reach]]:
    """Each network before and after so many steps of learning to recall."""
    found = []
    for name, build in NETWORKS.items():
        torch.manual_seed(seed)
        network = build(length)
        before = reach(network, length, seed)
        yield from learn(name, network, lambda chance: examples(length, ROWS, chance), steps, seed, RATE)
        inputs, answers = examples(length, 1024, _chance(seed, "test"))
        with torch.no_grad():
            accuracy = (network(inputs).argmax(dim=-1) == answers).float().mean().item()
        found.append(Reach(name, before, reach(network, length, seed), accuracy, steps))
    return found


def examples(length: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of random symbols, (B, T, symbols + 1), one marked at a random place; the marked symbol of each, (B, 1)."""
    symbols = torch.randint(SYMBOLS, (rows, length), generator=generator)
    read_pointer = torch.randint(length, (rows, 1), generator=generator)
    marks = torch.zeros(rows, length).scatter(1, read_pointer, 1.0)
    inputs = torch.cat([F.one_hot(symbols, SYMBOLS).float(), marks[..., None]], dim=-1)
    return inputs, symbols.gather(1, read_pointer)


def reach(network: nn.Module, length: int, seed: int) -> list[float]:
    """‖∂ logit of the right symbol / ∂ input‖ of every input, the last first: mean over a batch."""
    inputs, answers = examples(length, 4 * ROWS, _chance(seed, "reach"))
    inputs.requires_grad_()
    network(inputs).gather(-1, answers[..., None]).sum().backward()
    network.zero_grad()
    assert inputs.grad is not None
    norms: list[float] = inputs.grad.norm(dim=-1).mean(dim=0).flip(0).tolist()  # (B, T, D) → (T,)
    return norms


def _chance(seed: int, use: str) -> torch.Generator:
    """Random numbers of their own for each use, all of them from the one seed; training has the seed itself."""
    return torch.Generator().manual_seed(2**40 + 2 * seed + ("reach", "test").index(use))
