"""One word, several senses: static and contextual vectors.

A table of word vectors has one vector for a spelling. So the “bank” of a river and the “bank” with money have the same
vector, an idiom such as “kick the bucket” is read word by word, and “gift”, which is a present in English and poison in
German, is one word. A language model computes a vector for each occurrence of a word from the words around it.

Which vectors separate the senses? Each sentence here has a word whose sense we know. One half of the sentences of each
sense gives the mean vector of the sense. An occurrence of the other half is assigned to the sense whose mean is nearer.
The accuracy is the average over 100 random divisions into halves. The vectors are those of the last layer of each
model, at the place of the word.

A model that reads from left to right does not know the words after “bank”. So in “the bank that is on the other side of
that wide river” its vector of “bank” is the same as with “road” at the end. A model that reads from both sides can use
the last word, if it has learnt to carry the information over this distance.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.data.tokenizers import WORDS
from regard.explain.experiment import train_prepared, training_of
from regard.explain.options import SensesOptions
from regard.explain.sense_corpus import TOPICS, Sense, SenseTexts, sense_sentences
from regard.explain.topic import Report, Result, no_report, prose, reading
from regard.models import BertConfig, Context2vecConfig, GptConfig, RecurrentLmConfig
from regard.objectives import ContextSampling, MaskedTokens, TeacherForcing
from regard.recipes import Plan, Recipe, with_kinds
from regard.report.sections import Curve, Line, Section, Table
from regard.training.prepare import prepare
from regard.verbs import Loaded, load
from regard.verbs.occurrences import Occurrence, marked_occurrence, occurrence_layers

READING = """
A static vector is the same in both senses, so its accuracy is 50%. The LSTM, the biLM and context2vec separate the
senses of “bank” and “gift” far better than by chance, although the models are small and a fifth of the words of these
sentences are unknown to them. With the few sentences of “bucket”, only the biLM is clearly above chance. context2vec
does not read the word itself, so its vector depends on the context alone.

In the sentences about road and river, the cue comes after the word. There the models that read from left to right
(LSTM, GPT) give “bank” the same vector in both sentences of a pair. The models of both sides (biLM, context2vec) use
the cue at every distance that is tested. The masked model could use it too, but the cue hardly moves its vector.

The two small Transformers learn less in so few steps. GPT separates the two languages of “gift”, but not the senses of
“bank”. The masked model separates neither. It learns only from the masked words, two fifths of all, and at a word that
is not masked its last layer mostly has to predict this word. Large models that were trained for long can be compared
too: give their directories.

The corpus and the settings of training were chosen with other sentences, before the measured sentences were written.
Since then, only the number of steps and the size of the batches were reduced, to save time.
"""
LEFT = "that is on the other side of that"  # between "bank" and the adjective and the cue, as in the lecture's sentence
FILLER = "and there is the road and the water and the street and the lake"  # no sense alone: both topics are in it
CUES = {"river": ("river", "stream", "lake", "flood"), "money": ("road", "street", "city", "market")}
DISTANCES = (2, 6, 10, 14, 18)
STATIC = "static vectors"
SPLITS = 100  # random divisions of the sentences into halves
SHUFFLES = 200  # random orders of the senses, to measure chance


@dataclass(frozen=True)
class SenseResult:
    """The vectors of one model: how often the nearer sense is the right one, by ambiguous word."""

    name: str
    accuracy: dict[str, float]
    chance: dict[str, tuple[float, float]]  # 95% of the accuracies if the senses are shuffled
    layers: dict[str, list[float]]  # the accuracy of every layer, the embeddings first
    cues: dict[int, float]  # the pairs of road and river that differ in the right direction, by the distance of the cue
    moved: dict[int, float]  # the distance of "bank" in the two sentences of a pair, divided by that of the means


def run(options: SensesOptions, report: Report = no_report) -> Result:
    """Compares the vectors of small models that are trained now, or of given ones."""
    small = not options.models
    models = _train(options, report) if small else [load(path, "cpu") for path in options.models]
    read = [
        {
            word: [_spaced(one, small) if model.tokenizer.kind in WORDS else one for one in some]
            for word, some in sense_sentences().items()
        }
        for model in models
    ]
    results = [_static(models[0], read[0]), *map(_measure, models, read)]
    counts = {word: len(some) for word, some in read[0].items()}
    sections: list[Section] = [prose(__doc__), _sense_table(results, counts), *_cue_sections(results)]
    if small:
        sections.append(reading(READING, options))
        about = (
            f"Small networks of one corpus, each {training_of(options.steps, options.seed)}: {SenseTexts().train:,} "
            f"sentences of templates, with {len(TOPICS)} topics. The sentences that are measured are others, which "
            "were written by hand; words that the corpus does not have are unknown to the models."
        )
    else:
        about = f"The models are {', '.join(map(str, options.models))}."
    numbers = {"steps": options.steps, "seed": options.seed, "sentences": counts, "models": results}
    return Result("One word, several senses", about, numbers, sections)


def _spaced(one: Sense, lower: bool) -> Sense:
    """The sentence with spaces before its punctuation marks, as a tokenizer of words needs it."""
    text = re.sub(r"(?=[.,])", " ", one.occurrence.marked)
    return replace(one, occurrence=marked_occurrence(text.lower() if lower else text))


def recipes(options: SensesOptions) -> list[Recipe]:
    """A small model of each kind, all of one corpus."""
    steps = max(1, options.steps)
    data = SenseTexts(train=min(SenseTexts.train, 32 * steps), seed=options.seed)
    plan = Plan(
        steps, batch_tokens=1024, rate=1e-2, schedule="linear", warmup=steps // 10, seed=options.seed, device="cpu"
    )
    lstm = RecurrentLmConfig(width=64, embed=64, layers=1, dropout=0.0)
    shape: dict[str, Any] = {"width": 64, "heads": 4, "layers": 2, "inner": 128, "context": 64}
    shape |= {"dropout": 0.0, "attention_dropout": 0.0, "norm_place": "pre", "positions": "sinusoidal"}
    c2v = Context2vecConfig(width=64, embed=64, inner=128, dropout=0.0)
    slower = replace(plan, rate=5e-3, betas=(0.9, 0.98))
    slowest = replace(slower, rate=3e-3)
    return [
        Recipe("LSTM, forward", "", data, lstm, TeacherForcing(), plan, ()),
        Recipe("biLM (two LSTMs)", "", data, replace(lstm, direction="both"), TeacherForcing(), plan, ()),
        Recipe("context2vec", "", data, c2v, ContextSampling(), plan, ()),
        Recipe("GPT", "", data, GptConfig(**shape), TeacherForcing(), slower, ()),
        Recipe("masked (BERT)", "", data, BertConfig(**shape, segments=0), MaskedTokens(part=0.4), slowest, ()),
    ]


def _train(options: SensesOptions, report: Report) -> list[Loaded]:
    kinds = with_kinds({"data": {"senses": SenseTexts}})
    return [
        train_prepared(one.name, prepare(one, kinds=kinds), options.steps, report, kinds) for one in recipes(options)
    ]


def _static(model: Loaded, sentences: dict[str, list[Sense]]) -> SenseResult:
    """The input embedding of each word, read alone: one vector for each spelling."""
    accuracy, chance = dict[str, float](), dict[str, tuple[float, float]]()
    for word, some in sentences.items():
        alone = [Occurrence(one.occurrence.word, 0, len(word)) for one in some]
        vectors, first = occurrence_layers(model, alone)[0], _is_first(some)
        accuracy[word], chance[word] = _accuracy(vectors, first), _chance(vectors, first)
    return SenseResult(STATIC, accuracy, chance, {}, dict.fromkeys(DISTANCES, 0.5), dict.fromkeys(DISTANCES, 0.0))


def _is_first(sentences: Sequence[Sense]) -> Tensor:
    """Which sentences (N,) have the sense of the first one; the others have the other sense."""
    return torch.tensor([one.sense == sentences[0].sense for one in sentences])


def _accuracy(vectors: Tensor, first: Tensor) -> float:
    """How often a vector (D,) of N is nearer to the mean of its own sense; a tie counts half.

    The means are those of one half of each sense, and the vectors of the other half are compared with them. To compare
    each vector with the means of all others would be unfair: without the vector, the mean of its sense is farther from
    it. If the means of both senses are equal, this alone makes every answer wrong.
    """
    vectors, random = vectors.double(), torch.Generator().manual_seed(0)
    in_mean, means = torch.zeros(SPLITS, len(first), dtype=torch.bool), []
    for sense in (first, ~first):
        half = int(sense.sum()) // 2
        chosen = torch.rand(SPLITS, len(first), generator=random).where(sense, 2.0).argsort(1)[:, :half]
        in_mean.scatter_(1, chosen, True)
        means.append(vectors[chosen].mean(1))  # (SPLITS, D)
    middle, apart = (means[0] + means[1]) / 2, means[0] - means[1]
    side = apart @ vectors.T - (apart * middle).sum(1, keepdim=True)  # (SPLITS, N); > 0: nearer to means[0]
    tie = side.abs() <= 1e-10 * vectors.square().sum(1)  # static vectors are equal up to rounding
    right = torch.where(tie, 0.5, ((side > 0) == first).double())
    return right[~in_mean].mean().item()


def _chance(vectors: Tensor, first: Tensor) -> tuple[float, float]:
    """Between which two accuracies are 95% of those of shuffled senses."""
    random = torch.Generator().manual_seed(0)
    shuffled = (torch.randperm(len(first), generator=random) for _ in range(SHUFFLES))
    accuracies = torch.tensor([_accuracy(vectors[order], first) for order in shuffled])
    low, high = accuracies.quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


def _measure(model: Loaded, sentences: dict[str, list[Sense]]) -> SenseResult:
    vectors = {word: occurrence_layers(model, [one.occurrence for one in some]) for word, some in sentences.items()}
    first = {word: _is_first(some) for word, some in sentences.items()}
    layers = {word: [_accuracy(layer, first[word]) for layer in each] for word, each in vectors.items()}
    accuracy = {word: each[-1] for word, each in layers.items()}
    chance = {word: _chance(each[-1], first[word]) for word, each in vectors.items()}
    places = first["bank"]  # the sentences of the river come first
    river, money = (vectors["bank"][-1][each].mean(0) for each in (places, ~places))
    apart, cues, moved = river - money, dict[int, float](), dict[int, float]()
    for distance in DISTANCES:
        pairs = torch.stack([_bank_vectors(model, distance, cue) for cue in zip(*CUES.values())])  # (pairs, 2, D)
        shift = pairs[:, 0] - pairs[:, 1]
        equal = shift.norm(dim=-1) < 1e-5 * pairs[:, 0].norm(dim=-1)
        cues[distance] = torch.where(equal, 0.5, (shift @ apart > 0).float()).mean().item()
        # static vectors are not apart
        moved[distance] = (shift.norm(dim=-1) / apart.norm()).mean().item() if apart.norm() else 0.0
    return SenseResult(model.name, accuracy, chance, layers, cues, moved)


def _bank_vectors(model: Loaded, distance: int, cue: tuple[str, str]) -> Tensor:
    """The vectors (2, D) of "bank" in two sentences that differ in one word, which is `distance` words after it."""
    between = [*LEFT.split(), "wide"]
    filler = (FILLER.split() * 2)[: max(0, distance - 1 - len(between))]
    words = [*filler, *between][-(distance - 1) :]
    texts = [f"the *bank* {' '.join(words)} {one} ." for one in cue]
    return occurrence_layers(model, [marked_occurrence(text) for text in texts])[-1]


def _sense_table(results: Sequence[SenseResult], counts: dict[str, int]) -> Table:
    rows = []
    for one in results:
        cells = [(f"{one.accuracy[word]:.0%}", "{:.0%}–{:.0%}".format(*one.chance[word])) for word in counts]
        rows.append([one.name, *(cell for pair in cells for cell in pair)])
    sentences = ", ".join(f"{count} with “{word}”" for word, count in counts.items())
    note = (
        f"The part of the occurrences that are nearer to the mean of their own sense, of {sentences}. “by chance” is "
        "the range of 95% of the results if the senses are shuffled: only a result above it shows that the vectors "
        "separate the senses. (Results can be below it if both senses are in the same kinds of sentences: then their "
        "means are more alike than those of random groups.) A static vector depends on the spelling alone; to a model "
        "with capital letters, “Gift” is not spelled as “gift”."
    )
    columns = ["vectors", *(column for word in counts for column in (word, "by chance"))]
    return Table("The sense of a word, by the nearer mean", columns, rows, note)


def _cue_sections(results: Sequence[SenseResult]) -> list[Section]:
    rows = [
        [one.name, *(f"{one.cues[at]:.0%}" for at in DISTANCES), *(f"{one.moved[at]:.2f}" for at in DISTANCES[::2])]
        for one in results
    ]
    columns = ["vectors", *(f"at {at}" for at in DISTANCES), *(f"moved {at}" for at in DISTANCES[::2])]
    note = (
        "“The bank … wide road” against “the bank … wide river”, and three more pairs: how often the two vectors of "
        "“bank” differ towards their own senses. “at 6”: the cue, here “road” or “river”, is 6 words after “bank”. A "
        "pair with equal vectors counts as one half. “moved” is the distance of the two vectors, divided by "
        "that of the means of the two senses: 0 means that the cue changes nothing."
    )
    lines = [Line(one.name, list(one.moved), list(one.moved.values())) for one in results]
    return [
        Table("Road or river: the cue after the word", columns, rows, note),
        Curve(
            "How far the cue moves the vector of “bank”", "words to the cue", "distance / distance of the senses", lines
        ),
    ]
