"""The words that pages define, and links from pages to the documentation."""

import os
from collections.abc import Iterable
from pathlib import Path

from regard.report.sections import Table

DOCS = Path(__file__).parents[3] / "docs"  # in a copy of the source; an installed package has no documentation
WORDS = {  # each meaning is how docs/glossary.md begins to define the word
    "alignment": (
        "Which source unit corresponds to which target unit. It is derived from the weights of cross-attention."
    ),
    "attention": (
        "A query is compared with every key; a softmax makes weights of the comparisons; the output is the "
        "weighted sum of the values."
    ),
    "attention ahead": "The part of the attention weights that goes to later positions.",
    "BLEU": (
        "A metric of translations, 0 to 100: the precision of n-grams of 1 to 4 words against a reference, with a "
        "penalty for outputs that are too short (Papineni et al. 2002)."
    ),
    "causal": "Each token attends only to itself and to tokens before it.",
    "chance": (
        "The result of a guess that does not use the input, such as a choice among all classes with equal "
        "probability. A result near chance shows that nothing was learned."
    ),
    "context": "The output of one attention read: the weighted mean of the values.",
    "cross-attention": "Attention in which the queries come from a target and the keys and values from a source.",
    "cross-entropy": (
        "The mean negative log-probability of the right tokens, in nats per token: the loss of most objectives here."
    ),
    "decoder": (
        "The part of a model that predicts the next token from the tokens before it, and from a source if there is one."
    ),
    "dilation": "Of a convolution: the distance between neighbouring positions that it reads.",
    "encoder": "The part of a model that reads a whole text, in both directions, and computes a vector for each token.",
    "entropy": (
        "−Σ p ln p of a distribution, in nats: 0 if one outcome has all of the probability, ln n if n outcomes are "
        "equally likely."
    ),
    "exposure bias": "How much worse a model is when it reads its own outputs instead of the true target.",
    "feed-forward layer": "Two linear layers with an activation function between them, applied to each position alone.",
    "filter": "A small array of weights that a convolution moves over its input; its output is large where they match.",
    "gradient": (
        "The derivatives of an output with respect to its inputs or weights. Training changes weights by it; where "
        "it is almost 0, nothing can be learned."
    ),
    "grammatical": "Of a generated sentence: the toy grammar can produce it.",
    "head": "One of several attentions that a multi-head layer computes in parallel, each with its own projections.",
    "hop": "One of the several queries of structured self-attention.",
    "key": "A vector that a query is compared with.",
    "layer norm": (
        "Subtracts the mean of a vector, divides by its standard deviation, then multiplies by a learned gain and "
        "adds a learned shift. A post-norm block normalises after each residual addition, a pre-norm block before "
        "each layer."
    ),
    "linear probe": (
        "A linear regression that predicts a property, such as the position of a word, from a state. If it "
        "predicts well, the state contains the property."
    ),
    "logits": "Numbers from which a softmax makes probabilities (of tokens) or weights (of keys).",
    "loss": "The number that training minimises, mostly the cross-entropy.",
    "mask": 'Which query may attend to which key; True means "may".',
    "multi-head attention": (
        "Several attentions in parallel on smaller vectors; their outputs are joined and projected (Vaswani et al. "
        "2017)."
    ),
    "nats": "The unit of entropy and cross-entropy with natural logarithms.",
    "operations": "Multiplications and additions of a forward pass; one of each counts as two.",
    "parameters": "The numbers in a model that training changes.",
    "path": (
        "The number of steps between two positions through a network, which is how far a gradient must travel from "
        "one to the other."
    ),
    "perplexity": (
        "e to the power of the cross-entropy. A model with perplexity 10 is as uncertain, on average, as a choice "
        "among 10 equally likely tokens."
    ),
    "piece": "A token as text, as pictures and tables show it.",
    "positions": (
        "Where each token is in its text. Attention alone ignores the order of tokens, so a model adds it, for "
        "example as sinusoids or learned vectors."
    ),
    "query": "The vector that attention compares with the keys.",
    "recall": (
        "Of a network: to name, at the end of a sequence, a symbol that was marked earlier. Of an alignment: the "
        "part of the gold links that were found."
    ),
    "receptive field": "The positions of the input that an output depends on.",
    "residual connection": "The input of a layer is added to its output: x + f(x).",
    "rung": "One of the models that a ladder compares.",
    "R²": "The part of the variance that a prediction explains: 1 is perfect, 0 is no better than the mean.",
    "score": "The function that compares a query with a key.",
    "self-attention": "Attention in which queries, keys and values come from the same text.",
    "softmax": "exp(xᵢ) / Σⱼ exp(xⱼ): positive numbers that sum to one.",
    "spread": "Of logits: their standard deviation.",
    "state": (
        "The vector that a layer computes at a position of the text. Of a decoder: what it carries from step to step, "
        "such as hidden vectors, a KV cache or the encoded source."
    ),
    "step": "In training: one update of the weights.",
    "teacher forcing": "Training in which the model reads the true target, not its own outputs.",
    "token": "A unit of text with a number (id): a character, a word, a sub-word or a byte.",
    "uniform attention": "Equal weights on all visible keys: the attention of a head that prefers nothing.",
    "value": "A vector of which attention computes the weighted mean.",
    "weights": "Of attention: how much each query takes from each key.",
    "width": "The length of the vectors of a model.",
}

PART_WORDS = {"encoder": "encoder", "decoder": "decoder", "cross-attention": "cross"}  # word → part of a model


def glossary(words: Iterable[str]) -> Table:
    """The meanings of some words, as the last section of a page."""
    return Table("Words", ["word", "meaning"], [[word, WORDS[word]] for word in sorted(words, key=str.lower)])


def docs_folder(page: Path) -> str:
    """The relative path from a page to the documentation; empty if there is none on this machine."""
    return os.path.relpath(DOCS, page.parent) if (DOCS / "glossary.md").is_file() else ""
