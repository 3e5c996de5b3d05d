"""`regard explain heads`: what each head looks at, and whether one of them knows what "it" means."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.resolving import COLUMNS, SHOWN, It, resolved, short
from regard.cli.topics.shared import Findings, Out, Run, Seed, Steps, Text, follow, paragraphs, tell
from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

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
    """What each head looks at; whether one knows what "it" means.

    A line for each head: its weight on the word before, the next, itself, the first and separators, all means over the
    words that ask; the entropy of its weights in nats; how far it looks, in words. The last line is a head that would
    look at everything it may see alike: what differs from it is a habit. A model of yours reads a text, or the
    sentences below; without one, a small model learns a few dozen words and reads a hundred sentences of them.

    A model of yours, an English one, then reads pairs of sentences, alike but for an end that decides which of two
    nouns "it" means. The head that looks most often from "it" at the right one is chosen on one half of the pairs and
    judged on the other, against chance. A model that reads from left to right cannot know the end at "it": there
    the last word is asked.

    The page shows one head, two and eight, as lines and as matrices.

    \b
    Examples:
      regard explain heads -o heads.html
      regard explain heads runs/shakespeare "to be or not to be"
      regard explain heads models/bert-base-uncased -o heads.html
    """
    from regard.explain.heads import HABITS
    from regard.explain.heads import heads as habits

    watched = _trained(steps, seed) if run is None else _loaded(run, text)
    found, it = habits(watched.texts), watched.it
    columns = ["layer", "head", *HABITS]
    rows = [[short(one.layer), _number(one), *(f"{getattr(one, name):.2f}" for name in HABITS)] for one in found]
    terminal: list[RenderableType] = [grid("What heads do", columns, rows), f"[dim]{watched.note}[/]"]
    if it is not None:
        best = [grid(f"Where {it.asked} looks: the best heads over all {it.pairs} pairs", COLUMNS, it.rows()[:SHOWN])]
        terminal += [*(best if it.found else []), it.verdict()]
    data = {"run": run, "text": text, "heads": [vars(one) for one in found], "it": it.data() if it else None}
    sections = [*_sections(found, columns, rows, watched.note), *_it(it), *watched.drawn(found)]
    tell(Findings("What heads do", data, terminal, sections), out, json)


@dataclass(frozen=True, eq=False)
class Watched:
    """The weights of a model over some texts; one of them is drawn."""

    texts: "Sequence[Seen]"
    note: str
    pieces: Sequence[str]  # of the text that is drawn
    weights: "dict[str, Tensor]"  # (H, T, T) by layer, between the pieces
    asking: Sequence[int]  # pieces, of which the lines are drawn
    it: It | None = None

    def drawn(self, found: "list[Head]") -> "list[Section]":
        """Of the layer in which the best head for "it" is, the best of them for that; else the hardest lookers."""
        from regard.cli.topics.drawn import Drawing

        order = [(one.layer, one.head) for one in self.it.ranked()] if self.it and self.it.found else []
        order = order or [(one.layer, one.head) for one in sorted(found[:-1], key=lambda one: one.entropy)]
        layer = self.it.found.best.layer if self.it and self.it.found else order[0][0]
        drawing = Drawing(short(layer), self.pieces, self.weights[layer].float().numpy(), self.asking)
        return drawing.sections([head for name, head in order if name == layer])


def _number(one: "Head") -> str:
    return "–" if one.head < 0 else str(one.head)


def _trained(steps: int, seed: int) -> Watched:
    """A small language model over sentences it has not seen, eight heads to a layer."""
    import random
    from dataclasses import replace

    import torch

    from regard.explain.sentences import BEGIN, Dice, encoded
    from regard.explain.speaking import SHAPE, taught
    from regard.mask import CAUSAL
    from regard.record import record

    network, _ = follow(taught("learns to speak", CAUSAL, steps, seed, replace(SHAPE, heads=8)))
    dice = Dice(random.Random(2**40 + seed))

    def read(words: list[str]) -> "Seen":
        with torch.no_grad(), record(network) as tape:
            network(torch.tensor([encoded(words)]))
        return {name: tape[name][0] for name in tape}, [word in (BEGIN, ".") for word in words]

    example = [BEGIN, "the", "dogs", "behind", "a", "tree", "follow", "the", "bird", "."]
    texts = [read([BEGIN, *dice.sentence()]) for _ in range(SENTENCES)]
    before_the_verb = example.index("tree")  # where it must be known whether one follows, or many
    return Watched(texts, f"Over {SENTENCES} sentences.", example, read(example)[0], [before_the_verb])


def _loaded(run: Path, text: str) -> Watched:
    """A model of the user's over a text, or over the sentences about "it"."""
    from regard.cli.topics.reading import opened, read

    model = opened(run)
    it = resolved(model)
    if text.strip():
        readings, note = [read(model, text)], f"Over {text!r}."
        shown, asking = readings[0], list(range(len(readings[0].tokens)))
    elif it.sentences:
        readings, note = [reading for reading, _ in it.sentences], f"Over {len(it.sentences)} sentences about “it”."
        shown, asked = it.sentences[2 % len(it.sentences)]  # one that had no part in choosing the best head
        asking = [at for at, word in enumerate(shown.words) if word == asked]
    else:
        raise UserError(
            f"{run}: cannot read the English sentences that are tried where no TEXT is given; give one, for example: "
            f'regard explain heads {run} "a line of text"'
        )
    texts = [(reading.weights, reading.separators) for reading in readings]
    return Watched(texts, note, shown.pieces, shown.weights, asking, it)


def _sections(found: "list[Head]", columns: list[str], rows: list[list[str]], note: str) -> "Iterator[Section]":
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
    yield page.Text(words)
    yield page.Table("Every head", columns, rows, note)
    yield page.Heats("As a picture", [page.Heat("weight on …", "layer.head", "", values, shares, names, top=1.0)])


def _it(it: It | None) -> "Iterator[Section]":
    from regard.explain.pronouns import pairs
    from regard.view import report as page

    if it is None:
        return
    one, other = pairs()[0]
    words = paragraphs(
        f"“{one.text}” The ladder was. “{other.text}” The roof was. To know what “it” means is to understand the end "
        "of the sentence. Does a head look at the noun that is meant?",
        "A head that always prefers the first noun, or the nearer, is right in one half of the sentences. The last "
        "column leaves such habits out: it compares the two versions of a pair, and says in how many of them the "
        "preference moves towards the noun that is then meant.",
        it.verdict(),
    )
    yield page.Text(words, "What “it” means")
    if it.found:
        yield page.Table("Every head, the best first", COLUMNS, it.rows(), f"Over all {it.pairs} pairs.")
