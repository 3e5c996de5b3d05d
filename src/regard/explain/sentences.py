"""A language of a few dozen words with a grammar, so that every sentence can be judged.

Subject and verb agree in number, also where another noun stands between them: "the dogs behind a tree sleep .". Every
sentence has one derivation, so its probability, and with it the lowest loss any model can reach, is known exactly.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.explain.small import IGNORED

Words = tuple[str, ...]

DETERMINERS: dict[str, Words] = {"one": ("the", "a", "every"), "many": ("the", "some", "many")}
ADJECTIVES: Words = ("small", "old", "happy", "green", "quiet")
NOUNS: dict[str, Words] = {
    "one": ("dog", "cat", "bird", "child", "tree", "boat"),
    "many": ("dogs", "cats", "birds", "children", "trees", "boats"),
}
PREPOSITIONS: Words = ("near", "behind", "under")
DOES: dict[str, Words] = {
    "one": ("sleeps", "waits", "sings", "falls"),
    "many": ("sleep", "wait", "sing", "fall"),
}
DOES_TO: dict[str, Words] = {"one": ("sees", "likes", "follows"), "many": ("see", "like", "follow")}
ADVERBS: Words = ("quietly", "today", "again")
NUMBERS: Words = ("one", "many")

PAD, BEGIN, END = "<pad>", "<begin>", "<end>"
VOCABULARY: tuple[str, ...] = (
    PAD,
    BEGIN,
    END,
    ".",
    *dict.fromkeys(
        word
        for words in (
            *DETERMINERS.values(),
            ADJECTIVES,
            *NOUNS.values(),
            PREPOSITIONS,
            *DOES.values(),
            *DOES_TO.values(),
            ADVERBS,
        )
        for word in words
    ),
)
IDS = {word: at for at, word in enumerate(VOCABULARY)}


@dataclass
class Dice:
    """Says sentences by rolling dice, and keeps count of how likely each was."""

    source: random.Random
    logp: float = 0.0

    def sentence(self) -> list[str]:
        """noun phrase, [preposition, noun phrase], verb, [adverb or object], full stop"""
        self.logp = 0.0
        number = self.choose(NUMBERS)
        words = self.noun_phrase(number)
        if self.whether():
            words += [self.choose(PREPOSITIONS), *self.noun_phrase(self.choose(NUMBERS))]
        if self.whether():
            words += [self.choose(DOES_TO[number]), *self.noun_phrase(self.choose(NUMBERS))]
        else:
            words += [self.choose(DOES[number]), *([self.choose(ADVERBS)] if self.whether() else [])]
        return [*words, "."]

    def noun_phrase(self, number: str) -> list[str]:
        adjective = [self.choose(ADJECTIVES)] if self.whether() else []
        return [self.choose(DETERMINERS[number]), *adjective, self.choose(NOUNS[number])]

    def choose(self, words: Words) -> str:
        self.logp -= math.log(len(words))
        return self.source.choice(words)

    def whether(self) -> bool:
        self.logp -= math.log(2)
        return self.source.random() < 0.5


def allowed(words: Sequence[str]) -> bool:
    """Whether the grammar can say this."""
    rest = list(words)
    number = _noun_phrase(rest)
    if number and rest and rest[0] in PREPOSITIONS:
        rest.pop(0)
        number = number if _noun_phrase(rest) else ""
    if not number or not rest:
        return False
    verb = rest.pop(0)
    if any(verb in DOES_TO[one] for one in number.split()):
        return bool(_noun_phrase(rest)) and rest == ["."]
    if any(verb in DOES[one] for one in number.split()):
        return rest == ["."] or (len(rest) == 2 and rest[0] in ADVERBS and rest[1] == ".")
    return False


def _noun_phrase(rest: list[str]) -> str:
    """Takes a noun phrase from the front; its number, or nothing where there is none."""
    if not rest:
        return ""
    determiner = rest.pop(0)
    if rest and rest[0] in ADJECTIVES:
        rest.pop(0)
    noun = rest.pop(0) if rest else ""
    return " ".join(one for one in NUMBERS if determiner in DETERMINERS[one] and noun in NOUNS[one])


def encoded(words: Sequence[str]) -> list[int]:
    return [IDS[word] for word in words]


def batch(generator: torch.Generator, rows: int = 48) -> tuple[Tensor, Tensor]:
    """Sentences as tokens to be read, (B, T), and at every place the token that comes next; padding does not count."""
    dice = Dice(random.Random(int(torch.randint(2**62, (), generator=generator))))
    lines = [[IDS[BEGIN], *encoded(dice.sentence()), IDS[END]] for _ in range(rows)]
    longest = max(map(len, lines))
    tokens = torch.tensor([[*line, *[IDS[PAD]] * (longest - len(line))] for line in lines])
    targets = tokens[:, 1:].masked_fill(tokens[:, 1:] == IDS[PAD], IGNORED)
    return tokens[:, :-1], targets


def floor(sentences: int = 5000, seed: int = 0) -> float:
    """The mean surprise of a word to somebody who knows the grammar, in nats: no honest model has a lower loss."""
    dice, logp, words = Dice(random.Random(seed)), 0.0, 0
    for _ in range(sentences):
        words += len(dice.sentence()) + 1  # and the end
        logp += dice.logp
    return -logp / words
