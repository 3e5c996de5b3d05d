"""What pre-training gives: accuracy against the number of labels.

Texts without labels are plentiful, and labelled texts are few. So a model is first trained on texts without labels: to
predict masked words (“masked”: BERT, Devlin et al. 2019) or the next word (“causal”: GPT, Radford et al. 2018). Then it
gets a new output layer and learns a task from a few labelled sentences. Either all its weights are trained further
(fine-tuned), or its states stay as they are and only the output layer is trained (frozen). For comparison, the same
network learns the task from scratch, without pre-training.

The task is the number of the subject, singular or plural, in sentences of a toy grammar: “the dogs behind a tree sleep
.” is plural. The verb shows the number; another noun of the sentence may have another number, as “tree” has here. From
scratch, a model learns the number of a verb only from labelled sentences with this verb. A pre-trained model has learnt
from texts alone which verbs occur with the same subjects.

Each classifier gets the mean of the last states of a sentence. It is tested on sentences that occur neither in
pre-training nor among the labelled sentences.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import IGNORED
from regard.data.corruption import MaskTokens
from regard.data.flat import Rows
from regard.device import single_thread
from regard.explain.experiment import (
    TinyTransformer,
    accuracy,
    seeds_of,
    sizes_of,
    train,
    training_of,
)
from regard.explain.grammar import (
    BOS,
    EOS,
    IDS,
    INTRANSITIVE_VERBS,
    NUMBERS,
    PAD,
    TRANSITIVE_VERBS,
    VOCABULARY,
    SentenceSampler,
    next_words,
    padded,
)
from regard.explain.options import TransferOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.transformer import Shape
from regard.mask import EVERYTHING, Mask
from regard.report.figures import mean_line, with_spread
from regard.report.sections import Curve, Section, Table

READING = """
With 8 labelled sentences, the pre-trained models classify about nine of ten new sentences correctly, and the same
network from scratch about seven. From scratch, the network needs between 4 and 16 times as many labels to be as good.
With 512 labels, every network whose weights are all trained has learnt the task, and pre-training does not help any
more.

With 8 labels, the frozen states of the pre-trained models are about as good as fine-tuning. With more labels, those of
the masked model stay three to five points below it; those of the causal model do not. Compare these results with the
frozen states of a network that is not trained: a linear layer learns a lot even from such random vectors.

With 8 labels the seeds differ by up to ten points, so these results do not show which of the four pre-trained
classifiers is the best. There is one pre-trained network of each kind. The learning rates were chosen with other seeds
than those of the table. To predict words of this grammar, a language model must learn the number of verbs, which is
just what the task needs. Pre-training may help less in another task.
"""
MASK = len(VOCABULARY)  # the id of the mask, which is no word of the grammar
SHAPE = Shape(width=64, heads=4, layers=2, inner=128, context=32, norm_place="pre", dropout=0.0, positions="sinusoidal")
ROWS, LABELLED_ROWS, TESTED = 48, 16, 1000
PRETRAIN_RATE, SCRATCH_RATE, TUNED_RATE, FROZEN_RATE = 3e-3, 3e-3, 1e-3, 1e-1
SINGULAR = {*INTRANSITIVE_VERBS[NUMBERS[0]], *TRANSITIVE_VERBS[NUMBERS[0]]}


class Body(TinyTransformer):
    """A Transformer that does not attend to padding."""

    def states(self, tokens: Tensor, mask: Mask | None = None) -> Tensor:
        return super().states(tokens, (self.mask if mask is None else mask) & Mask(keys=tokens != IDS[PAD]))

    def mean_state(self, tokens: Tensor) -> Tensor:
        """The mean over the words of each sentence: (B, T) → (B, 1, width)"""
        real = (tokens != IDS[PAD])[..., None]
        return (self.states(tokens) * real).sum(dim=1, keepdim=True) / real.sum(dim=1, keepdim=True)


class Classifier(nn.Module):
    """Logits (B, 1, 2) of singular and plural for sentences (B, T)."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body, self.out = body, nn.Linear(SHAPE.width, len(NUMBERS))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.body.mean_state(tokens))


@dataclass(frozen=True)
class TransferResult:
    """One way to learn the task: the accuracy on the test by number of labels, one for each seed."""

    name: str
    accuracy: dict[int, list[float]]


def sample_sentences(seed: int, count: int, new: bool = False) -> list[list[str]]:
    """Random sentences. A tenth of all sentences are kept for the test: a sentence is one of them if it is `new`."""
    sampler, found = SentenceSampler(random.Random(seed)), list[list[str]]()
    while len(found) < count:
        words = sampler.sentence()
        if (crc32(" ".join(words).encode()) % 10 == 0) == new:
            found.append(words)
    return found


def labelled_sentences(seed: int, count: int) -> list[list[str]]:
    """Random sentences with labels, in turn singular and plural: among eight random ones, all may be of one class."""
    drawn = sample_sentences(seed, 8 * count + 100)
    by_class = [[words for words in drawn if SINGULAR.isdisjoint(words) == plural] for plural in (False, True)]
    return [words for both in zip(*by_class) for words in both][:count]


def labels_of(sentences: Sequence[Sequence[str]]) -> Tensor:
    """0 for singular, 1 for plural: the number of the verb, which is that of the subject; (B, 1)"""
    return torch.tensor([[int(SINGULAR.isdisjoint(words))] for words in sentences])


def masked_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sentences with 15 % of the words masked (80/10/10), and the words to predict."""
    seed = int(torch.randint(2**62, (), generator=generator))
    tokens = padded(sample_sentences(seed, ROWS))
    special = (IDS[PAD], IDS[BOS], IDS[EOS], MASK)
    corruption = MaskTokens(MASK, MASK + 1, special)
    rows = corruption(Rows.of([{"text": row[row != IDS[PAD]].numpy()} for row in tokens]), np.random.default_rng(seed))
    width = tokens.shape[1]
    return rows.padded("text", width, IDS[PAD]), rows.padded("targets", width, IGNORED)


def causal_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sentences, and the next word at every place."""
    return next_words(sample_sentences(int(torch.randint(2**62, (), generator=generator)), ROWS))


PRETRAINED = {"masked": (EVERYTHING, masked_batch), "causal": (Mask(causal=True), causal_batch)}


def run(options: TransferOptions, report: Report = no_report) -> Result:
    """Pre-trains two models, and learns the task from each number of labels: from scratch, fine-tuned and frozen."""
    bodies: dict[str, Body] = {}
    for name, (mask, sample) in PRETRAINED.items():
        torch.manual_seed(options.seed)
        bodies[name] = Body(SHAPE, MASK + 1, mask)
        train(f"{name} model", bodies[name], sample, options.steps, options.seed, PRETRAIN_RATE, report)
    results = [
        _learn("from scratch", None, False, SCRATCH_RATE, options, report),
        *(_learn(f"{name}, fine-tuned", body, False, TUNED_RATE, options, report) for name, body in bodies.items()),
        *(_learn(f"{name}, frozen", body, True, FROZEN_RATE, options, report) for name, body in bodies.items()),
        _learn("not trained, frozen", None, True, FROZEN_RATE, options, report),
    ]
    rows = [[one.name, *(with_spread(one.accuracy[count], 1, 100) for count in options.labels)] for one in results]
    note = (
        f"Accuracy on {TESTED:,} new sentences, {seeds_of(options.seeds)}. A seed changes the labelled sentences (one "
        "half of each class) and the initial weights of what is new; the pre-trained models are the same for all "
        "seeds. Chance is 50%."
    )
    lines = [mean_line(one.name, list(one.accuracy), list(one.accuracy.values())) for one in results]
    sections: list[Section] = [
        prose(__doc__),
        Table("Accuracy in %, by the number of labels", ["", *map(str, options.labels)], rows, note),
        Curve(
            "Accuracy against the number of labels", "labelled sentences", "accuracy", lines, log_x=True, ends=(0, 1)
        ),
        reading(READING, options),
    ]
    about = (
        f"Two Transformers ({sizes_of(SHAPE)}), {training_of(options.steps, options.seed)} on sentences of a toy "
        f"grammar without labels, {ROWS} in a step: one predicts masked words, one the next word. Each classifier is "
        f"trained for {options.fit} steps, {LABELLED_ROWS} labelled sentences in a step."
    )
    data = {"steps": options.steps, "fit": options.fit, "seed": options.seed, "seeds": options.seeds, "ways": results}
    return Result("Transfer", about, data, sections)


def _learn(
    name: str, body: Body | None, frozen: bool, rate: float, options: TransferOptions, report: Report
) -> TransferResult:
    """Learns the task with each number of labels and each seed, from a body or from a new one."""
    tested = sample_sentences(2**40 + options.seed, TESTED, new=True)
    tokens, answers = padded(tested), labels_of(tested)
    found: dict[int, list[float]] = {count: [] for count in options.labels}
    for count in options.labels:
        for seed in range(options.seed, options.seed + options.seeds):
            torch.manual_seed(seed)
            start = Body(SHAPE, MASK + 1) if body is None else copy.deepcopy(body)
            sentences = labelled_sentences(2**41 + seed, count)
            classifier = _fit(f"{name}, {count} labels", start, frozen, sentences, options.fit, seed, rate, report)
            with torch.no_grad(), single_thread():
                found[count].append(accuracy(classifier(tokens), answers))
    return TransferResult(name, found)


def _fit(
    name: str,
    body: Body,
    frozen: bool,
    sentences: Sequence[Sequence[str]],
    steps: int,
    seed: int,
    rate: float,
    report: Report,
) -> Classifier:
    """Trains a classifier on labelled sentences: all of its weights, or above a frozen body the output layer alone."""
    classifier, inputs, labels = Classifier(body), padded(sentences), labels_of(sentences)
    network: nn.Module = classifier
    if frozen:
        with torch.no_grad(), single_thread():
            network, inputs = classifier.out, body.eval().mean_state(inputs)  # the states are computed once

    def sample(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(inputs), (LABELLED_ROWS,), generator=generator)
        return inputs[rows], labels[rows]

    train(name, network, sample, steps, seed, rate, report)
    return classifier.eval()
