"""`regard explain attention`: six steps by hand, in a textbook's numbers and in a real head; then the whole block."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.shared import Findings, Out, Rows, Run, Seed, Steps, Text, follow, paragraphs, tell
from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.attention import Steps as Six
    from regard.explain.attention import Worked
    from regard.render.report import Section

WORDS = "the dogs behind a tree"  # that the small model reads: is what comes next one, or many?
SHOWN = 4  # numbers of a vector
MOST = 12  # heads, in the terminal


def attention(
    run: Run = None,
    text: Text = "",
    layer: Annotated[int, typer.Option(help="Which block, from 0, the lowest; -1 is the last.")] = 0,
    head: Annotated[int | None, typer.Option(help="Which head, from 0; none: one that looks hard at a word.")] = None,
    word: Annotated[int, typer.Option(help="Whose query, from 0; -1 is the last.")] = -1,
    steps: Steps = 150,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Attention by hand: a textbook's numbers, a real head, its block.

    Six steps. (1) Every word gives a query, a key and a value. (2) A word's query is multiplied with every key: 112 and
    96. (3) The products are divided by √width: 14 and 12. (4) Softmax makes weights of them: 0.88 and 0.12. (5) Every
    value is multiplied by its weight, and (6) they are summed.

    Then the same in a head of a model: one you name, or a small one that learns a few dozen words in some seconds.
    Then what the block makes of its heads: side by side, times W^O, plus what came in, normed; and the feed-forward
    part. All of it is worked out from the matrices, in double precision, and compared with what the block itself gave.

    \b
    Examples:
      regard explain attention
      regard explain attention --layer 1 --head 2 -o attention.html
      regard explain attention runs/shakespeare "to be or not to be" --word 3
    """
    import torch

    from regard.explain.attention import worked

    with torch.no_grad():
        words, blocks = _trained(steps, seed) if run is None else _loaded(run, text)
    layer, query = _within("layer", layer, len(blocks)), _within("word", word, len(words))
    block = blocks[layer]
    chosen = _hardest(block, query) if head is None else _within("head", head, len(block.heads))
    shown, textbook = Shown(block, words, layer, chosen, query), worked()
    tables = {**_steps("The textbook's numbers, width 64", textbook, ["word 1", "word 2"], 0), **shown.tables()}
    verdict = (
        f"By hand and by the model: they differ by {block.difference:.1e} at most, over all {len(words)} words of "
        f"layer {layer}."
    )
    data = {
        "text": words,
        "block": block.name,
        "head": chosen,
        "word": words[query],
        "textbook": _data(textbook),
        "real": _data(shown.six),
        "heads": [head[query].weights for head in block.heads],
        "output": block.output[query],
        "difference": block.difference,
    }
    terminal: list[RenderableType] = [*(grid(title, *table) for title, table in tables.items()), verdict]
    tell(Findings("Attention, step by step", data, terminal, _sections(tables, shown, verdict)), out, json)


@dataclass(frozen=True, eq=False)
class Shown:
    """One word in one head of a block."""

    block: "Worked"
    words: list[str]
    layer: int
    head: int
    query: int

    @property
    def six(self) -> "Six":
        return self.block.heads[self.head][self.query]

    @property
    def keys(self) -> list[str]:
        """What is looked at: the words, and what Transformer-XL may remember from before them."""
        return [*["memory"] * (len(self.six.keys) - len(self.words)), *self.words]

    def tables(self) -> dict[str, Rows]:
        """The six steps, the other heads, the rest of the block."""
        word, heads = f"“{self.words[self.query]}”", self.block.heads[:MOST]
        looks = [[head[self.query].weights[at].item() for head in heads] for at in range(len(self.keys))]
        title = f"Layer {self.layer}, head {self.head}, width {len(self.six.query)}: {word} asks"
        return {
            **_steps(title, self.six, self.keys, len(self.keys) - len(self.words) + self.query),
            f"Where {word} looks, heads 0 to {len(heads) - 1} of {len(self.block.heads)}": (
                ["", *(f"H{at}" for at in range(len(heads)))],
                [[key, *(f"{weight:.2f}" for weight in row)] for key, row in zip(self.keys, looks)],
            ),
            f"The rest of the block: {word}": self._rest(),
        }

    def _rest(self) -> Rows:
        block = self.block
        parts = {
            "heads side by side": block.joined,
            "× W^O": block.projected,
            "+ what came in": block.added,
            "normed": block.normed,
            "whole block, by hand": block.output,
            "whole block, by the model": block.expected,
        }
        rows = [[name, str(part.shape[1]), _vector(part[self.query])] for name, part in parts.items()]
        return ["", "numbers", "the first of them"], rows


def _trained(steps: int, seed: int) -> "tuple[list[str], list[Worked]]":
    """A few words, and every block of a small language model that reads them, by hand."""
    import torch

    from regard.explain.attention import by_hand, watched
    from regard.explain.sentences import BEGIN, encoded
    from regard.explain.speaking import taught
    from regard.mask import CAUSAL

    words = [BEGIN, *WORDS.split()]
    with torch.enable_grad():
        network, _ = follow(taught("learns to speak", CAUSAL, steps, seed))
    with watched(network.double()) as calls:
        network(torch.tensor([encoded(words)]))
    return words, [by_hand(call) for call in calls]


def _loaded(run: Path, text: str) -> "tuple[list[str], list[Worked]]":
    """The pieces of a text, and every block of a model that reads it; of a translator, those of its encoder."""
    from regard.cli.topics.reading import opened, read
    from regard.explain.attention import by_hand, watched

    reading = read(opened(run), text)
    reading.model.module.double()
    with watched(reading.model.module) as calls:
        reading.play()
    return reading.pieces, [by_hand(call) for call in calls if call.block.cross is None]


def _within(option: str, value: int, count: int) -> int:
    if not -count <= value < count:
        raise UserError(f"--{option} {value}: there are {option}s 0 to {count - 1}.")
    return value % count


def _hardest(block: "Worked", query: int) -> int:
    """The head in which this word looks hardest at another."""
    others = [[*head[query].weights[:query], *head[query].weights[query + 1 :], 0.0] for head in block.heads]
    hardest = [max(map(float, weights)) for weights in others]
    return hardest.index(max(hardest))


def _steps(title: str, six: "Six", words: list[str], asks: int) -> dict[str, Rows]:
    """The six steps as tables, a word to a row, the sum below: side by side they are too wide for a terminal."""
    first = [[word, _vector(key), _vector(value)] for word, key, value in zip(words, six.keys, six.values)]
    divided = f"3  ÷ {1 / six.scale:.3g}" if six.scale else "3  score"  # not every score is a dot product
    then = []
    for word, score, scaled, weight, weighted in zip(
        words, six.scores.tolist(), six.scaled.tolist(), six.weights.tolist(), six.weighted
    ):
        seen = "masked" if scaled == -float("inf") else f"{scaled:.2f}"
        then.append([word, f"{score:.2f}", seen, f"{weight:.2f}", _vector(weighted)])
    return {
        title: (["", "1  query"], [[words[asks], _vector(six.query)]]),
        f"{title}, keys and values": (["", "1  key", "1  value"], first),
        f"{title}, steps 2 to 6": (
            ["", "2  q·k", divided, "4  softmax", "5  weight × value"],
            [*then, ["6  sum", "", "", "", _vector(six.output)]],
        ),
    }


def _vector(vector: "Tensor") -> str:
    return " ".join(f"{number:5.2f}" for number in vector[:SHOWN].tolist()) + (" …" if len(vector) > SHOWN else "")


def _data(six: "Six") -> dict[str, object]:
    return {name: getattr(six, name) for name in ("scores", "scaled", "weights", "output", "scale")}


def _sections(tables: dict[str, Rows], shown: Shown, verdict: str) -> "list[Section]":
    import torch

    from regard.render import report as page
    from regard.render.view import AttentionView
    from regard.render.view_data import Layer

    words = paragraphs(
        "Every word gives three vectors: a query (what it asks), a key (what it can be found by) and a value (what it "
        "has to say). A word's query is compared with all keys, the comparisons become weights that sum to one, and "
        "what the word reads is the values mixed by these weights.",
        "First with the numbers of a textbook, then in a head of a network that was just trained or loaded.",
    )
    *steps, _, rest = (page.Table(title, *table) for title, table in tables.items())
    weights = [torch.stack([one.weights for one in head]).numpy()[None] for head in shown.block.heads]
    views = [
        AttentionView(f"head {at}", shown.words, shown.keys, [Layer(f"layer {shown.layer}", head)])
        for at, head in enumerate(weights)
    ]
    heads = page.Gallery("All heads, all words", views)
    return [page.Text(words), *steps, heads, rest, page.Text(verdict)]
