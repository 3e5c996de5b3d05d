"""`regard explain heads`: what each head looks at."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Run, Seed, Steps, Text, follow, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.heads import Head
    from regard.explain.heads import Text as Seen
    from regard.view.report import Section

SENTENCES = 100


def heads(
    run: Run = None,
    text: Text = "",
    steps: Steps = 150,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What each head looks at: the word before, the next, itself, the first, separators; how widely, and how far.

    A line for each head of each layer, over the words of a text that a model of yours reads, or over a hundred
    sentences that a small model reads after learning their few dozen words. Weights are means over the words that ask;
    entropy is in nats, distance in words. The last line is a head that would look at everything it may see alike: what
    differs from it is a habit.

    \b
    Examples:
      regard explain heads
      regard explain heads runs/shakespeare "to be or not to be" -o heads.html
    """
    from regard.explain.heads import HABITS
    from regard.explain.heads import heads as habits

    found = habits(_sentences(steps, seed) if run is None else _text(run, text))
    columns = ["layer", "head", *HABITS]
    rows = [[_layer(one), _number(one), *(f"{getattr(one, name):.2f}" for name in HABITS)] for one in found]
    note = f"Over {SENTENCES} sentences." if run is None else f"Over {text!r}."
    data = {"run": run, "text": text, "heads": [vars(one) for one in found]}
    sections = _sections(found, columns, rows, note)
    tell(
        Findings("What heads do", data, [grid("What heads do", columns, rows), f"[dim]{note}[/]"], sections), out, json
    )


def _layer(one: "Head") -> str:
    """Short: stack.blocks.3.attention.read is stack.3."""
    return one.layer.removesuffix(".attention.read").replace(".blocks.", ".")


def _number(one: "Head") -> str:
    return "–" if one.head < 0 else str(one.head)


def _sentences(steps: int, seed: int) -> "Iterator[Seen]":
    """The weights of a small language model over sentences it has not seen."""
    import random

    import torch

    from regard.explain.sentences import BEGIN, Dice, encoded
    from regard.explain.speaking import taught
    from regard.mask import CAUSAL
    from regard.record import record

    network, _ = follow(taught("learns to speak", CAUSAL, steps, seed))
    dice = Dice(random.Random(2**40 + seed))
    for _ in range(SENTENCES):
        words = [BEGIN, *dice.sentence()]
        with torch.no_grad(), record(network) as tape:
            network(torch.tensor([encoded(words)]))
        yield {name: tape[name][0] for name in tape}, [word in (BEGIN, ".") for word in words]


def _text(run: Path, text: str) -> "Iterator[Seen]":
    """The weights of a model's own: of its self-attention; a translator's decoder has nothing to say yet."""
    from regard.cli.topics.reading import read
    from regard.record import record

    reading = read(run, text)
    with record(reading.model.module) as tape:
        reading.play()
    length = len(reading.pieces)
    yield {name: tape[name][0] for name in tape if tape[name].shape[-2:] == (length, length)}, reading.separators


def _sections(found: "list[Head]", columns: list[str], rows: list[list[str]], note: str) -> "list[Section]":
    from regard.view import report as page

    words = paragraphs(
        "Nobody tells a head what to look at. Yet trained heads have habits: some look at the word before, some at the "
        "beginning or at punctuation where they have nothing to do, some spread themselves over everything.",
        "The last line is a head that would look at everything it may see alike.",
    )
    shares = ("previous", "next", "itself", "first", "separator")
    values = [[getattr(one, name) for one in found] for name in shares]
    layers = list(dict.fromkeys(one.layer for one in found))
    names = [one.layer if one.head < 0 else f"{layers.index(one.layer)}.{one.head}" for one in found]
    heat = page.Heat("weight on …", "layer.head", "", values, shares, names, top=1.0)
    return [page.Text(words), page.Table("Every head", columns, rows, note), page.Heats("As a picture", [heat])]
