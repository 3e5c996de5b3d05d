"""The bottleneck of one vector: quality against source length.

An encoder–decoder without attention compresses the whole source into one vector (Sutskever et al. 2014; Cho et al.
2014). The vector has the same width for every source, so a longer source loses more. With attention the decoder reads
all states of the encoder at every step, and nothing has to pass through one vector (Bahdanau et al. 2015, figure 2).

Three networks learn to copy random letters. They have the same encoder and the same width. In the first, the vector
initializes the decoder; in the second, it is also an input of every step; the third attends to the states of the
encoder. Shown is how many letters are right, and how many texts are entirely right, against the number of letters. A
network reads its own letters here, as in use.
"""

from dataclasses import dataclass

import torch

from regard.explain.copying import LETTERS, Copier, copy_batch, train_copier
from regard.explain.experiment import training_of
from regard.explain.options import BottleneckOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.report.sections import Curve, Line, Section, Table

READING = """
Without attention, the shortest texts are copied without a mistake, and the accuracy falls with the length: in these
steps the network learns to keep only a few letters in its vector. The vector as an input of every step changes little,
because it is the same vector. With attention, the accuracy stays near 90 % or above it up to the longest text of
training. Texts that are longer than in training are copied worse by all networks.

`regard eval DIR --by-length` measures the same for a translator of your own, and `model.decoder=once` trains one
without attention.
"""
NETWORKS = {  # model.decoder
    "no attention": "once",
    "the vector at every step": "every",
    "attention": "luong",
}
TESTED = 128  # texts of each length


@dataclass(frozen=True)
class ByLength:
    """The results of one network, with an item for each length."""

    name: str
    decoder: str
    letters: list[float]  # the part of the letters that are right
    texts: list[float]  # the part of the texts whose letters are all right


def run(options: BottleneckOptions, report: Report = no_report) -> Result:
    """Trains three networks to copy letters, and tests them on texts of several lengths."""
    longest, width, steps, seed = options.length, options.width, options.steps, options.seed
    lengths = lengths_around(longest)
    networks = [
        evaluate(
            name, decoder, train_copier(name, decoder, "general", width, longest, steps, seed, report), lengths, seed
        )
        for name, decoder in NETWORKS.items()
    ]
    chance = 1 / len(LETTERS)
    columns = ["letters in the source", *(str(length) for length in lengths)]
    lines = [
        *(Line(one.name, lengths, one.letters) for one in networks),
        Line("chance", lengths, [chance] * len(lengths)),
    ]
    note = f"Chance is {chance:.1%} of the letters. Texts of more than {longest} letters do not occur in training."
    sections: list[Section] = [
        prose(__doc__),
        Curve("Letters that are right", "letters in the source", "part of the letters", lines, ends=(0, 1)),
        Table(
            "Letters that are right, %",
            columns,
            [[one.name, *(f"{100 * value:.0f}" for value in one.letters)] for one in networks],
            note,
        ),
        Table(
            "Texts that are entirely right, %",
            columns,
            [[one.name, *(f"{100 * value:.0f}" for value in one.texts)] for one in networks],
            f"{TESTED} texts of each length. Chance is {chance:.1%} to the power of the length.",
        ),
        reading(READING, options),
    ]
    data = {"lengths": lengths, "longest": longest, "width": width, "steps": steps, "seed": seed, "chance": chance}
    about = (
        f"Three recurrent encoder–decoders (GRU, width {width}), each {training_of(steps, seed)}. The task is to copy "
        f"texts of random letters; those of training have 2 to {longest}. There are {len(LETTERS)} letters, so chance "
        f"is {chance:.1%} of them. All networks are tested on the same texts."
    )
    return Result("The bottleneck of one vector", about, {**data, "networks": networks}, sections)


def lengths_around(longest: int) -> list[int]:
    """Lengths from 2 to one and a half times the longest of training."""
    return sorted({max(2, round(longest * part / 10)) for part in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15)})


def evaluate(name: str, decoder: str, network: Copier, lengths: list[int], seed: int) -> ByLength:
    """Tests a network on new texts of every length."""
    letters, texts = [], []
    for length in lengths:
        pairs, targets = copy_batch(length, TESTED, torch.Generator().manual_seed(2**40 + seed))
        right = network.copies(pairs) == targets
        letters.append(right.float().mean().item())
        texts.append(right.all(dim=1).float().mean().item())
    return ByLength(name, decoder, letters, texts)
