"""Do heads resolve the pronoun "it"? A head does if it attends more to the noun that "it" means than to the other.

Among many heads, one does well by chance. So the best head is selected on one half of the sentences and tested on the
other half. (Clark et al. 2019, §4, look for heads that follow syntax and coreference.)

The sentences come in pairs that follow the Winograd schemas (Levesque et al. 2012): the last words decide which of two
nouns "it" means. The part up to "it" is the same in both, so it does not reveal the answer; and always choosing the
first noun, or always the nearer one, is correct in one version of each pair.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from regard.alignment import merge
from regard.explain.tokenized import TokenizedText, tokenize_sentence
from regard.report.sections import LineGallery, Section, Table, Text
from regard.verbs import Loaded

Head = tuple[str, int]  # the name of the layer, and the head's number there
MIN_PAIRS = 10  # with fewer pairs there is no result
MAX_HEADS = 10  # in the terminal
PRONOUN = "it"
# A well-known example (Uszkoreit 2017). It is drawn, but it is none of the pairs that select or test a head.
ANIMAL = "The *animal* didn't cross the *street* because it was too | tired | wide"


@dataclass(frozen=True)
class Version:
    """A sentence with one of its two endings."""

    words: tuple[str, ...]
    nouns: tuple[int, int]  # indices of both nouns in ``words``
    correct: int  # the noun that "it" means: 0 or 1

    @property
    def text(self) -> str:
        return " ".join(self.words) + "."

    @property
    def pronoun(self) -> int:
        """The index of "it"."""
        return self.words.index(PRONOUN)

    @property
    def last(self) -> int:
        """The index of the last word: the first position at which a causal model has seen the whole sentence."""
        return len(self.words) - 1

    def tokenize(self, model: Loaded) -> TokenizedText | None:
        """The tokens of a model; None if it cannot read the sentence."""
        return tokenize_sentence(model, self.words, (*self.nouns, self.pronoun, self.last))


Pair = tuple[Version, Version]


def pairs() -> list[Pair]:
    """All pairs. "It" means the first noun in the first version, and the second noun in the second version.

    In each line of the file, the two nouns are in asterisks, and a bar precedes each of the two endings.
    """
    lines = files("regard.explain").joinpath("pronouns.txt").read_text(encoding="utf-8").splitlines()
    return [_parse_pair(line) for line in lines]


def _parse_pair(line: str) -> Pair:
    beginning, *endings = line.split(" | ")
    marked = beginning.split()
    first, second = (at for at, word in enumerate(marked) if word.startswith("*"))
    words = [word.strip("*") for word in marked]
    versions = [Version((*words, *end.split()), (first, second), correct) for correct, end in enumerate(endings)]
    return versions[0], versions[1]


@dataclass(frozen=True)
class Proportion:
    """Successes out of a number of trials; a tie counts as half a success."""

    successes: float
    count: int
    rate: float = field(init=False)
    interval: tuple[float, float] = field(init=False)  # 95 % confidence (Wilson 1927), also valid near 0 and 1

    def __post_init__(self) -> None:
        z, n, rate = 1.96, self.count, self.successes / self.count if self.count else math.nan
        middle = (rate + z * z / (2 * n)) / (1 + z * z / n) if n else 0.5
        half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) if n else 0.5
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "interval", (max(0.0, middle - half), min(1.0, middle + half)))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.0%} ({low:.0%} to {high:.0%})"


@dataclass(frozen=True)
class HeadScore:
    """The results of one head on pairs of sentences. Chance is 50 % for both proportions."""

    layer: str
    head: int
    correct: Proportion  # of the sentences: attends more to the correct noun
    shifted: Proportion  # of the pairs: when the ending changes, attention shifts towards the noun that is now correct


@dataclass(frozen=True)
class HeadScores:
    """All heads on all pairs, and the best head: on the pairs that selected it, and on the other pairs."""

    heads: list[HeadScore]
    best_on_selection: HeadScore
    best_on_test: HeadScore


def preference(weights: Tensor, words: Sequence[int], version: Version, query: int) -> Tensor:
    """Each head's attention from the word ``query`` to the correct noun minus that to the wrong one: (H, T, T) → (H,)

    ``words`` has the index of each token's word: the weights on all tokens of a word are added up.
    """
    merged = torch.from_numpy(merge(weights.double().numpy(), words, words))  # (H, words, words)
    nouns = merged[:, query, list(version.nouns)]  # (H, 2)
    return nouns[:, version.correct] - nouns[:, 1 - version.correct]


def score_heads(preferences: Tensor, names: Sequence[Head]) -> HeadScores:
    """Scores heads by their preferences (pairs, 2, heads). Pairs 0, 2, 4 … select the best head, the others test it."""
    selection = _score(preferences[0::2], names)
    best = max(range(len(names)), key=lambda at: (selection[at].correct.successes, selection[at].shifted.successes))
    return HeadScores(_score(preferences, names), selection[best], _score(preferences[1::2], names)[best])


def _score(preferences: Tensor, names: Sequence[Head]) -> list[HeadScore]:
    """Scores all heads. The sum over both versions of a pair cancels a head's preference for a fixed position."""
    correct, shifted = (
        [Proportion(successes, len(rows)) for successes in ((rows.sign().double() + 1) / 2).sum(dim=0).tolist()]
        for rows in (preferences.flatten(0, 1), preferences.sum(dim=1))
    )
    return [HeadScore(layer, head, one, two) for (layer, head), one, two in zip(names, correct, shifted)]


@dataclass(frozen=True, eq=False)
class Coreference:
    """How well the heads of a model resolve "it"."""

    at_pronoun: bool  # the attention of "it" is evaluated; else that of the last word
    pairs: int  # number of pairs that were used
    skipped: int  # number of pairs that are too long for the model, or have a word that it cannot represent
    scores: HeadScores | None  # None: too few pairs
    sentences: list[tuple[TokenizedText, int]]  # both versions of each pair, with the index of the query word
    animal: list[tuple[TokenizedText, Version]]  # both versions of ANIMAL; empty: the model cannot read it

    @property
    def query(self) -> str:
        """The word whose attention is evaluated, as text."""
        return "“it”" if self.at_pronoun else "the last word"

    def summary(self) -> str:
        """The result in a few sentences."""
        skipped = f" {self.skipped} pairs were skipped, because the model cannot read them." if self.skipped else ""
        if self.scores is None:
            return f"“it” cannot be evaluated in this model.{skipped}"
        selection, best = self.scores.best_on_selection, self.scores.best_on_test
        return (
            f"The best head for “it” is layer {layer_number(best.layer)}, head {best.head}. It was selected on one "
            f"half of {self.pairs} pairs of sentences ({selection.correct.rate:.0%} correct). In the other half, "
            f"{self.query} attends more to the correct noun than to the wrong one in {best.correct} of "
            f"{best.correct.count} sentences. When the ending changes, the attention shifts towards the noun that is "
            f"then correct in {best.shifted} of {best.shifted.count} pairs. Chance is 50%.{skipped}"
        )

    def ranked(self) -> list[HeadScore]:
        """All heads, from the best to the worst over all pairs."""
        return sorted(self.scores.heads, key=lambda one: -one.correct.successes) if self.scores else []

    @property
    def numbers(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"heads": [], "best_on_selection": None, "best_on_test": None}
        scores = vars(self.scores) if self.scores else nothing
        return {"query": self.query, "pairs": self.pairs, "skipped": self.skipped, **scores}

    def sections(self) -> list[Section]:
        """What "it" means, the result, and all heads."""
        one, other = pairs()[0]
        text = (
            f"In “{one.text}”, “it” is the ladder. In “{other.text}”, “it” is the roof. To find out what “it” means, "
            "one must understand the ending of the sentence. Is there a head that attends to the correct noun?\n\n"
            "A head that always attends to the first noun, or always to the nearer one, is correct in one half of the "
            "sentences. The last column removes this effect: it compares the two versions of a pair, and counts the "
            "pairs in which the attention shifts towards the noun that is then correct.\n\n"
        )
        sections: list[Section] = [Text(text + self.summary(), "What “it” means")]
        if self.scores:
            title = f"Attention from {self.query} to the nouns: heads from the best to the worst"
            columns = ["layer", "head", "correct noun", "shifts with the ending"]
            rows = [
                (layer_number(one.layer), one.head, f"{one.correct.rate:.0%}", f"{one.shifted.rate:.0%}")
                for one in self.ranked()
            ]
            sections.append(Table(title, columns, rows, f"Over all {self.pairs} pairs.", first=MAX_HEADS))
            sections += self._animal_sections(self.scores.best_on_test)
        return sections

    def _animal_sections(self, best: HeadScore) -> list[Section]:
        """The weights of the best head in both versions of ANIMAL, as lines and as numbers."""
        if not self.animal:
            return []
        views, rows = [], list[list[str]]()
        for text, version in self.animal:
            query = version.pronoun if self.at_pronoun else version.last
            views.append(text.lines_from(f"… {version.words[-1]}", best.layer, best.head, query))
            merged = merge(text.weights[best.layer][best.head].double().numpy(), text.words, text.words)[query]
            rows.append([f"… {version.words[-1]}", *(f"{merged[noun]:.3f}" for noun in version.nouns)])
        nouns = [version.words[noun] for noun in version.nouns]
        place = f"layer {layer_number(best.layer)}, head {best.head}"
        title = f"“The animal didn't cross the street because it was too …”: {place}, from {self.query}"
        note = (
            "The weights of the head that the pairs selected. With “tired”, “it” is the animal; with “wide”, it is the "
            "street. These two sentences are well known, and selected nothing here."
        )
        return [Table(title, ["ending", *nouns], rows, note), LineGallery(f"The same as lines: {place}", views)]


def layer_number(layer: str) -> str:
    """3 for stack.blocks.3.attention.read, and for stack.blocks.0.attention.read[3], where layers share a module."""
    numbers = re.findall(r"\d+", layer)
    return numbers[-1] if numbers else layer


def evaluate_coreference(model: Loaded) -> Coreference:
    """Evaluates the heads of a model on all pairs of sentences.

    The query is the word "it". A causal model has not read the ending at "it", so there the query is the last word, the
    first one at which such a model can know the answer.
    """
    config = model.module.config
    ahead = config.reads_source or not config.causal_attention
    names: list[tuple[str, int]] = []
    preferences: list[Tensor] = []
    sentences: list[tuple[TokenizedText, int]] = []
    skipped = 0
    for pair in pairs():
        texts = [text for version in pair if (text := version.tokenize(model)) is not None]
        if len(texts) < 2:
            skipped += 1
            continue
        queries = [version.pronoun if ahead else version.last for version in pair]
        by_layer = [
            {name: preference(weights, text.words, version, query) for name, weights in text.weights.items()}
            for text, version, query in zip(texts, pair, queries)
        ]
        names = [(layer, head) for layer, values in by_layer[0].items() for head in range(len(values))]
        preferences.append(torch.stack([torch.cat(list(layers.values())) for layers in by_layer]))  # (2, heads)
        sentences += zip(texts, queries)
    scores = score_heads(torch.stack(preferences), names) if len(preferences) >= MIN_PAIRS else None
    animal = [(text, version) for version in _parse_pair(ANIMAL) if (text := version.tokenize(model)) is not None]
    return Coreference(ahead, len(preferences), skipped, scores, sentences, animal if len(animal) == 2 else [])
