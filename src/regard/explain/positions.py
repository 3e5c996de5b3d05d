"""Why a Transformer needs positions, and which kinds of positions work on sequences longer than in training.

Attention is a sum over a set. Without positions, an encoder computes the same states for "dog bites man" as for "man
bites dog", only in another order. Positions can be added to the embeddings (sinusoids, a learned table; Vaswani et al.
2017, §3.5) or enter the attention scores (T5's bias: Raffel et al. 2020; relative keys: Shaw et al. 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.explain.experiment import IGNORE_INDEX, Experiment, TinyTransformer, train
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape

KINDS = ("none", "sinusoidal", "learned", "t5", "relative")
SYMBOLS = 12  # that a sequence is made of
OFFSET = 2  # the target is the symbol this many positions earlier
SHORTEST = 5
ROWS, RATE = 32, 1e-2  # a high rate, because T5's bias starts near 0 and must grow
SHAPE = Shape(width=48, heads=2, layers=1, inner=96, norm_place="post", dropout=0.0, furthest=16, buckets=16)


@dataclass(frozen=True)
class OrderSensitivity:
    """How much an encoder's states depend on the order of its input."""

    positions: str
    difference: float  # between the states of the reordered input and the reordered states of the input


@dataclass(frozen=True)
class Extrapolation:
    """The accuracy of a network on lengths up to and beyond those of training."""

    positions: str
    lengths: list[int]
    accuracy: list[float]  # at each of the lengths


@dataclass(frozen=True)
class Positions:
    """The results: sensitivity to order, sinusoids and a binary counter to compare, and extrapolation."""

    order: list[OrderSensitivity]
    encodings: list[list[float]]  # (positions, width) sinusoids
    counter: list[list[float]]  # (16, 4) the bits of 0 to 15, the highest first
    trained: int  # the longest length in training
    extrapolation: list[Extrapolation]


def run(trained: int = 16, lengths: Sequence[int] = (), steps: int = 300, seed: int = 1) -> Experiment[Positions]:
    """Runs both experiments with every kind of positions; ``lengths`` are those of the test."""
    lengths = sorted(lengths or {trained // 2, trained, trained * 3 // 2, 2 * trained, 3 * trained, 4 * trained})
    extrapolation = []
    for kind in KINDS:
        torch.manual_seed(seed)
        network = TinyTransformer(replace(SHAPE, positions=kind, context=max(lengths)), SYMBOLS)

        def sample_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            length = int(torch.randint(SHORTEST, trained + 1, (), generator=generator))
            return lookback_batch(length, ROWS, generator)

        yield from train(kind, network, sample_batch, steps, seed, RATE)
        extrapolation.append(Extrapolation(kind, list(lengths), [_accuracy(network.eval(), n, seed) for n in lengths]))
    order = [OrderSensitivity(kind, order_difference(kind, seed)) for kind in KINDS]
    return Positions(order, sinusoids(torch.arange(20), 48).tolist(), counter().tolist(), trained, extrapolation)


def order_difference(kind: str, seed: int = 1) -> float:
    """The largest difference between the states of "dog bites man" and the reordered states of "man bites dog".

    The network has two layers and is not trained.
    """
    torch.manual_seed(seed)
    network = TinyTransformer(replace(SHAPE, layers=2, positions=kind, context=8), SYMBOLS).double().eval()
    order = torch.tensor([2, 1, 0])
    words = torch.tensor([[4, 5, 6]])  # man bites dog
    with torch.no_grad():
        return (network.states(words[:, order]) - network.states(words)[:, order]).abs().max().item()


def counter(bits: int = 4) -> Tensor:
    """The bits of 0, 1, 2, …, (2^bits, bits): the last bit changes at every step, the one before at every second."""
    numbers = torch.arange(2**bits)[:, None]
    return (numbers >> torch.arange(bits - 1, -1, -1) & 1).float()


def lookback_batch(length: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random symbols, (B, T), and as targets the symbols two positions earlier."""
    tokens = torch.randint(SYMBOLS, (rows, length), generator=generator)
    targets = tokens.roll(OFFSET, dims=1)
    targets[:, :OFFSET] = IGNORE_INDEX
    return tokens, targets


@torch.no_grad()
def _accuracy(network: TinyTransformer, length: int, seed: int) -> float:
    tokens, targets = lookback_batch(length, 64, torch.Generator().manual_seed(2**40 + seed))
    right = network(tokens).argmax(dim=-1) == targets
    return (right.sum() / (targets != IGNORE_INDEX).sum()).item()
