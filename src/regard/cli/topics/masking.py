"""`regard explain masking`: why a language model needs a causal mask."""

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import Out, Seed, Steps, TopicResult, join_paragraphs, run_with_progress, show

if TYPE_CHECKING:
    from regard.explain.masking import Masking
    from regard.render.report import Section

COLUMNS = ["", "loss", "loss, causal", "attention ahead", "grammatical"]


def command(steps: Steps = 240, seed: Seed = 1, out: Out = None, json: options.Json = False) -> None:
    """Why a language model needs a causal mask.

    Two small Transformers learn to predict the next word at all positions of a sentence at once. One has a causal mask.
    The other sees the whole sentence, so it sees the word that it must predict: its loss falls to almost 0, far below
    the lowest loss that a causal model can reach. (This is the entropy of the language, which is known here because the
    sentences come from a small grammar.) Then both generate sentences word by word, and there is no next word to copy.

    Shown are the loss with the mask of training, the loss with a causal mask, the part of the attention that goes to
    later words, and the part of the generated sentences that is grammatical. Takes less than a minute.

    \b
    Examples:
      regard explain masking
      regard explain masking --steps 1000 -o masking.html
    """
    from regard.explain import masking

    result = run_with_progress(masking.run(steps, seed=seed))
    note = (
        f"The entropy of the grammar is {result.entropy:.3f} nats per word: no causal model can have a lower loss. "
        "“loss, causal” is the loss with a causal mask, as at generation. “attention ahead” is the part of the "
        "attention that goes to later words. “grammatical” is the part of the generated sentences that "
        "the grammar allows."
    )
    examples = [
        Group(f"[bold]Sentences generated with {one.name}:[/]", *(Padding(Text(s), (0, 0, 0, 2)) for s in one.examples))
        for one in result.networks
    ]
    data = {
        "steps": steps,
        "seed": seed,
        "entropy": result.entropy,
        "sentence": result.sentence,
        "networks": [vars(one) for one in result.networks],
    }
    terminal: list[RenderableType] = [grid("Predicting the next word", COLUMNS, _rows(result)), note, *examples]
    show(TopicResult("Why a language model needs a causal mask", data, terminal, _sections(result, note)), out, json)


def _rows(result: "Masking") -> list[list[str]]:
    return [
        [one.name, f"{one.loss:.3f}", f"{one.causal_loss:.3f}", f"{one.future_attention:.0%}", f"{one.grammatical:.0%}"]
        for one in result.networks
    ]


def _sections(result: "Masking", note: str) -> "list[Section]":
    import numpy as np

    from regard.render import report
    from regard.render.view import AttentionView
    from regard.render.view_data import Layer

    text = join_paragraphs(
        "Two small Transformers learn to predict the next word at all positions of a sentence at once. They differ "
        "only in the mask. The one without a mask sees the whole sentence, and with it the word that it must predict. "
        "It learns to attend to the next position and to copy the word there. Its loss falls to almost 0, but it has "
        "learned nothing about the language.",
        "At generation there is no next word yet. With a causal mask, the loss of this network is high, and the "
        "sentences that it generates are wrong. The network that was trained with a causal mask could never copy, so "
        "it had to learn the language.",
    )
    views = [
        AttentionView(
            one.name,
            result.sentence,
            result.sentence,
            [Layer("mean of all heads and layers", np.array(one.weights, dtype=np.float32)[None])],
        )
        for one in result.networks
    ]
    examples = [report.Pre("\n".join(one.examples), f"Sentences generated with {one.name}") for one in result.networks]
    return [
        report.Text(text),
        report.Table("Predicting the next word", COLUMNS, _rows(result), note),
        *examples,
        report.Gallery("Attention in training", views),
    ]
