"""Attention by hand: a textbook example, a head, a whole block.

Attention computes the output for a word in six steps. The numbers are those of the textbook example.

1. Compute a query, a key and a value for every word: its state times three matrices.

2. Multiply the query of the word with every key (dot product): 112 and 96. Another score compares them in another way.

3. Divide by the square root of the width, √64 = 8: 14 and 12.

4. Apply softmax to get weights that sum to 1: 0.88 and 0.12.

5. Multiply every value by its weight.

6. Sum. The result is the output of attention for the word.

The same steps are then shown for a head of a real model: the one that is given, or a small one that is trained now.
After that comes the rest of the block: the heads are concatenated and multiplied by W^O, the result is added to the
input of the block (residual connection), and the feed-forward layer follows. A post-norm block has a layer norm after
each addition, a pre-norm block before attention and before the feed-forward layer. Every line can be checked with a
calculator: it follows from the lines above. Everything is computed from the matrices in double precision and compared
with the output of the block itself.

In a recurrent encoder–decoder the query is a state of the decoder, and the keys and values are the states of the
encoder. Bahdanau's decoder attends before its recurrence: the query of step t is the state before it, s₍ₜ₋₁₎. Luong's
decoder attends after its recurrence: the query is the new state, s₍ₜ₎. With the additive score, step 2 is vᵀ tanh(Wq +
Uk). `decoder=bahdanau` shows this for a small model that copies letters; a directory with a recurrent translator shows
it for that model.
"""

import torch

from regard.explain.by_hand import AttentionSteps, BlockByHand, compute_by_hand, record_block_calls, textbook_example
from regard.explain.experiment import sizes_of, training_of
from regard.explain.grammar import BOS, SHAPE, encode, train_language_model
from regard.explain.options import AttentionOptions
from regard.explain.recurrent import TITLE, run_recurrent
from regard.explain.tokenized import expect_transformer, tokenize
from regard.explain.topic import Report, Result, check_index, no_report, prose
from regard.explain.worked import block_tables, steps_two_to_six
from regard.mask import CAUSAL
from regard.render import AttentionView, Layer
from regard.render.view_data import Floats
from regard.report.sections import Gallery, Section, Text
from regard.verbs import Loaded, load

SENTENCE = "the dogs behind a tree"  # the input of the small model: should a singular or a plural verb follow?


def run(options: AttentionOptions, report: Report = no_report) -> Result:
    """Computes attention by hand for a text: a block of a Transformer, or a step of a recurrent decoder."""
    model = load(options.model, "cpu") if options.model else None
    if options.decoder or (model and model.module.config.reads_source and model.module.config.query != "layer"):
        return run_recurrent(options, model, report)
    words, blocks, about = _blocks_of_model(options, model) if model else _blocks_of_small_model(options, report)
    layer, query = check_index("layer", options.layer, len(blocks)), check_index("word", options.word, len(words))
    block = blocks[layer]
    head = _sharpest_head(block, query) if options.head is None else check_index("head", options.head, len(block.heads))
    steps, textbook, word = block.heads[head][query], textbook_example(), f"“{words[query]}”"
    views = [
        AttentionView(f"head {at}", words, words, [Layer(f"layer {layer}", _stacked(each))])
        for at, each in enumerate(block.heads)
    ]
    sections: list[Section] = [
        prose(__doc__),
        *steps_two_to_six("Textbook example, width 64", textbook, ["word 1", "word 2"]),
        *block_tables(block, f"Layer {layer}, head {head}, query {word}", head, query, words),
        Gallery("All heads, all words", views),
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
    shown = (
        f"Shown is the query of {word}, word {query}, in layer {layer}, head {head}. Words, layers and "
        "heads count from 0."
    )
    return Result(TITLE, f"{about} {shown}", data, sections)


def _blocks_of_small_model(options: AttentionOptions, report: Report) -> tuple[list[str], list[BlockByHand], str]:
    """Trains a small language model; returns the words of a sentence, every block that reads it by hand, and a text."""
    words = [BOS, *SENTENCE.split()]
    network, _ = train_language_model("language model", CAUSAL, options.steps, options.seed, report)
    with torch.no_grad(), record_block_calls(network.double()) as calls:
        network(torch.tensor([encode(words)]))
        blocks = [compute_by_hand(call) for call in calls]
    about = (
        f"The first tables are the textbook example. The model is a causal language model ({sizes_of(SHAPE)}), "
        f"{training_of(options.steps, options.seed)} to predict the next word of the sentences of a toy grammar. It "
        f"reads “{' '.join(words)}”."
    )
    return words, blocks, about


def _blocks_of_model(options: AttentionOptions, model: Loaded) -> tuple[list[str], list[BlockByHand], str]:
    """The tokens of a text, every block of a model that reads it by hand (of a translator, the encoder), and a text."""
    text = tokenize(expect_transformer(model, options.model), options.text)
    text.model.module.double()
    with torch.no_grad(), record_block_calls(text.model.module) as calls:
        text.forward()
        blocks = [compute_by_hand(call) for call in calls if call.block.cross is None]
    about = f"The first tables are the textbook example. {text.model.about} It reads “{options.text.strip()}”."
    return text.pieces, blocks, about


def _sharpest_head(block: BlockByHand, query: int) -> int:
    """The head in which this word has the largest weight on another word."""
    others = [[*head[query].weights[:query], *head[query].weights[query + 1 :], 0.0] for head in block.heads]
    largest = [max(map(float, weights)) for weights in others]
    return largest.index(max(largest))


def _stacked(head: list[AttentionSteps]) -> Floats:
    """The weights of all queries of one head: (1, Tq, Tk)"""
    return torch.stack([one.weights for one in head]).float().numpy()[None]
