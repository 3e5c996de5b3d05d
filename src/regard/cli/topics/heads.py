"""`regard explain heads`: what each head looks at, and whether one of them knows what "it" means."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.resolving import COLUMNS, SHOWN, It, resolved, short
from regard.cli.topics.shared import Findings, Out, Rows, Run, Seed, Steps, Text, follow, paragraphs, tell
from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.heads import Head
    from regard.explain.heads import Text as Seen
    from regard.render.report import Section

SENTENCES = 100
EXAMPLE = "yesterday the dog barked , the bird sang , the owl hooted ."
PLACES = {  # what each share of a head's weight lies on
    "previous": "the word before",
    "next": "the next word",
    "itself": "itself",
    "first": "the first place",
    "separator": "separators",
}


def heads(
    run: Run = None,
    text: Text = "",
    steps: Steps = 400,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """What each head looks at; whether one knows what "it" means.

    A line for each head: its weight on the word before, the next, itself, the first and separators, all means over the
    words that ask; the entropy of its weights in nats; how far it looks, in words. The last line is a head that would
    look at everything it may see alike: what differs from it is a habit. Then, of every habit, the head that has most
    of it. Layers and heads count from 0.

    A model of yours reads a text, or the sentences below. Without one, a small encoder learns to fill in hidden words
    ("yesterday the dog barked , the bird sang ."), for some twenty seconds; then every word of a hundred sentences is
    hidden in turn, and asks.

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
    rows = [[short(one.layer), _number(one), *(f"{getattr(one, name):.2f}" for name in HABITS)] for one in found]
    tables = {
        "Every head": (["layer", "head", *HABITS], rows),
        "Of every habit, who has most of it": (["weight on", "layer", "head", "weight", "even"], _most(found)),
    }
    terminal: list[RenderableType] = [*(grid(title, *table) for title, table in tables.items()), watched.note]
    if it is not None:
        best = [grid(f"Where {it.asked} looks: the best heads over all {it.pairs} pairs", COLUMNS, it.rows()[:SHOWN])]
        terminal += [*(best if it.found else []), it.verdict()]
    data = {"run": run, "text": text, "heads": [vars(one) for one in found], "it": it.data() if it else None}
    sections = [*_sections(found, tables, watched.note), *_it(it), *watched.drawn(found)]
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
        """Of the layer in which the best head for "it" is, the best of them for that; else, the strongest habits."""
        from regard.cli.topics.drawn import Drawing

        if self.it and self.it.found:
            order, layer = [(one.layer, one.head) for one in self.it.ranked()], self.it.found.best.layer
        else:
            order = _by_habit(found)
            layer = order[0][0]
        drawing = Drawing(f"layer {short(layer)}", self.pieces, self.weights[layer].float().numpy(), self.asking)
        return drawing.sections([head for name, head in order if name == layer])


def _by_habit(found: "list[Head]") -> list[tuple[str, int]]:
    """The strongest head of every habit, the furthest from even first; then the others, the hardest lookers first."""
    from regard.explain.heads import strongest

    *heads, even = found
    most = sorted(strongest(found).items(), key=lambda item: getattr(even, item[0]) - getattr(item[1], item[0]))
    rest = sorted(heads, key=lambda one: one.entropy)
    return list(dict.fromkeys((one.layer, one.head) for one in (*(one for _, one in most), *rest)))


def _number(one: "Head") -> str:
    return "–" if one.head < 0 else str(one.head)


def _most(found: "list[Head]") -> list[list[str]]:
    """The strongest head of every habit, beside the even one."""
    from regard.explain.heads import strongest

    return [
        [PLACES[name], short(one.layer), str(one.head), *(f"{getattr(of, name):.2f}" for of in (one, found[-1]))]
        for name, one in strongest(found).items()
    ]


def _trained(steps: int, seed: int) -> Watched:
    """A small encoder over sentences in which each word is hidden in turn."""
    import random

    from regard.explain.hiding import ANIMALS, asked, sentence, taught

    network, dice = follow(taught(steps, seed)), random.Random(2**40 + seed)
    answers = [asked(network, sentence(dice, dice.choice(ANIMALS))) for _ in range(SENTENCES)]
    right = sum(share for _, share in answers) / SENTENCES
    note = f"Every word of {SENTENCES} sentences was hidden in turn, and asked; {right:.0%} of them were found."
    words = EXAMPLE.split()
    (weights, _), _ = asked(network, words)
    return Watched([text for text, _ in answers], note, words, weights, [words.index("sang")])


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


def _sections(found: "list[Head]", tables: "dict[str, Rows]", note: str) -> "Iterator[Section]":
    from regard.render import report as page

    words = paragraphs(
        "Nobody tells a head what to look at. How much of its weight lies on the word before, the next, the word "
        "itself, the first place, and on separators? Means over the words that ask; with the entropy of the weights "
        "in nats, and the distance to what is looked at in words.",
        "The last line is a head that would look at everything it may see alike: what differs from it is a habit. "
        "Layers and heads count from 0.",
    )
    values = [[getattr(one, name) for one in found] for name in PLACES]
    names = [one.layer if one.head < 0 else f"L{short(one.layer)} H{one.head}" for one in found]
    every, most = (page.Table(title, *table, told) for (title, table), told in zip(tables.items(), (note, "")))
    heat = page.Heatmap("weight on …", "L layer, H head", "", values, list(PLACES.values()), names, vmax=1.0)
    yield from (page.Text(words), most, page.Heatmaps("As a picture", [heat]), every)


def _it(it: It | None) -> "Iterator[Section]":
    from regard.explain.pronouns import pairs
    from regard.render import report as page

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
