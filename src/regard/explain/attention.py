"""Attention by hand: a textbook example, a head, a whole block.

Attention computes the output for a word in six steps. The numbers are those of the textbook example.

1. Compute a query, a key and a value for every word: its state times three matrices.

2. Multiply the query of the word with every key (dot product): 112 and 96.

3. Divide by the square root of the width, √64 = 8: 14 and 12.

4. Apply softmax to get weights that sum to 1: 0.88 and 0.12.

5. Multiply every value by its weight.

6. Sum. The result is the output of attention for the word.

The same steps are then shown for a head of a real model: the one that is given, or a small one that is trained now.
After that comes the rest of the block: the heads are concatenated, multiplied by W^O, added to the input of the block
and normalised, and the feed-forward part follows. Everything is computed from the matrices in double precision and
compared with the output of the block itself.
"""

import torch
from torch import Tensor

from regard.errors import UserError
from regard.explain.by_hand import AttentionSteps, BlockByHand, compute_by_hand, record_block_calls, textbook_example
from regard.explain.grammar import BOS, encode, train_language_model
from regard.explain.options import AttentionOptions
from regard.explain.tokenized import load_transformer, tokenize
from regard.explain.topic import Report, Result, no_report, prose
from regard.mask import CAUSAL
from regard.render import AttentionView, Layer
from regard.render.view_data import Floats
from regard.report.sections import Gallery, Section, Table, Text

SENTENCE = "the dogs behind a tree"  # the input of the small model: should a singular or a plural verb follow?
MAX_NUMBERS = 4  # of a vector
MAX_HEADS = 12  # of a table


def run(options: AttentionOptions, report: Report = no_report) -> Result:
    """Computes a block by hand for a text, and shows one query in one head step by step."""
    words, blocks = _blocks_of_model(options) if options.model else _blocks_of_small_model(options, report)
    layer, query = _check_index("layer", options.layer, len(blocks)), _check_index("word", options.word, len(words))
    block = blocks[layer]
    head = (
        _sharpest_head(block, query) if options.head is None else _check_index("head", options.head, len(block.heads))
    )
    steps, textbook, word = block.heads[head][query], textbook_example(), f"“{words[query]}”"
    memory = len(steps.keys) - len(words)  # of Transformer-XL
    keys = [*["memory"] * memory, *words]
    shown = block.heads[:MAX_HEADS]
    weights = [[key, *(f"{each[query].weights[at]:.2f}" for each in shown)] for at, key in enumerate(keys)]
    stages = {
        "heads concatenated": block.concatenated,
        "× W^O": block.projected,
        "+ input of the block": block.added,
        "normalised": block.normed,
        "whole block, by hand": block.output,
        "whole block, by the model": block.expected,
    }
    views = [
        AttentionView(f"head {at}", words, keys, [Layer(f"layer {layer}", _stacked(each))])
        for at, each in enumerate(block.heads)
    ]
    title = f"Layer {layer}, head {head}, width {len(steps.query)}: query {word}"
    sections: list[Section] = [
        prose(__doc__),
        *_step_tables("Textbook example, width 64", textbook, ["word 1", "word 2"], 0),
        *_step_tables(title, steps, keys, memory + query),
        Table(
            f"Weights for query {word}, heads 0 to {len(shown) - 1} of {len(block.heads)}",
            ["", *(f"H{at}" for at in range(len(shown)))],
            weights,
        ),
        Gallery("All heads, all words", views),
        Table(
            f"The rest of the block: {word}",
            ["", "width", "first numbers"],
            [[name, states.shape[1], _vector(states[query])] for name, states in stages.items()],
        ),
        Text(
            f"The block computed by hand and the block of the model differ by at most {block.difference:.1e}, over all "
            f"{len(words)} words of layer {layer}."
        ),
    ]
    data = {
        "text": words,
        "block": block.name,
        "head": head,
        "word": words[query],
        "textbook": textbook.numbers,
        "model": steps.numbers,
        "heads": [each[query].weights for each in block.heads],
        "output": block.output[query],
        "difference": block.difference,
    }
    return Result("Attention, step by step", data, sections)


def _blocks_of_small_model(options: AttentionOptions, report: Report) -> tuple[list[str], list[BlockByHand]]:
    """Trains a small language model; returns the words of a sentence, and every block that reads it, by hand."""
    words = [BOS, *SENTENCE.split()]
    network, _ = train_language_model("language model", CAUSAL, options.steps, options.seed, report)
    with torch.no_grad(), record_block_calls(network.double()) as calls:
        network(torch.tensor([encode(words)]))
        return words, [compute_by_hand(call) for call in calls]


def _blocks_of_model(options: AttentionOptions) -> tuple[list[str], list[BlockByHand]]:
    """The tokens of a text, and every block of a model that reads it, by hand; of a translator, only the encoder."""
    text = tokenize(load_transformer(options.model), options.text)
    text.model.module.double()
    with torch.no_grad(), record_block_calls(text.model.module) as calls:
        text.forward()
        return text.pieces, [compute_by_hand(call) for call in calls if call.block.cross is None]


def _check_index(option: str, value: int, count: int) -> int:
    if not -count <= value < count:
        raise UserError(f"{option}={value}: there are {option}s 0 to {count - 1}.")
    return value % count


def _sharpest_head(block: BlockByHand, query: int) -> int:
    """The head in which this word has the largest weight on another word."""
    others = [[*head[query].weights[:query], *head[query].weights[query + 1 :], 0.0] for head in block.heads]
    largest = [max(map(float, weights)) for weights in others]
    return largest.index(max(largest))


def _stacked(head: list[AttentionSteps]) -> Floats:
    """The weights of all queries of one head: (1, Tq, Tk)"""
    return torch.stack([one.weights for one in head]).float().numpy()[None]


def _step_tables(title: str, steps: AttentionSteps, words: list[str], query: int) -> list[Table]:
    """The six steps as three tables with a row per word; one table would be too wide for a terminal."""
    keys_values = [[word, _vector(key), _vector(value)] for word, key, value in zip(words, steps.keys, steps.values)]
    division = f"3  ÷ {1 / steps.scale:.3g}" if steps.scale else "3  score"  # not every score is a dot product
    rows = []
    for word, score, scaled, weight, weighted in zip(
        words, steps.scores.tolist(), steps.scaled.tolist(), steps.weights.tolist(), steps.weighted
    ):
        scaled_cell = "masked" if scaled == -float("inf") else f"{scaled:.2f}"
        rows.append([word, f"{score:.2f}", scaled_cell, f"{weight:.2f}", _vector(weighted)])
    columns = ["", "2  q·k", division, "4  softmax", "5  weight × value"]
    return [
        Table(title, ["", "1  query"], [[words[query], _vector(steps.query)]]),
        Table(f"{title}, keys and values", ["", "1  key", "1  value"], keys_values),
        Table(f"{title}, steps 2 to 6", columns, [*rows, ["6  sum", "", "", "", _vector(steps.output)]]),
    ]


def _vector(vector: Tensor) -> str:
    numbers = " ".join(f"{number:5.2f}" for number in vector[:MAX_NUMBERS].tolist())
    return numbers + (" …" if len(vector) > MAX_NUMBERS else "")
