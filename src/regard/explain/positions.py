"""What a Transformer knows of order: nothing, until it is told, and how far what it is told reaches.

Attention is a sum over a set. Without positions an encoder gives "dog bites man" the states of "man bites dog", only in
another order. What tells them apart may be added to the embeddings (sinusoids, a learned table; Vaswani et al. 2017,
§3.5) or to the comparison (T5's bias: Raffel et al. 2020; relative keys: Shaw et al. 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.explain.small import IGNORED, Experiment, Reader, learn
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape

KINDS = ("none", "sinusoidal", "learned", "t5", "relative")
SYMBOLS = 12  # of the task
BACK = 2  # the answer stands so many places before
SHORTEST = 5
ROWS, RATE = 32, 1e-2  # a high rate: T5's bias starts near nothing and must grow
SHAPE = Shape(width=48, heads=2, layers=1, inner=96, norm_place="post", dropout=0.0, furthest=16, buckets=16)


@dataclass(frozen=True)
class Order:
    """What becomes of an encoder's states when its input is put in another order."""

    positions: str
    difference: float  # between the states of the words in another order, and the states in that other order


@dataclass(frozen=True)
class Extrapolation:
    """A network that learnt at lengths up to ``trained``, tried at others."""

    positions: str
    lengths: list[int]
    accuracy: list[float]  # of every symbol, at each of the lengths


@dataclass(frozen=True)
class Positions:
    """All three: order, the picture of the encodings beside a binary counter, reach."""

    order: list[Order]
    encodings: list[list[float]]  # (positions, width) sinusoids
    counter: list[list[float]]  # (16, 4) the bits of 0 to 15, the highest first
    trained: int
    reach: list[Extrapolation]


def positions(trained: int = 16, lengths: Sequence[int] = (), steps: int = 300, seed: int = 1) -> Experiment[Positions]:
    """Every kind of positions in both experiments; ``lengths`` are those tried after training."""
    lengths = sorted(lengths or {trained // 2, trained, trained * 3 // 2, 2 * trained, 3 * trained, 4 * trained})
    reach = []
    for kind in KINDS:
        torch.manual_seed(seed)
        network = Reader(replace(SHAPE, positions=kind, context=max(lengths)), SYMBOLS)

        def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            length = int(torch.randint(SHORTEST, trained + 1, (), generator=generator))
            return recall(length, ROWS, generator)

        yield from learn(kind, network, draw, steps, seed, RATE)
        reach.append(Extrapolation(kind, list(lengths), [_accuracy(network.eval(), n, seed) for n in lengths]))
    order = [Order(kind, permuted(kind, seed)) for kind in KINDS]
    return Positions(order, sinusoids(torch.arange(20), 48).tolist(), counter().tolist(), trained, reach)


def permuted(kind: str, seed: int = 1) -> float:
    """How far the states of "dog bites man" are from those of "man bites dog" in that order, with first weights."""
    torch.manual_seed(seed)
    network = Reader(replace(SHAPE, layers=2, positions=kind, context=8), SYMBOLS).double().eval()
    order = torch.tensor([2, 1, 0])
    words = torch.tensor([[4, 5, 6]])  # man bites dog
    with torch.no_grad():
        return (network.states(words[:, order]) - network.states(words)[:, order]).abs().max().item()


def counter(bits: int = 4) -> Tensor:
    """(2^bits, bits) of 0 and 1: the last bit changes at every step, the one before it at every second …"""
    numbers = torch.arange(2**bits)[:, None]
    return (numbers >> torch.arange(bits - 1, -1, -1) & 1).float()


def recall(length: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random symbols, (B, T), and at every place the one that stood two places before."""
    tokens = torch.randint(SYMBOLS, (rows, length), generator=generator)
    targets = tokens.roll(BACK, dims=1)
    targets[:, :BACK] = IGNORED
    return tokens, targets


@torch.no_grad()
def _accuracy(network: Reader, length: int, seed: int) -> float:
    tokens, targets = recall(length, 64, torch.Generator().manual_seed(2**40 + seed))
    right = network(tokens).argmax(dim=-1) == targets
    return (right.sum() / (targets != IGNORED).sum()).item()
