"""LSTMs that read a sentence in both directions and predict its words: with the word in sight, masked, or left out.

The part of the topic `masking` about bidirectional networks, on sentences of the toy grammar.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import IGNORED
from regard.explain.experiment import accuracy, mean_loss, train
from regard.explain.grammar import BOS, EOS, IDS, PAD, VOCABULARY, sample_batch
from regard.explain.topic import Report
from regard.layers.recurrent import Recurrent
from regard.models import Context2vecConfig
from regard.report.sections import Section, Table, Text

MASK = len(VOCABULARY)  # the id of the mask, which is no word of the grammar
WIDTH, LAYERS, RATE = 64, 2, 1e-2
MASKED = 0.2  # of the words of a sentence
TEXT = """
An LSTM can read a sentence in both directions. It then seems natural to train it to predict each word from the states
at its place, which have read both sides. Three networks try it. The first is a bidirectional
LSTM that reads the word that it must predict: its loss falls to almost 0, because it copies the word. It has learned
nothing about the words around it: if the word is masked, the loss is far higher than that of the others.

There are two ways out. One is to mask some words and to predict only these (BERT, Devlin et al. 2019). The other is to
keep the two directions apart: one network reads the words before a place, one the words after it, and only their last
states are joined (context2vec, Melamud et al. 2016; ELMo, Peters et al. 2018, trains both as language models). Two
directions that are joined in every layer do not suffice: the second layer sees the word in the states of the
neighbours.
"""


@dataclass(frozen=True)
class ReaderResult:
    """One of the networks: its loss as in training, and how it predicts a word that is masked."""

    name: str
    loss: float  # in nats per word
    masked_loss: float
    masked_accuracy: float


class WordPredictor(nn.Module):
    """Logits (B, T, words) of the word at each place, from features (B, T, width) of tokens (B, T)."""

    def __init__(self, features: Callable[[Tensor, Tensor], Tensor], parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features, self.parts = features, nn.ModuleList(parts)
        self.readout = nn.Linear(WIDTH, len(VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.readout(self.features(tokens, tokens != IDS[PAD]))


def bidirectional() -> WordPredictor:
    """A bidirectional LSTM: the state of a place has read its word, the words before it and those after it."""
    embedding, lstm = nn.Embedding(MASK + 1, WIDTH), Recurrent("lstm", WIDTH, WIDTH, LAYERS, directions=2)
    return WordPredictor(lambda tokens, real: lstm(embedding(tokens), real)[0], (embedding, lstm))


def separate() -> WordPredictor:
    """Two LSTMs, one for each side of a place: neither reads the word of the place."""
    half = WIDTH // 2
    config = Context2vecConfig(vocab=MASK + 1, width=WIDTH, embed=half, inner=WIDTH, layers=LAYERS, dropout=0.0)
    model: Any = config.build_body()
    return WordPredictor(model.features, (model,))


def words_of(generator: torch.Generator, rows: int = 48) -> tuple[Tensor, Tensor]:
    """Sentences (B, T), and as targets their own words; special tokens are ignored."""
    tokens, _ = sample_batch(generator, rows)
    special = torch.tensor([IDS[name] for name in (PAD, BOS, EOS)])
    return tokens, tokens.masked_fill(torch.isin(tokens, special), IGNORED)


def masked_words_of(generator: torch.Generator, rows: int = 48) -> tuple[Tensor, Tensor]:
    """Sentences with some words masked, and as targets the words that are masked."""
    tokens, targets = words_of(generator, rows)
    hidden = (torch.rand(tokens.shape, generator=generator) < MASKED) & (targets != IGNORED)
    return tokens.masked_fill(hidden, MASK), targets.masked_fill(~hidden, IGNORED)


def one_masked_of(generator: torch.Generator, rows: int) -> tuple[Tensor, Tensor]:
    """Sentences with one word masked, and as target this word."""
    tokens, targets = words_of(generator, rows)
    chosen = torch.rand(tokens.shape, generator=generator).masked_fill(targets == IGNORED, -1.0).argmax(1)
    hidden = torch.arange(tokens.shape[1]) == chosen[:, None]
    return tokens.masked_fill(hidden, MASK), targets.masked_fill(~hidden, IGNORED)


READERS = {
    "bidirectional, sees the word": (bidirectional, words_of),
    "bidirectional, some words masked": (bidirectional, masked_words_of),
    "two separate directions": (separate, words_of),
}


def train_readers(steps: int, seed: int, report: Report) -> list[ReaderResult]:
    """Trains the three networks, and tests each on the same sentences."""
    results = []
    for name, (build, sample) in READERS.items():
        torch.manual_seed(seed)
        network = build()
        train(name, network, sample, steps, seed, RATE, report)
        results.append(_evaluate(name, network.eval(), sample, seed))
    return results


@torch.no_grad()
def _evaluate(
    name: str, network: WordPredictor, sample: Callable[..., tuple[Tensor, Tensor]], seed: int
) -> ReaderResult:
    tokens, targets = sample(torch.Generator().manual_seed(2**40 + seed), 512)
    masked, words = one_masked_of(torch.Generator().manual_seed(2**41 + seed), 2048)
    logits = network(masked)
    return ReaderResult(name, mean_loss(network(tokens), targets), mean_loss(logits, words), accuracy(logits, words))


def reader_sections(results: Sequence[ReaderResult]) -> list[Section]:
    """What the three networks show, and their numbers."""
    rows = [[one.name, f"{one.loss:.3f}", f"{one.masked_loss:.3f}", f"{one.masked_accuracy:.0%}"] for one in results]
    note = (
        f"In nats per word; chance is {math.log(len(VOCABULARY)):.3f}, and {1 / len(VOCABULARY):.1%} of the words. "
        "“masked” is measured on one word of each of 2048 new sentences, which is replaced by a mask. The first and "
        f"the last network have not seen masks in training; the second has {MASKED:.0%} of the words masked."
    )
    columns = ["", "loss", "loss, masked", "accuracy, masked"]
    return [
        Text(TEXT, "A bidirectional LSTM cannot be trained to predict the word that it sees"),
        Table("Predicting the word at each place", columns, rows, note),
    ]
