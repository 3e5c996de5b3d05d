"""Why a Transformer needs positions, and how far they extrapolate.

Attention is a sum over a set, so it does not depend on the order of the words. Without positions, an encoder computes
the same states for “dog bites man” as for “man bites dog”, only in another order. So a Transformer needs positions.
They can be a vector that is added to each embedding (sinusoids, or a learned table; Vaswani et al. 2017, §3.5), or a
term in the attention scores (T5's bias: Raffel et al. 2020; relative keys: Shaw et al. 2018).

Sinusoids are similar to a binary counter. The lowest bit of a counter changes at every step, the next bit at every
second step, the next at every fourth. The dimensions of a sinusoidal encoding change smoothly: the first ones by one
radian per step, the last ones by about a ten-thousandth of that. The picture has positions 0 to 19 from left to right
and dimensions 0 to 99 from top to bottom.

Small encoders with each kind of positions learn a task that depends on positions: predict the symbol two positions
earlier. They train on short texts and are tested on texts up to four times as long. A learned table has no trained
entries beyond the lengths of training. Sinusoids exist at any length, but the network has not learned to use the larger
positions. T5's bias and relative keys depend only on the distance, and training covers every distance that the task
needs.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.data.batches import IGNORED
from regard.explain.experiment import TinyTransformer, accuracy, sizes_of, train, training_of
from regard.explain.options import PositionsOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.positions import sinusoids
from regard.layers.transformer import Shape
from regard.report.sections import Curve, Heatmap, Heatmaps, Line, Section, Table

READING = """
Sinusoids exist at any length, so one may expect them to extrapolate. After the default training they do
only a little better than the learned table. T5's bias loses some accuracy: in a longer text, a small bias competes with
more words. Without positions the network can only name a symbol that occurs in the text.
"""
KINDS = ("none", "sinusoidal", "learned", "t5", "relative")
SYMBOLS = 12  # that a sequence is made of
OFFSET = 2  # the target is the symbol this many positions earlier
SHORTEST = 5
ROWS, RATE = 32, 1e-2  # a high rate, because T5's bias starts near 0 and must grow
SHAPE = Shape(width=48, heads=2, layers=1, inner=96, norm_place="post", dropout=0.0, furthest=16, buckets=16)


@dataclass(frozen=True)
class Extrapolation:
    """The accuracy of a network on lengths up to and beyond those of training."""

    positions: str
    lengths: list[int]
    accuracy: list[float]  # at each of the lengths


def run(options: PositionsOptions, report: Report = no_report) -> Result:
    """Compares the states of reordered words, and tests encoders on texts that are longer than in training."""
    trained, seed = options.length, options.seed
    lengths = sorted(options.lengths or {trained * part // 2 for part in (1, 2, 3, 4, 6, 8)})

    def sample(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        length = int(torch.randint(SHORTEST, trained + 1, (), generator=generator))
        return lookback_batch(length, ROWS, generator)

    found = []
    for kind in KINDS:
        torch.manual_seed(seed)
        network = TinyTransformer(replace(SHAPE, positions=kind, context=max(lengths)), SYMBOLS)
        train(kind, network, sample, options.steps, seed, RATE, report)
        found.append(Extrapolation(kind, lengths, [_test(network.eval(), length, seed) for length in lengths]))
    order = {kind: order_difference(kind, seed) for kind in KINDS}
    rows = [[one.positions, *(f"{accuracy:.1%}" for accuracy in one.accuracy)] for one in found]
    lines = [Line(one.positions, lengths, [100 * accuracy for accuracy in one.accuracy]) for one in found]
    lines.append(Line("chance", lengths, [100 / SYMBOLS] * len(lengths)))
    encodings = sinusoids(torch.arange(20), 100).T  # (dimensions, positions)
    sections: list[Section] = [
        prose(__doc__),
        Table(
            "Difference: states(dog bites man) − reordered states(man bites dog)",
            ["positions", "difference"],
            [[kind, f"{difference:.1e}"] for kind, difference in order.items()],
        ),
        Heatmaps(
            "Sinusoids and a binary counter",
            [
                Heatmap("sinusoidal encodings, width 100", "position", "dimension", encodings.numpy(), side=7),
                Heatmap("binary counter", "position", "bit", counter().T.numpy(), ["8", "4", "2", "1"], side=14),
            ],
        ),
        Curve("Texts longer than in training", "length of the text", "accuracy, %", lines, ends=(0, 100)),
        Table(
            f"Accuracy after training on lengths up to {trained} (chance: {1 / SYMBOLS:.1%})",
            ["positions", *(f"length\n{length}" for length in lengths)],
            rows,
        ),
        reading(READING, options),
    ]
    data = {"trained": trained, "steps": options.steps, "seed": seed, "order": order, "extrapolation": found}
    about = (
        f"{len(KINDS)} encoders ({sizes_of(SHAPE)}), one for each kind of positions, each "
        f"{training_of(options.steps, seed)}. The task is to predict, at every position, the symbol {OFFSET} positions "
        f"earlier in a text of random symbols, each one of {SYMBOLS}. They train on lengths {SHORTEST} to {trained}. "
        f"Chance is {1 / SYMBOLS:.1%}; a network without positions can still name a symbol of the text, which is "
        "better than chance in short texts."
    )
    return Result("Positions", about, data, sections)


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


def lookback_batch(
    length: int, rows: int, generator: torch.Generator, offset: int = OFFSET, symbols: int = SYMBOLS
) -> tuple[Tensor, Tensor]:
    """Random symbols, (B, T), and as targets the symbols ``offset`` positions earlier."""
    tokens = torch.randint(symbols, (rows, length), generator=generator)
    targets = tokens.roll(offset, dims=1)
    targets[:, :offset] = IGNORED
    return tokens, targets


@torch.no_grad()
def _test(network: TinyTransformer, length: int, seed: int) -> float:
    tokens, targets = lookback_batch(length, 64, torch.Generator().manual_seed(2**40 + seed))
    return accuracy(network(tokens), targets)
