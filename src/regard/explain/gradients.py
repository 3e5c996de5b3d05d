"""Vanishing gradients: how far back a network can learn from.

One symbol of a sequence of random symbols is marked, and at the end the network must name it. Shown is the size of the
gradient of the output with respect to each input, against the distance between input and output, before and after
training. If it is almost 0, training cannot learn from that input. All networks train for the same number of steps.

In a plain RNN the gradient shrinks by about the same factor at every step back in time (Bengio et al. 1994). An LSTM
can learn to set its gates so that the gradient is preserved (Hochreiter & Schmidhuber 1997); this takes some hundred
steps. Attention connects the output to every input by a path of length one, also before training (Bahdanau et al.
2015). In a Transformer all paths are of this kind (Vaswani et al. 2017). In a temporal convolutional
network (TCN) every layer covers twice the distance of the layer below it, so the number of layers between two positions
grows with the logarithm of their distance (Bai et al. 2018).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention
from regard.explain.experiment import TinyTransformer, accuracy, train, training_of
from regard.explain.options import GradientsOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.recurrent import Recurrent
from regard.layers.transformer import Shape
from regard.mask import CAUSAL
from regard.models import TcnConfig
from regard.report.sections import Curve, Line, Section, Table
from regard.scores import Additive

READING = """
RNN: each step back in time multiplies the gradient by about the same factor. Before training almost nothing is left of
it at the first input, and the network does not learn the task: its accuracy is that of chance. After training the
gradient is still small; its form then depends on the seed, and with some seeds it grows again towards the first inputs.

LSTM: before training it is not much better. It learns to set its gates so that the gradient is preserved, and then it
recalls every symbol. For longer sequences it needs more steps.

LSTM + attention: attention is a path of length one to every state. Even before training, the gradient does not depend
on the distance, beyond the first few steps.

Transformer: all its paths are of this kind. Before training, the output depends most on its own position, because of
the residual connections, and about equally on all others.

TCN: few layers are between two positions, so before training the gradient of a distant input is far larger than that of
the RNN and the LSTM. It goes up and down with the distance, because more paths lead to some inputs than to others, and
it is smallest at the most distant inputs. But each distance has its own weights, and all of them must be learned: this
task takes more steps than in the other networks (steps=1000).
"""
SYMBOLS = 8  # that a sequence is made of
WIDTH = 32
KERNEL = 3  # of the TCN
ROWS = 32
DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)


class RecurrentRecall(nn.Module):
    """A recurrent network that predicts the marked symbol from its last state, with or without attention to all."""

    def __init__(self, cell: str, attention: bool, width: int = WIDTH) -> None:
        super().__init__()
        self.embedding = nn.Linear(SYMBOLS + 1, width)  # the one-hot symbol, and 1 if it is marked
        self.rnn = Recurrent(cell, width, width)
        self.attention = Attention(Additive(width, width, width)) if attention else None
        self.readout = nn.Linear(2 * width if attention else width, SYMBOLS)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, symbols + 1) → logits of the recalled symbol (B, 1, symbols)"""
        states, _ = self.rnn(self.embedding(inputs))
        last = states[:, -1:]
        if self.attention is not None:
            last = torch.cat([last, self.attention(last, self.attention.memory(states))], dim=-1)
        return self.readout(last)


class TransformerRecall(TinyTransformer):
    """A small causal Transformer for the same task."""

    def __init__(self, length: int) -> None:
        shape = Shape(WIDTH, heads=4, layers=2, inner=2 * WIDTH, context=length, positions="sinusoidal", dropout=0.0)
        super().__init__(shape, SYMBOLS, CAUSAL, nn.Linear(SYMBOLS + 1, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, symbols + 1) → logits of the recalled symbol (B, 1, symbols)"""
        return super().forward(inputs)[:, -1:]


class TcnRecall(nn.Module):
    """A temporal convolutional network for the same task, with as many layers as its receptive field needs."""

    def __init__(self, length: int) -> None:
        super().__init__()
        layers = math.ceil(math.log2((length - 1) / (2 * (KERNEL - 1)) + 1)) or 1
        config = TcnConfig(
            numbers=SYMBOLS + 1,
            width=WIDTH,
            embed=WIDTH,
            layers=layers,
            kernel=KERNEL,
            dropout=0.0,
            embedding_dropout=0.0,
        )
        self.body = config.build_body()
        self.readout = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, symbols + 1) → logits of the recalled symbol (B, 1, symbols)"""
        features, _ = self.body.advance(inputs, self.body.start(rows=len(inputs)))
        return self.readout(features[:, -1:])


NETWORKS: dict[str, tuple[Callable[[int], nn.Module], float]] = {  # a function of the sequence length; learning rate
    "RNN": (lambda _: RecurrentRecall("rnn", attention=False), 2e-2),
    "LSTM": (lambda _: RecurrentRecall("lstm", attention=False), 2e-2),
    "LSTM + attention": (lambda _: RecurrentRecall("lstm", attention=True), 2e-2),
    "Transformer": (TransformerRecall, 2e-2),
    "TCN": (TcnRecall, 1e-2),  # with 2e-2 its units die: their ReLU is 0 for every input
}


@dataclass(frozen=True)
class GradientNorms:
    """The gradient norms of a network by distance: item d is for the input d steps before the last."""

    name: str
    before: list[float]  # ‖∂logit/∂input‖ before training, mean over sequences
    after: list[float]  # the same after training
    accuracy: float  # of the recall, after training; chance is 1 / 8
    steps: int  # of training


def run(options: GradientsOptions, report: Report = no_report) -> Result:
    """Measures the gradient norms of each network before and after training on the recall task."""
    length, steps, seed = options.length, options.steps, options.seed
    networks = []
    for name, (build, rate) in NETWORKS.items():
        torch.manual_seed(seed)
        network = build(length)
        before = gradient_norms(network, length, seed)
        train(name, network, lambda generator: sample_batch(length, ROWS, generator), steps, seed, rate, report)
        inputs, targets = sample_batch(length, 1024, _generator(seed, "test"))
        with torch.no_grad():
            recalled = accuracy(network(inputs), targets)
        networks.append(GradientNorms(name, before, gradient_norms(network, length, seed), recalled, steps))
    rows = [(one.name, f"{one.accuracy:.1%}", one.steps, one.before[-1], one.after[-1]) for one in networks]
    columns = ["network", "accuracy", "training steps", "first input,\nbefore training", "first input,\nafter training"]
    note = (
        f"Chance is {1 / SYMBOLS:.1%}. The last two columns are ‖∂logit/∂input‖ for the first input, which is the most "
        "distant one."
    )
    sections: list[Section] = [
        prose(__doc__),
        *_before_or_after("before training", [(one.name, one.before) for one in networks]),
        *_before_or_after("after training", [(one.name, one.after) for one in networks]),
        Table("Accuracy of the recall", columns, rows, note),
        reading(READING, options),
    ]
    data = {"length": length, "steps": steps, "seed": seed, "networks": networks}
    about = (
        f"Five networks of width {WIDTH}, each {training_of(steps, seed)}. The task is to recall the marked one of "
        f"{length} random symbols at the end of the sequence. There are {SYMBOLS} symbols, so chance is "
        f"{1 / SYMBOLS:.1%}."
    )
    return Result("Vanishing gradients", about, data, sections)


def _before_or_after(when: str, norms: list[tuple[str, list[float]]]) -> list[Curve | Table]:
    """The gradient norms of all networks by distance: a curve, and a table for some distances."""
    length, title = len(norms[0][1]), f"‖∂logit/∂input‖ by distance, {when}"
    lines = [Line(name, range(length), values) for name, values in norms]
    rows = [
        [str(distance), *(f"{values[distance]:.1e}" for _, values in norms)]
        for distance in sorted({*(d for d in DISTANCES if d < length), length - 1})
    ]
    curve = Curve(when.capitalize(), "distance between input and output", "‖∂logit/∂input‖", lines, log_y=True)
    return [curve, Table(title, ["distance", *(name for name, _ in norms)], rows)]


def sample_batch(length: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random sequences, (B, T, symbols + 1), each with one marked symbol; as targets the marked symbols, (B, 1)."""
    symbols = torch.randint(SYMBOLS, (rows, length), generator=generator)
    marked = torch.randint(length, (rows, 1), generator=generator)
    is_marked = torch.zeros(rows, length).scatter(1, marked, 1.0)
    inputs = torch.cat([F.one_hot(symbols, SYMBOLS).float(), is_marked[..., None]], dim=-1)
    return inputs, symbols.gather(1, marked)


def gradient_norms(network: nn.Module, length: int, seed: int) -> list[float]:
    """‖∂ logit of the correct symbol / ∂ input‖ for every input, the last first: mean over a batch."""
    inputs, targets = sample_batch(length, 4 * ROWS, _generator(seed, "gradients"))
    inputs.requires_grad_()
    network(inputs).gather(-1, targets[..., None]).sum().backward()
    network.zero_grad()
    assert inputs.grad is not None
    return inputs.grad.norm(dim=-1).mean(dim=0).flip(0).tolist()  # (B, T, D) → (T,)


def _generator(seed: int, use: str) -> torch.Generator:
    """A random generator for each use, which differs from the generator of training (seeded with ``seed``)."""
    return torch.Generator().manual_seed(2**40 + 2 * seed + ("gradients", "test").index(use))
