"""ELMo's mix of layers: “stick” in “let us stick to the plan”.

A deep language model has several vectors for a word: its embedding, and a state of each layer, forward and backward
states side by side. ELMo (Peters et al. 2018, eq. 1) does not choose one. Each task learns a weight for every layer,
s = softmax(w), and a scale γ, and uses γ · Σ sⱼ · layerⱼ. The language model itself stays as it is.

Different tasks need different layers. Here a small language model of both directions is trained first, on sentences
about plans and about wood in which “stick” is a verb or a noun. Then two tasks learn a mix and a linear classifier on
its frozen layers: the class of each word (verb, noun, adjective or other), and the topic of the sentence (a plan or
wood), which the classifier must predict at every word, even at “the”.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.example import Corpus, Text, Tokens
from regard.device import single_thread
from regard.explain.experiment import train_prepared, training_of
from regard.explain.options import MixOptions
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.layers.mix import ScalarMix
from regard.models import RecurrentLmConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe, with_kinds
from regard.report.sections import Heatmap, Heatmaps, Section, Table
from regard.training.prepare import prepare
from regard.verbs import Loaded

READING = """
From the embedding, the class of most words can be predicted, because most words have only one class. “stick” has two,
and a state of the LSTM is needed to separate them. The embedding of “the” or “to” does not show the topic; the states
of the upper layers do. The weights agree with this: the topic takes nearly nothing from the embedding, and the word
class takes more. But the weights also depend on the sizes of the vectors, because the mix does not normalise them: here
the numbers of the embeddings are the largest, since those of an LSTM's states are between −1 and 1.
"""
EXAMPLE, WORD = "let us stick to the plan .", "stick"
CLASSES = ("verb", "noun", "adjective", "other")
TEMPLATES = {  # each word with the first letter of its class; a slot has the words of SLOTS
    "plan": (
        "let/v us/o stick/v to/o the/o {aim}/n ./o",
        "we/o {keep}/v to/o the/o {fine}/a {aim}/n ./o",
        "they/o stick/v with/o a/o {fine}/a {aim}/n ./o",
        "the/o {boss}/n will/o {keep}/v the/o {aim}/n ./o",
        "a/o {boss}/n and/o the/o {boss}/n stick/v to/o it/o ./o",
        "let/v the/o {boss}/n {keep}/v it/o ./o",
    ),
    "wood": (
        "the/o {dog}/n will/o {fetch}/v the/o {rough}/a stick/n ./o",
        "let/v the/o {dog}/n {fetch}/v a/o stick/n ./o",
        "a/o {rough}/a stick/n and/o the/o {tree}/n ./o",
        "we/o {fetch}/v a/o {tree}/n to/o the/o {dog}/n ./o",
        "they/o {fetch}/v it/o with/o a/o stick/n ./o",
        "the/o stick/n of/o the/o {dog}/n was/v {rough}/a ./o",
    ),
}
SLOTS = {
    "aim": "plan budget schedule rule contract deadline list method",
    "keep": "keep change discuss follow drop write check accept",
    "fine": "new strict good old clear short simple strange",
    "boss": "manager committee lawyer teacher chairman minister editor clerk",
    "dog": "dog boy farmer girl wolf hunter gardener puppy",
    "fetch": "fetch throw burn find break carry lose bury",
    "rough": "dry long heavy wet thin crooked broken green",
    "tree": "branch tree log root stump twig leaf plank",
}
TRAINING, TESTING = 200, 100  # sentences of the classifiers


@dataclass(frozen=True)
class Tagged:
    """A sentence, the class of each of its words, and what it is about."""

    words: tuple[str, ...]
    classes: tuple[str, ...]
    topic: str


def sample_tagged(rng: random.Random, new: bool = False) -> Tagged:
    """A random sentence. A tenth of all sentences are kept for tests: a sentence is one of them if it is `new`."""
    while True:
        topic = rng.choice(list(TEMPLATES))
        pairs = [piece.split("/") for piece in rng.choice(TEMPLATES[topic]).split()]
        words = tuple(rng.choice(SLOTS[word[1:-1]].split()) if word.startswith("{") else word for word, _ in pairs)
        if (crc32(" ".join(words).encode()) % 10 == 0) == new:
            classes = (next(name for name in CLASSES if name[0] == letter) for _, letter in pairs)
            return Tagged(words, tuple(classes), topic)


@dataclass(frozen=True)
class TaggedTexts:
    """Sentences for the language model."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "two-way language")

    train: int = 3000  # number of training sentences
    valid: int = 100  # number of validation sentences
    seed: int = 1  # random seed of the sentences
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 150  # the largest size of the vocabulary

    def load(self) -> Corpus:
        rng = random.Random(self.seed)
        examples = [Text(" ".join(sample_tagged(rng).words)) for _ in range(self.train + self.valid)]
        return Corpus(examples[: self.train], examples[self.train :])


@dataclass(frozen=True, eq=False)
class TaskResult:
    """What a task has learnt: the weights of the layers, the scale, and accuracies on new sentences."""

    task: str
    weights: list[float]
    scale: float
    accuracy: float  # of the mix
    layers: list[float]  # of a classifier of each layer alone
    chance: float  # of the most frequent answer
    answer: str  # for the word of the example
    vector: list[float]  # of the word of the example: the sum


def run(options: MixOptions, report: Report = no_report) -> Result:
    """Trains the language model, then a mix and a classifier for each of two tasks."""
    kinds = with_kinds({"data": {"tagged": TaggedTexts}})
    steps = max(1, options.steps)
    config = RecurrentLmConfig(width=32, embed=32, layers=2, dropout=0.0, direction="both")
    plan = Plan(steps, batch_tokens=1024, rate=1e-2, warmup=steps // 10, seed=options.seed, device="cpu")
    recipe = Recipe("biLM", "", TaggedTexts(seed=options.seed), config, TeacherForcing(), plan, ())
    model = train_prepared("biLM", prepare(recipe, kinds=kinds), options.steps, report, kinds)
    rng = random.Random(options.seed + 1)
    texts = [sample_tagged(rng, new) for new, count in ((False, TRAINING), (True, TESTING)) for _ in range(count)]
    train = sum(len(one.words) for one in texts[:TRAINING])
    answers = {
        "word class": ([each for one in texts for each in one.classes], CLASSES),
        "topic": ([one.topic for one in texts for _ in one.words], tuple(TEMPLATES)),
    }
    with single_thread():
        layers, (example,) = word_layers(model, [one.words for one in texts]), [EXAMPLE.split()]
        shown = word_layers(model, [example])[:, example.index(WORD)]  # (layers, D)
        results = [
            learn(task, layers, [names.index(each) for each in found], train, names, shown, options)
            for task, (found, names) in answers.items()
        ]
    titles = ["embedding", *(f"layer {number}" for number in range(1, len(layers)))]
    sections: list[Section] = [
        prose(__doc__),
        _task_table(results, titles),
        _word_table(results, titles, shown),
        Heatmaps("The weights of the layers", [_weights(results, titles)]),
        reading(READING, options),
    ]
    about = (
        f"A language model of both directions (two networks, LSTMs with two layers of width 32), "
        f"{training_of(options.steps, options.seed)} on {TaggedTexts().train:,} sentences, and two classifiers of its "
        f"frozen layers, trained on {TRAINING} sentences and tested on {TESTING} that none of the three has read."
    )
    numbers = {"steps": options.steps, "seed": options.seed, "layers": titles, "word": shown, "tasks": results}
    return Result("ELMo's mix of layers", about, numbers, sections)


@torch.no_grad()
def word_layers(model: Loaded, texts: Sequence[Sequence[str]]) -> Tensor:
    """The vectors (layers, N, D) of all words of texts, one text after the other, without bos and eos."""
    module: Any = model.module
    special, found = model.tokenizer.special_tokens, []
    for words in texts:
        ids = special.wrap_input(model.tokenizer.encode(" ".join(words)))
        found.append(torch.stack([layer[0, 1:-1] for layer in module.layers(torch.tensor([ids]))]))
    return torch.cat(found, 1)


def learn(
    task: str,
    layers: Tensor,
    answers: Sequence[int],
    train: int,
    names: Sequence[str],
    word: Tensor,
    options: MixOptions,
) -> TaskResult:
    """Learns a mix of layers (L, N, D) with a linear classifier, and for comparison a classifier of each layer.

    The first `train` of the N words are for training, the others for the test.
    """
    targets = torch.tensor(answers)
    mix, linear = _fit(layers[:, :train], targets[:train], len(names), options)
    alone = [_fit(one[None, :train], targets[:train], len(names), options) for one in layers]

    def accuracy(parts: tuple[ScalarMix, nn.Linear], some: Tensor) -> float:
        found = parts[1](parts[0](some[:, train:].unsqueeze(1)))[0].argmax(-1)
        return (found == targets[train:]).float().mean().item()

    with torch.no_grad():
        vector = mix(word[:, None, None])[0, 0]
        return TaskResult(
            task,
            mix.weights.softmax(0).tolist(),
            mix.scale.item(),
            accuracy((mix, linear), layers),
            [accuracy(parts, one[None]) for parts, one in zip(alone, layers)],
            targets[train:].bincount().max().item() / len(targets[train:]),
            names[int(linear(vector).argmax())],
            vector.tolist(),
        )


def _fit(layers: Tensor, targets: Tensor, classes: int, options: MixOptions) -> tuple[ScalarMix, nn.Linear]:
    torch.manual_seed(options.seed)
    mix, linear = ScalarMix(len(layers)), nn.Linear(layers.shape[-1], classes)
    optimizer = torch.optim.Adam([*mix.parameters(), *linear.parameters()], lr=0.03, weight_decay=1e-4)
    for _ in range(options.fit):
        loss = F.cross_entropy(linear(mix(layers.unsqueeze(1)))[0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return mix, linear


def _task_table(results: Sequence[TaskResult], titles: Sequence[str]) -> Table:
    rows = []
    for one in results:
        rows += [
            [f"{one.task}: weight", *(f"{value:.2f}" for value in one.weights), f"γ {one.scale:.2f}"],
            [f"{one.task}: accuracy", *(f"{value:.1%}" for value in one.layers), f"{one.accuracy:.1%}"],
        ]
    chances = ", ".join(f"{one.chance:.1%} for the {one.task}" for one in results)
    note = (
        "“weight” is softmax(w), the learnt part of each layer in the mix; before training the parts are equal and γ "
        "is 1. “accuracy” is that of a classifier of one layer alone, and of the mix, on words of new sentences. "
        f"Chance, the most frequent answer: {chances}."
    )
    return Table("Two tasks, one language model", ["", *titles, "mix"], rows, note)


def _weights(results: Sequence[TaskResult], titles: Sequence[str]) -> Heatmap:
    values = np.array([one.weights for one in results])
    return Heatmap("softmax(w)", "layer", "task", values, [one.task for one in results], titles)


def _word_table(results: Sequence[TaskResult], titles: Sequence[str], word: Tensor) -> Table:
    def numbers(vector: Sequence[float]) -> str:
        halves = vector[:3], vector[len(vector) // 2 :][:3]
        return " | ".join(" ".join(f"{value:+.2f}" for value in half) for half in halves)

    rows = [
        [title, numbers(layer), *(f"{one.weights[at]:.2f}" for one in results)]
        for at, (title, layer) in enumerate(zip(titles, word.tolist()))
    ]
    for one in results:
        scales = [f"γ {each.scale:.2f}" if each is one else "" for each in results]
        rows.append([f"sum: {one.task}", numbers(one.vector), *scales])
    answers = ", ".join(f"{one.task}: {one.answer}" for one in results)
    note = (
        "The first three numbers of the forward half and of the backward half of each vector. The embedding is the "
        f"same in both halves. A sum is γ · Σ weight · layer. The classifiers say at “{WORD}”: {answers}."
    )
    columns = ["vector", "forward | backward", *(f"weight,\n{one.task}" for one in results)]
    return Table(f"“{WORD}” in “{EXAMPLE}”", columns, rows, note)
