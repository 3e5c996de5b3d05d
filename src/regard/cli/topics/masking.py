"""`regard explain masking`: why a language model must not see ahead."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Seed, Steps, follow, paragraphs, tell

if TYPE_CHECKING:
    from regard.explain.masking import Masking
    from regard.render.report import Section

COLUMNS = ["", "loss", "future hidden", "looks ahead", "says it right"]


def masking(steps: Steps = 240, seed: Seed = 1, out: Out = None, json: options.Json = False) -> None:
    """Why a language model must not see ahead.

    Two small Transformers learn to say the next word, all words of a sentence at once. One has the causal mask. The
    other sees the whole sentence, and the next word with it: its loss goes to nothing, far below the least that an
    honest model can have (known here, since the sentences come from a grammar). Then both must write, word after word,
    and there is no next word to copy.

    Shown: the loss as they were trained, the loss once the future is hidden, how much of their attention goes to later
    words, and how many of the sentences they write are right by the grammar. Takes less than a minute.

    \b
    Examples:
      regard explain masking
      regard explain masking --steps 1000 -o masking.html
    """
    from regard.explain.masking import masking as experiment

    found = follow(experiment(steps, seed=seed))
    least = (
        f"No honest model has a loss below {found.floor:.3f} nats a word: that is how surprising the grammar is. "
        "Says it right: how many of the sentences that it then writes alone, word after word, the grammar allows."
    )
    said = [Group(f"[bold]With {one.name} it says:[/]", *map(_indented, one.examples)) for one in found.told]
    data = {
        "steps": steps,
        "seed": seed,
        "floor": found.floor,
        "sentence": found.sentence,
        "networks": [vars(one) for one in found.told],
    }
    terminal: list[RenderableType] = [grid("The next word", COLUMNS, _rows(found)), least, *said]
    tell(Findings("Why a language model must not see ahead", data, terminal, _sections(found, least)), out, json)


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2))


def _rows(found: "Masking") -> list[list[str]]:
    return [
        [one.name, f"{one.loss:.3f}", f"{one.honest:.3f}", f"{one.ahead:.0%}", f"{one.right:.0%}"] for one in found.told
    ]


def _sections(found: "Masking", least: str) -> "list[Section]":
    import numpy as np

    from regard.render import report as page
    from regard.render.view import AttentionView
    from regard.render.view_data import Layer

    words = paragraphs(
        "Two small Transformers learn to say the next word, all words of a sentence at once. They are alike but for "
        "the mask. The one without it sees the whole sentence, and so the very word it is asked for: it learns to "
        "look one place to the right and copy. Its loss goes to nothing, and it has learnt nothing about the "
        "language.",
        "When it is to write there is no next word yet. Its loss with the future hidden is that of a model that is "
        "lost, and so are its sentences. The causal mask takes the temptation away.",
    )
    views = [
        AttentionView(
            one.name,
            found.sentence,
            found.sentence,
            [Layer("mean of all heads and layers", np.array(one.weights, dtype=np.float32)[None])],
        )
        for one in found.told
    ]
    said = [page.Pre("\n".join(one.examples), f"With {one.name} it says") for one in found.told]
    return [
        page.Text(words),
        page.Table("The next word", COLUMNS, _rows(found), least),
        *said,
        page.Gallery("Where they look while they learn", views),
    ]
