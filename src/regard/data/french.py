"""French sentences and their English translations, from a grammar, with the alignment of their words.

A rule of the grammar makes a phrase in both languages at once. So we know which words translate which: the gold
alignment for the attention weights. The languages differ as in real text: adjectives after the noun (la zone économique
européenne, the European Economic Area), genitives (la lettre de Marie, Marie's letter), agreement, negation, elision,
articles that one language has and the other has not, and names, which English writes in capitals.

The sentence of Bahdanau et al. (2015, figure 3) is in the language of the grammar, but no four successive words of it
are in any example. See `FIGURE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from regard.data.example import Pair, Tokens
from regard.data.files import hash_text
from regard.data.french_grammar import Grammar, Marked, Phrase, phrase
from regard.data.french_words import VOWELS
from regard.data.made_texts import PARTS, capital
from regard.data.synthetic import Drawn
from regard.errors import UserError

FIGURE = (
    "L'accord sur la zone économique européenne a été signé en août 1992 .",
    "The agreement on the European Economic Area was signed in August 1992 .",
)
FOLDS = 10  # the folds that sentences are dealt to; one each is for validation and test
APART = 4  # so many successive words of FIGURE are in no example
ELIDED = ("le", "la", "de", "ne", "que", "se")  # before a vowel
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
STOPS = (*[" ."] * 8, ".", "")  # the ends of French sentences; an English one has a stop of its own
LONGEST = 24  # words of the French sentence


def four_words(text: str) -> set[tuple[str, ...]]:
    """The runs of four successive words of a text, in lower case; a mark and an elided article are words too."""
    found = re.findall(r"\w+|[^\w\s]", text.lower())
    return {tuple(found[at : at + APART]) for at in range(len(found) - APART + 1)}


KEPT_OUT = tuple(four_words(text) for text in FIGURE)


def pair_of(sentence: Phrase, stop: str = " .") -> Pair:
    """The sentence and its translation as they are written; the French stop may be attached to a word, or absent."""
    end = sentence + phrase(".", ".")
    french, english = _french(end.french), _english(end.english)
    if stop != " .":
        (last, said), (_, meant) = french[-2:]
        french[-2:] = [(last + stop, said | meant if stop else said)]
    links = frozenset(
        (i, j) for i, (_, said) in enumerate(french) for j, (_, meant) in enumerate(english) if said & meant
    )
    texts = (" ".join(word for word, _ in side) for side in (french, english))
    source, target = map(capital, texts)
    return Pair(source, target, links)


Written = list[tuple[str, set[int]]]  # words, each with the numbers of what it says


def _french(marked: Marked) -> Written:
    """French words as they are written: du for de le, l' before a vowel."""
    found: Written = []
    for at, (word, number) in enumerate(marked):
        follows = marked[at + 1][0] if at + 1 < len(marked) else "."
        said = {number} - {0}
        last = found[-1][0] if found else ""
        elides = word in ELIDED and follows[0] in VOWELS
        if (last, word) in CONTRACTED and not elides:
            found[-1] = CONTRACTED[last, word], found[-1][1] | said
        elif last in ELIDED and word[0] in VOWELS:
            found[-1] = f"{last[:-1]}'{word}", found[-1][1] | said
        else:
            found.append((word, said))
    return found


def _english(marked: Marked) -> Written:
    """English words as they are written: an before a vowel, and 's attached."""
    found: Written = []
    for at, (word, number) in enumerate(marked):
        follows = marked[at + 1][0].lower() if at + 1 < len(marked) else "."
        if word == "a" and follows[0] in "aeiou" and not follows.startswith(("eu", "uni", "use")):
            word = "an"
        if word == "'s":
            found[-1] = found[-1][0] + word, found[-1][1] | {number}
        else:
            found.append((word, {number} - {0}))
    return found


@dataclass(frozen=True)
class French(Drawn):
    """French sentences with their English translations, from a grammar; which words are aligned is known."""

    tasks: ClassVar[tuple[str, ...]] = ("translate", "aligned")
    least: ClassVar[Mapping[str, int]] = {"vocab": 100}

    train: int = 60_000  # number of training sentences; all sentences of all parts differ
    valid: int = 1000  # number of validation sentences
    test: int = 2000  # number of test sentences
    seed: int = 1  # random seed of the sentences
    source_tokens: Tokens = "bpe"  # the kind of tokens of the French sentences
    target_tokens: Tokens = "bpe"  # the kind of tokens of the English sentences
    vocab: int = 2500  # the largest size of the vocabulary of either side

    def draw(self, part: int, count: int) -> Iterator[Pair]:
        grammar, seen = Grammar(self.seed, PARTS[part]), set[str]()
        for _ in range(20 * count + 10_000):
            if len(seen) == count:
                return
            sentence = grammar.statement()
            pair, stop = pair_of(sentence), grammar.pick(STOPS)
            fold = hash_text(pair.source) % FOLDS
            in_part = fold == part if part else fold not in (1, 2)
            kept_out = any(KEPT_OUT[side] & four_words(text) for side, text in enumerate((pair.source, pair.target)))
            if in_part and not kept_out and pair.source not in seen and len(pair.source.split()) <= LONGEST:
                seen.add(pair.source)
                yield pair_of(sentence, stop)
        raise UserError(f"data.{PARTS[part]}={count}: only {len(seen)} different sentences were found; give fewer.")
