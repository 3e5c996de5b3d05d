"""The receptive field of a TCN: how far back an output sees.

A causal convolution with kernel k reads k positions: its own and k − 1 earlier ones. With a dilation d these positions
are d apart, so the convolution reaches (k − 1)·d positions back. A temporal convolutional network (TCN, Bai et al.
2018) is a stack of blocks. Each block has two convolutions, and its dilation is twice that of the block before: 1, 2, 4
and so on. The positions that an output depends on are its receptive field: 1 + 2·(k − 1)·(2^blocks − 1) positions, its
own included. Contiguous convolutions (d = 1) in place of these would reach only 1 + 2·(k − 1)·blocks positions.

Shown are the field by the formula, the connections from one output down to its inputs, and a proof by gradients: the
inputs that have a gradient different from 0 at one output are exactly those of the receptive field.

Then networks with this field are trained to name the symbol that is a fixed distance back. At the largest distance
inside the field the task can be learned. One position further, the output does not depend on the symbol, and no
training can help: the accuracy is that of chance.
"""

from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn

from regard.explain.experiment import accuracy, train, training_of
from regard.explain.options import ReceptiveOptions
from regard.explain.positions import lookback_batch
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.models import TcnConfig
from regard.report.sections import Connections, Curve, Line, Section, Table

READING = """
The field about doubles with every block, so the number of blocks grows with the logarithm of the distance. Parameters
and operations grow only with the number of blocks.

With the default options the network names every symbol inside the field; outside it, its accuracy is that of chance. A
recurrent network and a Transformer have no such limit. If the data have dependencies over a known distance, choose
`model.layers` and `model.kernel` so that the field is larger. The field is only a limit: with other options, such as
kernel 2 with 3 blocks, some distances inside it are not learned in these few steps.
"""
SYMBOLS, WIDTH = 8, 32
ROWS, RATE = 16, 5e-3
MARGIN = 4  # positions outside of the field that the proof has on each side
WIDEST = 56  # the most positions of a drawn field


class Tcn(nn.Module):
    """A temporal convolutional network over symbols, with logits at every position."""

    def __init__(self, kernel: int, layers: int) -> None:
        super().__init__()
        sizes = (SYMBOLS, WIDTH, WIDTH, layers, kernel)
        # tied embeddings start small, with which the farthest symbols are learnt in few steps
        self.model = TcnConfig(*sizes, dropout=0.0, embedding_dropout=0.0, tied=True).build()

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → (B, T, symbols)"""
        features, _ = self.model.advance(tokens, self.model.start(rows=len(tokens)))
        return self.model.readout(features)


@dataclass(frozen=True)
class BlockField:
    """The receptive field after a block, in positions."""

    block: int  # from 1
    dilation: int
    reach: int  # how far back the two convolutions of the block reach
    field: int  # by the formula
    contiguous: int  # the field of as many convolutions without dilation
    measured: int  # the inputs with a gradient different from 0


@dataclass(frozen=True)
class Distance:
    """The result of a network that names the symbol ``distance`` positions back."""

    distance: int
    inside: bool  # whether the distance is inside the receptive field
    loss: float
    accuracy: float


def run(options: ReceptiveOptions, report: Report = no_report) -> Result:
    """Computes, draws and proves the receptive field of a TCN, and trains networks on distances inside and outside."""
    kernel, layers, steps, seed = options.kernel, options.layers, options.steps, options.seed
    fields = [TcnConfig(kernel=kernel, layers=blocks).receptive_field for blocks in range(1, layers + 1)]
    proofs = [gradient_positions(kernel, blocks, seed) for blocks in range(1, layers + 1)]
    blocks = [
        BlockField(at + 1, 2**at, 2 * (kernel - 1) * 2**at, field, 1 + 2 * (kernel - 1) * (at + 1), len(proof))
        for at, (field, proof) in enumerate(zip(fields, proofs))
    ]
    field, counted = fields[-1], f"{layers} block{'s' * (layers > 1)}"
    distances = [learn(kernel, layers, at, steps, seed, report) for at in distances_around(field)]
    sections: list[Section] = [
        prose(__doc__),
        Table(
            f"Kernel {kernel}, {counted}",
            [
                *("block", "dilation", "reaches back\nby", "field:\nformula", "the same,\ncontiguous"),
                "field:\ngradients ≠ 0",
            ],
            [astuple(one) for one in blocks],
            f"The gradient at one output is not 0 for {len(proofs[-1])} inputs, from {-proofs[-1][0]} to "
            f"{-proofs[-1][-1]} positions back. It is exactly 0 for the {MARGIN} inputs before them and for the "
            f"{MARGIN} inputs after the output. The input is random and the network is not trained.",
        ),
        *([connections(kernel, layers)] if field <= WIDEST else []),
        Curve(
            "Accuracy against distance",
            "distance of the symbol, in positions",
            "accuracy",
            [
                Line("TCN", [one.distance for one in distances], [one.accuracy for one in distances]),
                Line("chance", [one.distance for one in distances], [1 / SYMBOLS] * len(distances)),
            ],
            ends=(0, 1),
        ),
        Table(
            f"Naming the symbol that is a distance back; the field has {field} positions",
            ["distance", "in the field", "loss", "accuracy"],
            [
                [one.distance, "yes" if one.inside else "no", f"{one.loss:.3f}", f"{one.accuracy:.1%}"]
                for one in distances
            ],
            f"Each row is a network of its own. Chance is {1 / SYMBOLS:.1%}. At distance 0 an output names its own "
            f"input, so a field of {field} positions ends at distance {field - 1}.",
        ),
        reading(READING, options),
    ]
    data = {
        **{"kernel": kernel, "layers": layers, "steps": steps, "seed": seed, "receptive_field": field},
        **{"blocks": blocks, "gradient_positions": proofs[-1], "chance": 1 / SYMBOLS, "distances": distances},
    }
    about = (
        f"Temporal convolutional networks of width {WIDTH} with kernel {kernel} and {counted}; the networks of "
        f"the last table are {training_of(steps, seed)}. Their task is to name, at every position, the symbol that is "
        f"a fixed distance back in random symbols. There are {SYMBOLS} symbols, so chance is {1 / SYMBOLS:.1%}."
    )
    return Result("The receptive field", about, data, sections)


def gradient_positions(kernel: int, layers: int, seed: int) -> list[int]:
    """The inputs with a gradient at one output, as positions relative to it: 0 is its own, −1 the one before.

    The network has random weights, in float64. A unit with a ReLU can be 0 by accident and hide an input, so several
    random sequences are read, and an input counts if one of them has a gradient there.
    """
    torch.manual_seed(seed)
    config = TcnConfig(numbers=1, width=WIDTH, embed=WIDTH, layers=layers, kernel=kernel)
    model, at = config.build_body().double().eval(), MARGIN + config.receptive_field - 1
    inputs = torch.randn(4, at + 1 + MARGIN, 1, dtype=torch.float64, requires_grad=True)
    features, _ = model.advance(inputs, model.start(rows=len(inputs)))
    (gradient,) = torch.autograd.grad(features[:, at].sum(), inputs)
    return [place - at for place in (gradient != 0).any(dim=2).any(dim=0).nonzero().flatten().tolist()]


def connections(kernel: int, layers: int) -> Connections:
    """The connections from the last output down to its inputs, convolution by convolution."""
    field, names, links = TcnConfig(kernel=kernel, layers=layers).receptive_field, ["output"], []
    reached = {field - 1}
    for block in reversed(range(layers)):
        for convolution in (2, 1):
            pairs = [(at, at - tap * 2**block) for at in sorted(reached) for tap in range(kernel)]
            reached = {below for _, below in pairs}
            links.append(pairs)
            names.append(f"block {block + 1}, convolution {convolution - 1}" if convolution > 1 else f"block {block}")
    names[-1] = "input"
    return Connections("From one output to its inputs", names, field, links)


def distances_around(field: int) -> list[int]:
    """Distances in the field and behind its end."""
    return sorted({max(1, field // 2), max(1, field - 2), field - 1, field, field + 1})


def learn(kernel: int, layers: int, distance: int, steps: int, seed: int, report: Report = no_report) -> Distance:
    """Trains a network to name the symbol at a distance, and tests it on new sequences."""
    torch.manual_seed(seed)
    network = Tcn(kernel, layers)

    def sample(generator: torch.Generator, rows: int = ROWS) -> tuple[Tensor, Tensor]:
        return lookback_batch(distance + 24, rows, generator, distance, SYMBOLS)

    loss = train(f"distance {distance}", network, sample, steps, seed, RATE, report)
    tokens, targets = sample(torch.Generator().manual_seed(2**40 + seed), 128)
    with torch.no_grad():
        right = accuracy(network(tokens), targets)
    return Distance(distance, distance < network.model.config.receptive_field, loss, right)
