"""`regard explain attention`: attention in six steps, in a textbook example and in a real head, and the whole block."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from regard.cli import options
from regard.cli.tables import grid
from regard.cli.topics.common import (
    Out,
    Run,
    Seed,
    Steps,
    TableCells,
    Text,
    TopicResult,
    join_paragraphs,
    run_with_progress,
    show,
)
from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.attention import AttentionSteps, BlockByHand
    from regard.render.report import Section

SENTENCE = "the dogs behind a tree"  # the input of the small model: should a singular or a plural verb follow?
MAX_NUMBERS = 4  # of a vector
MAX_HEADS = 12  # in the terminal


def command(
    run: Run = None,
    text: Text = "",
    layer: Annotated[int, typer.Option(help="The block, from 0, the lowest; -1 is the last.")] = 0,
    head: Annotated[
        int | None, typer.Option(help="The head, from 0; by default, the one with the largest weight on another word.")
    ] = None,
    word: Annotated[int, typer.Option(help="The word whose query is shown, from 0; -1 is the last.")] = -1,
    steps: Steps = 150,
    seed: Seed = 1,
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Attention by hand: a textbook example, a head, a whole block.

    Attention has six steps. (1) Compute a query, a key and a value for every word. (2) Multiply the query of a word
    with every key (dot product): 112 and 96. (3) Divide by √width: 14 and 12. (4) Apply softmax to get weights: 0.88
    and 0.12. (5) Multiply every value by its weight. (6) Sum.

    The same steps are then shown for a head of a real model: the one in DIR, or a small one that is trained in a few
    seconds. After that comes the rest of the block: the heads are concatenated, multiplied by W^O, added to the input
    of the block and normalised, and the feed-forward part follows. Everything is computed from the matrices in double
    precision and compared with the output of the block itself.

    \b
    Examples:
      regard explain attention
      regard explain attention --layer 1 --head 2 -o attention.html
      regard explain attention runs/shakespeare "to be or not to be" --word 3
    """
    import torch

    from regard.explain.attention import textbook_example

    with torch.no_grad():
        words, blocks = _blocks_of_small_model(steps, seed) if run is None else _blocks_of_run(run, text)
    layer, query = _check_index("layer", layer, len(blocks)), _check_index("word", word, len(words))
    block = blocks[layer]
    chosen = _sharpest_head(block, query) if head is None else _check_index("head", head, len(block.heads))
    shown, textbook = HeadInBlock(block, words, layer, chosen, query), textbook_example()
    tables = {**_step_tables("Textbook example, width 64", textbook, ["word 1", "word 2"], 0), **shown.tables()}
    verdict = (
        f"The block computed by hand and the block of the model differ by at most {block.difference:.1e}, over all "
        f"{len(words)} words of layer {layer}."
    )
    data = {
        "text": words,
        "block": block.name,
        "head": chosen,
        "word": words[query],
        "textbook": _data(textbook),
        "model": _data(shown.steps),
        "heads": [head[query].weights for head in block.heads],
        "output": block.output[query],
        "difference": block.difference,
    }
    terminal: list[RenderableType] = [*(grid(title, *table) for title, table in tables.items()), verdict]
    show(TopicResult("Attention, step by step", data, terminal, _sections(tables, shown, verdict)), out, json)


@dataclass(frozen=True, eq=False)
class HeadInBlock:
    """One query in one head of a block, and the tables that show it."""

    block: "BlockByHand"
    words: list[str]
    layer: int
    head: int
    query: int

    @property
    def steps(self) -> "AttentionSteps":
        return self.block.heads[self.head][self.query]

    @property
    def keys(self) -> list[str]:
        """The names of the keys: the words, and before them the memory of Transformer-XL if there is one."""
        return [*["memory"] * (len(self.steps.keys) - len(self.words)), *self.words]

    def tables(self) -> dict[str, TableCells]:
        """The six steps, the weights of all heads, the rest of the block."""
        word, heads = f"“{self.words[self.query]}”", self.block.heads[:MAX_HEADS]
        weights = [[head[self.query].weights[at].item() for head in heads] for at in range(len(self.keys))]
        title = f"Layer {self.layer}, head {self.head}, width {len(self.steps.query)}: query {word}"
        block = self.block
        stages = {
            "heads concatenated": block.concatenated,
            "× W^O": block.projected,
            "+ input of the block": block.added,
            "normalised": block.normed,
            "whole block, by hand": block.output,
            "whole block, by the model": block.expected,
        }
        return {
            **_step_tables(title, self.steps, self.keys, len(self.keys) - len(self.words) + self.query),
            f"Weights for query {word}, heads 0 to {len(heads) - 1} of {len(block.heads)}": (
                ["", *(f"H{at}" for at in range(len(heads)))],
                [[key, *(f"{weight:.2f}" for weight in row)] for key, row in zip(self.keys, weights)],
            ),
            f"The rest of the block: {word}": (
                ["", "width", "first numbers"],
                [[name, str(states.shape[1]), _vector(states[self.query])] for name, states in stages.items()],
            ),
        }


def _blocks_of_small_model(steps: int, seed: int) -> "tuple[list[str], list[BlockByHand]]":
    """Trains a small language model; returns the words of a sentence, and every block that reads it, by hand."""
    import torch

    from regard.explain.attention import compute_by_hand, record_block_calls
    from regard.explain.grammar import BOS, encode, train_language_model
    from regard.mask import CAUSAL

    words = [BOS, *SENTENCE.split()]
    with torch.enable_grad():
        network, _ = run_with_progress(train_language_model("language model", CAUSAL, steps, seed))
    with record_block_calls(network.double()) as calls:
        network(torch.tensor([encode(words)]))
    return words, [compute_by_hand(call) for call in calls]


def _blocks_of_run(run: Path, text: str) -> "tuple[list[str], list[BlockByHand]]":
    """The tokens of a text, and every block of a model that reads it, by hand; of a translator, only the encoder."""
    from regard.cli.topics.tokenized import load_transformer, tokenize
    from regard.explain.attention import compute_by_hand, record_block_calls

    tokenized = tokenize(load_transformer(run), text)
    tokenized.model.module.double()
    with record_block_calls(tokenized.model.module) as calls:
        tokenized.forward()
    return tokenized.pieces, [compute_by_hand(call) for call in calls if call.block.cross is None]


def _check_index(option: str, value: int, count: int) -> int:
    if not -count <= value < count:
        raise UserError(f"--{option} {value}: there are {option}s 0 to {count - 1}.")
    return value % count


def _sharpest_head(block: "BlockByHand", query: int) -> int:
    """The head in which this word has the largest weight on another word."""
    others = [[*head[query].weights[:query], *head[query].weights[query + 1 :], 0.0] for head in block.heads]
    largest = [max(map(float, weights)) for weights in others]
    return largest.index(max(largest))


def _step_tables(title: str, steps: "AttentionSteps", words: list[str], query: int) -> dict[str, TableCells]:
    """The six steps as three tables with a row per word; one table would be too wide for a terminal."""
    keys_values = [[word, _vector(key), _vector(value)] for word, key, value in zip(words, steps.keys, steps.values)]
    division = f"3  ÷ {1 / steps.scale:.3g}" if steps.scale else "3  score"  # not every score is a dot product
    rows = []
    for word, score, scaled, weight, weighted in zip(
        words, steps.scores.tolist(), steps.scaled.tolist(), steps.weights.tolist(), steps.weighted
    ):
        scaled_cell = "masked" if scaled == -float("inf") else f"{scaled:.2f}"
        rows.append([word, f"{score:.2f}", scaled_cell, f"{weight:.2f}", _vector(weighted)])
    return {
        title: (["", "1  query"], [[words[query], _vector(steps.query)]]),
        f"{title}, keys and values": (["", "1  key", "1  value"], keys_values),
        f"{title}, steps 2 to 6": (
            ["", "2  q·k", division, "4  softmax", "5  weight × value"],
            [*rows, ["6  sum", "", "", "", _vector(steps.output)]],
        ),
    }


def _vector(vector: "Tensor") -> str:
    numbers = " ".join(f"{number:5.2f}" for number in vector[:MAX_NUMBERS].tolist())
    return numbers + (" …" if len(vector) > MAX_NUMBERS else "")


def _data(steps: "AttentionSteps") -> dict[str, object]:
    return {name: getattr(steps, name) for name in ("scores", "scaled", "weights", "output", "scale")}


def _sections(tables: dict[str, TableCells], shown: HeadInBlock, verdict: str) -> "list[Section]":
    import torch

    from regard.render import report
    from regard.render.view import AttentionView
    from regard.render.view_data import Layer

    text = join_paragraphs(
        "Attention computes three vectors for every word: a query, a key and a value. The query of a word is compared "
        "with the keys of all words. A softmax turns these scores into weights that sum to 1. The output for the word "
        "is the sum of all values, each multiplied by its weight.",
        "The tables show these steps with the numbers of a textbook, and then in one head of a network that was just "
        "trained or loaded.",
    )
    *steps, _, rest = (report.Table(title, *table) for title, table in tables.items())
    weights = [torch.stack([one.weights for one in head]).numpy()[None] for head in shown.block.heads]
    views = [
        AttentionView(f"head {at}", shown.words, shown.keys, [Layer(f"layer {shown.layer}", head)])
        for at, head in enumerate(weights)
    ]
    heads = report.Gallery("All heads, all words", views)
    return [report.Text(text), *steps, heads, rest, report.Text(verdict)]
