"""Gates: what an LSTM and a GRU keep, write and erase.

A gate is a vector of numbers between 0 and 1, computed at each step from the input x and the state h: σ(Wx + Uh + b).
An LSTM (Hochreiter & Schmidhuber 1997) has a cell c beside its state. The forget gate f (Gers et al. 2000) says how
much of the cell is kept, the input gate i how much of the candidate g is written, and the output gate o how much of the
cell is shown in the state: c = f · (c before) + i · g, and h = o · tanh(c). A GRU (Cho et al. 2014) has no cell. Its
update gate z does two things at once, h = (1 − z) · n + z · (h before), and its reset gate r says how much of the state
the candidate n reads.

One symbol of a sequence of random symbols is marked, and at the end the network must name it. So the gates have a job:
to write the marked symbol, and to keep it while other symbols follow. Shown are one step by hand, the gates along a
sequence, their means at the marked symbol and at the others, and the accuracy if a gate is set to 0 or to 1 at all
steps. Each network is trained twice: with the initial biases of torch, and with chrono initialisation (Tallec &
Ollivier 2018), which sets the biases so that the state is kept for long from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.explain.by_hand import TOLERANCE
from regard.explain.experiment import accuracy, train, training_of
from regard.explain.gradients import ROWS, SYMBOLS, RecurrentRecall, sample_batch
from regard.explain.options import GatesOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.explain.worked import COLUMN, Derivation
from regard.layers.cells import MEANINGS, STATE, Gates
from regard.layers.recurrent import chrono_start
from regard.report.sections import Heatmap, Heatmaps, Interlinear, Section, Table

READING = """
LSTM: the input gate opens at the marked symbol. At the others it is lower, but not closed. The forget gate does not
stay near 1 throughout. At the marked symbol it is low: the cell is erased before it is written. After the mark it is
near 1, and the cell is kept up to the end. With the seeds 1 to 5, i is 0.78 to 0.98 at the mark and 0.24 to 0.66
elsewhere, and f is 0.15 to 0.24 at the mark and 0.88 to 0.98 after it. With the seed 5 the LSTM recalls 88 % of the
symbols, with the others all of them.

GRU: the update gate z does the work of both. At the mark it is near 0, so that the candidate replaces the state. After
the mark most of the state is kept: with the seeds 1 to 5, z is 0.02 to 0.08 at the mark and 0.71 to 0.89 after it. In
some units z is low at other symbols, too.

With f = 0, or z = 0, the gate keeps nothing, and the accuracy is a little above chance: in one of 20 sequences the
marked symbol is the last one. With f = 1 the LSTM keeps everything, also what the symbols before the mark have written,
and names a third to half of the symbols. With z = 1 a GRU never writes. Two gates are not needed for this task: with
o = 1, and with r = 0 or 1, the accuracy does not change. The state is asked for only once, at the end, and the
candidate does not need the old state.

Chrono initialisation changes the start. With the biases of torch, f and z are about ½ at first, and of the first state
almost nothing is left after 20 symbols. With chrono they are 0.8 to 0.9, and a tenth to a quarter is left. In an LSTM
the input gate starts almost closed. After training the gates do much the same as without it. It matters for longer
sequences: with length=60 steps=400, the LSTM recalls 15 to 27 % of the symbols and the LSTM with chrono 73 to 100 %
(seeds 1 to 3).
"""
WIDTH, RATE = 8, 2e-2
TESTED = 512  # sequences
LETTERS = "abcdefgh"  # the symbols
GATES = {"lstm": ("i", "f", "o"), "gru": ("r", "z")}  # what is between 0 and 1
KEEPS = {"lstm": "f", "gru": "z"}  # the gate that the old state is multiplied by
NAMES = {"lstm": "LSTM", "gru": "GRU"}
RULES = {  # how the gates of a step follow from the lines above them
    "lstm": "The first number of i, f and o is σ(the sum of the two results above it), and that of g is tanh of it.",
    "gru": "The first number of r and z is σ(the sum of the two results above it), and that of n is tanh(the result of "
    "x · W + r · the result of h · U).",
}
NETWORKS = {(cell, chrono): f"{NAMES[cell]}{', chrono' * chrono}" for cell in NAMES for chrono in (False, True)}


@dataclass(frozen=True)
class Gate:
    """A gate of a network: its means over units and sequences, and the accuracies if it is set to 0 and 1."""

    gate: str
    start: float  # at all steps, before training
    before: float  # at the steps before the marked symbol, after training
    marked: float
    after: float
    zero: float
    one: float


@dataclass(frozen=True)
class GatedNetwork:
    """The results of a network."""

    name: str
    cell: str
    accuracy: float
    kept: float  # the part of the first state that the gates keep up to the end, before training
    gates: list[Gate]
    along: dict[str, list[list[float]]]  # the gates along one sequence: a list for each unit


def run(options: GatesOptions, report: Report = no_report) -> Result:
    """Trains LSTMs and GRUs to recall a marked symbol, and measures, draws and changes their gates."""
    length, steps, seed = options.length, options.steps, options.seed
    shown, at = example(length, seed)
    networks, by_hand, pictures = [], list[Table](), list[Section]()
    letters = [LETTERS[one] for one in shown[0, :, :SYMBOLS].argmax(dim=1).tolist()]
    letters[at] = letters[at].upper()
    for (cell, chrono), name in NETWORKS.items():
        torch.manual_seed(seed)
        network = RecurrentRecall(cell, attention=False, width=WIDTH)
        if chrono:
            chrono_start(network.rnn, length)
        start = trace(network, sample_batch(length, TESTED, _generator(seed))[0])
        train(name, network, lambda generator: sample_batch(length, ROWS, generator), steps, seed, RATE, report)
        networks.append(measure(name, network, start, shown, seed))
        if not chrono:
            by_hand.append(step_by_hand(network, shown, at, f"{name}: one step by hand, at the marked symbol"))
            pictures += draw(networks[-1], letters, at)
    sections: list[Section] = [
        prose(__doc__),
        *by_hand,
        *pictures,
        _means(networks),
        _start(networks, length),
        _forced(networks),
        reading(READING, options),
    ]
    data = {"length": length, "steps": steps, "seed": seed, "chance": 1 / SYMBOLS}
    about = (
        f"Four recurrent networks of {WIDTH} units, each {training_of(steps, seed)}. The task is to recall the marked "
        f"one of {length} random symbols at the end of the sequence. There are {SYMBOLS} symbols, so chance is "
        f"{1 / SYMBOLS:.1%}."
    )
    return Result("Gates", about, {**data, "symbols": letters, "networks": networks}, sections)


def example(length: int, seed: int) -> tuple[Tensor, int]:
    """One sequence (1, T, symbols + 1) that is not in the training, and the step of its marked symbol."""
    inputs, _ = sample_batch(length, 1, _generator(seed))
    at = length // 4
    inputs[..., SYMBOLS] = 0.0
    inputs[:, at, SYMBOLS] = 1.0
    return inputs, at


@torch.no_grad()
def trace(network: RecurrentRecall, inputs: Tensor, forced: Gates | None = None) -> dict[str, Tensor]:
    """The gates and states (B, T, width) at inputs (B, T, symbols + 1); ``forced`` replaces gates at all steps."""
    x = network.embedding(inputs)
    (found,) = network.rnn.trace(x, network.rnn.zeros(len(x), x), lambda gates: {**gates, **(forced or {})})
    return found


@torch.no_grad()
def measure(name: str, network: RecurrentRecall, start: dict[str, Tensor], shown: Tensor, seed: int) -> GatedNetwork:
    """The results of a trained network; ``start`` is its trace before training, on the same sequences."""
    cell, (length, width) = network.rnn.cell, start["h"].shape[1:]
    inputs, targets = sample_batch(length, TESTED, _generator(seed))
    found, marked = trace(network, inputs), inputs[..., SYMBOLS] == 1
    passed = marked.cumsum(dim=1) == 1  # from the marked symbol on

    def recalled(gate: str, value: float) -> float:
        states = trace(network, inputs, {gate: torch.full((len(inputs), width), value)})["h"]
        return accuracy(network.readout(states[:, -1:]), targets)

    gates = [
        Gate(
            gate,
            start[gate].mean().item(),
            *(found[gate][places].mean().item() for places in (~passed, marked, passed & ~marked)),
            *(recalled(gate, value) for value in (0.0, 1.0)),
        )
        for gate in GATES[cell]
    ]
    kept = start[KEEPS[cell]][:, 1:].prod(dim=1).mean().item()
    along = {gate: values[0].T.tolist() for gate, values in trace(network, shown).items() if gate in GATES[cell]}
    return GatedNetwork(name, cell, accuracy(network(inputs), targets), kept, gates, along)


@torch.no_grad()
def step_by_hand(network: RecurrentRecall, shown: Tensor, at: int, title: str) -> Table:
    """One step of the cell, from its input and the state before it to the new state.

    Raises AssertionError if the state differs from that of the fast route by more than TOLERANCE.
    """
    network.double()
    cell, weights, lines = network.rnn.cell, network.rnn.weights(0), Derivation()
    found, inputs = trace(network, shown.double()), network.embedding(shown.double())
    x, before = inputs[0, at], {name: found[name][0, at - 1] for name in STATE[cell]}
    lines.vector("x, the embedded symbol", x)
    for name, values in before.items():
        lines.vector(f"{name} before", values)
    for row, gate in zip(range(0, len(weights.input), WIDTH), MEANINGS[cell]):  # the order of gates in the weights
        lines.column(f"x · W of {gate}", x, weights.input[row], weights.input_bias[row])
        lines.column(f"h · U of {gate}", before["h"], weights.hidden[row], weights.hidden_bias[row])
        lines.vector(f"{gate}, {MEANINGS[cell][gate]}", found[gate][0, at])
    for part in reversed(STATE[cell]):
        lines.vector(f"{part} after", found[part][0, at])
    fast = network.rnn(inputs[:, : at + 1])[0][0, at]
    lines.vector("h after, by the fast route", fast)
    network.float()
    difference = (fast - found["h"][0, at]).abs().max().item()
    assert difference < TOLERANCE, f"{title}: by hand and by the model differ by {difference:.1e}"
    state = " ".join(f"{part} after is {MEANINGS[cell][part]}." for part in reversed(STATE[cell]))
    return Table(title, Derivation.columns, lines.rows, f"{COLUMN} {RULES[cell]} {state} All numbers are rounded.")


def draw(network: GatedNetwork, letters: Sequence[str], at: int) -> list[Section]:
    """The gates along one sequence: a picture of all units, and the means over the units."""
    means = {gate: [sum(step) / WIDTH for step in zip(*units)] for gate, units in network.along.items()}
    units = [str(one) for one in range(1, WIDTH + 1)]
    meanings, side = MEANINGS[network.cell], max(4, min(20, 400 // len(letters)))
    maps = [
        Heatmap(f"{gate}, {meanings[gate]}", "symbols", "unit", values, units, letters, side, vmax=1.0)
        for gate, values in network.along.items()
    ]
    columns = [[letter, *(f"{100 * means[gate][step]:.0f}" for gate in means)] for step, letter in enumerate(letters)]
    return [
        Heatmaps(f"{network.name}: the gates along a sequence; {letters[at]}, symbol {at + 1}, is marked", maps),
        Interlinear(f"{network.name}: the means over the units, in %", ["reads", *means], columns, [at]),
    ]


def _means(networks: Sequence[GatedNetwork]) -> Table:
    rows = [
        [one.name, gate.gate, *(f"{value:.2f}" for value in (gate.start, gate.before, gate.marked, gate.after))]
        for one in networks
        for gate in one.gates
    ]
    columns = ["network", "gate", "untrained", "trained: before\nthe mark", "at the\nmark", "after the\nmark"]
    note = f"Means over {WIDTH} units and {TESTED} new sequences; those of untrained networks are over all symbols."
    return Table("The gates, untrained and trained", columns, rows, note)


def _start(networks: Sequence[GatedNetwork], length: int) -> Table:
    rows = [[one.name, f"{one.kept:.1e}", f"{one.accuracy:.1%}"] for one in networks]
    note = (
        f"Kept: the product of the gate f or z over the {length - 1} steps after the first, mean over units and "
        f"sequences, before training. Chance is {1 / SYMBOLS:.1%}."
    )
    return Table(
        "At the start, and at the end", ["network", "kept at the start", "accuracy after training"], rows, note
    )


def _forced(networks: Sequence[GatedNetwork]) -> Table:
    rows = [
        [one.name, gate.gate, *(f"{value:.1%}" for value in (one.accuracy, gate.zero, gate.one))]
        for one in networks
        for gate in one.gates
    ]
    note = f"The gate has this value in all units at all steps; nothing is trained again. Chance is {1 / SYMBOLS:.1%}."
    return Table("Accuracy if one gate is set", ["network", "gate", "as trained", "set to 0", "set to 1"], rows, note)


def _generator(seed: int) -> torch.Generator:
    """A random generator for the test, which differs from those of training."""
    return torch.Generator().manual_seed(2**41 + seed)
