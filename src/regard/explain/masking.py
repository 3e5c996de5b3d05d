"""Why a language model needs a causal mask.

Two small Transformers learn to predict the next word at all positions of a sentence at once. They differ only in the
mask. The one without a mask sees the whole sentence, and with it the word that it must predict. With enough steps (the
default is enough) it learns to attend to the next position and to copy the word there. Its loss falls to almost 0, far
below the lowest loss that a causal model can reach, but it has learned nothing about the language. (The lowest loss is
the entropy of the language, which is known here because the sentences come from a small grammar.)

At generation there is no next word yet. With a causal mask, the loss of this network is high, and the sentences that
it generates are wrong. The network that was trained with a causal mask could never copy, so it had to learn the
language.

A network that reads both sides of a word has the same problem. A bidirectional LSTM that is trained to predict each
word from the state at its place copies the word. Some words must be masked, or the two directions kept apart.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
import torch

from regard.explain.both_sides import reader_sections, train_readers
from regard.explain.experiment import TinyTransformer, mean_loss, sizes_of, training_of
from regard.explain.grammar import (
    PAD,
    SHAPE,
    VOCABULARY,
    SentenceSampler,
    entropy_per_token,
    generate_sentences,
    is_grammatical,
    sample_batch,
    train_language_model,
)
from regard.explain.options import MaskingOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.recording import record
from regard.render import AttentionView, Layer
from regard.report.sections import Gallery, Pre, Section, Table

READING = """
The loss without a mask is no success: the network copies the next word, which does not exist at generation. If the loss
of a model of yours is surprisingly low, check for such a leak first. `regard score` prints the probability of each
token of a text.

The bidirectional LSTM that sees the word has almost no loss, and the highest loss where the word is masked. The network
with separate directions has about the same loss in training and with masks, because it never reads the word.
"""
MASKS = {"causal mask": CAUSAL, "no mask": EVERYTHING}


@dataclass(frozen=True)
class NetworkResult:
    """One of the two networks: its loss and the sentences that it generates."""

    name: str
    loss: float  # on test sentences with the mask of training, in nats per token
    causal_loss: float  # the same with the causal mask, as at generation
    future_attention: float  # part of the attention that goes to later positions
    grammatical: float  # part of the generated sentences that the grammar allows
    examples: list[str]
    weights: list[list[float]]  # (Tq, Tk) for one sentence, mean over heads and layers


def run(options: MaskingOptions, report: Report = no_report) -> Result:
    """Trains both networks, tests them on the same sentences, and generates sentences with each; then three LSTMs."""
    networks = []
    for name, mask in MASKS.items():
        network, _ = train_language_model(name, mask, options.steps, options.seed, report)
        networks.append(_evaluate(name, network, options))
    readers = train_readers(options.steps, options.seed, report)
    tokens, _ = sample_batch(torch.Generator().manual_seed(options.seed), rows=1)
    sentence = [word for token in tokens[0].tolist() if (word := VOCABULARY[token]) != PAD]
    entropy = entropy_per_token()
    guess = random_sentences(options.seed)
    note = (
        f"Chance: if all {len(VOCABULARY)} words are equally likely, the loss is {math.log(len(VOCABULARY)):.3f}, and "
        f"{guess:.1%} of the sentences are grammatical. The entropy of the grammar is {entropy:.3f} nats per word: no "
        "causal model can have a lower loss. “loss, causal” is the loss with a causal mask, as at generation. "
        "“attention ahead” is the part of the attention that goes to later words. “grammatical” is the part of the "
        "generated sentences that the grammar allows."
    )
    rows = [
        [one.name, f"{one.loss:.3f}", f"{one.causal_loss:.3f}", f"{one.future_attention:.0%}", f"{one.grammatical:.0%}"]
        for one in networks
    ]
    layer = "mean of all heads and layers"
    views = [
        AttentionView(one.name, sentence, sentence, [Layer(layer, np.array([one.weights], dtype=np.float32))])
        for one in networks
    ]
    columns = ["", "loss", "loss, causal", "attention ahead", "grammatical"]
    sections: list[Section] = [
        prose(__doc__),
        Table("Predicting the next word", columns, rows, note),
        *(Pre("\n".join(one.examples), f"Sentences generated with {one.name}") for one in networks),
        Gallery("Attention in training", views),
        *reader_sections(readers),
        reading(READING, options),
    ]
    about = {"steps": options.steps, "seed": options.seed, "entropy": entropy, "sentence": sentence}
    shown = (
        f"Two Transformers ({sizes_of(SHAPE)}), each {training_of(options.steps, options.seed)}. The task is to "
        f"predict the next word of sentences of a toy grammar with {len(VOCABULARY)} words. Both are tested on the "
        f"same 512 new sentences, and each generates {options.count} sentences. Then three LSTMs, trained as long, "
        "predict the word at each place."
    )
    return Result(
        "Why a language model needs a causal mask", shown, {**about, "networks": networks, "readers": readers}, sections
    )


def random_sentences(seed: int, count: int = 2000) -> float:
    """The part of random sequences of words, as long as sentences are, that the grammar allows: the level of chance."""
    rng = random.Random(seed)
    lengths = [len(SentenceSampler(rng).sentence()) for _ in range(count)]
    return sum(is_grammatical([*rng.choices(VOCABULARY[4:], k=length - 1), "."]) for length in lengths) / count


@torch.no_grad()
def _evaluate(name: str, network: TinyTransformer, options: MaskingOptions) -> NetworkResult:
    tokens, targets = sample_batch(torch.Generator().manual_seed(2**40 + options.seed), rows=512)

    def loss(mask: Mask) -> float:
        return mean_loss(network.readout(network.states(tokens, mask)), targets)

    example, _ = sample_batch(torch.Generator().manual_seed(options.seed), rows=1)
    with record(network) as tape:
        network(example)
    weights = torch.stack([tape[layer] for layer in tape]).mean(dim=(0, 1, 2))  # (layers, 1, H, T, T) → (T, T)
    sentences = generate_sentences(network, options.count, options.seed)
    return NetworkResult(
        name,
        loss(network.mask),
        loss(CAUSAL),
        future_attention=(weights.triu(1).sum() / weights.sum()).item(),
        grammatical=sum(map(is_grammatical, sentences)) / len(sentences),
        examples=[" ".join(words) for words in sentences[:6]],
        weights=weights.tolist(),
    )
