"""Questions, entailments and choices that are made from templates: data for models that compare two texts.

All names are invented, and a name belongs to one part of the data, and so does a template: a sentence form with its
opening and its ending. So a model cannot know the answer from a name or a whole sentence that it has seen. The words of
the templates are the same in all parts. Distractors, negation and the order of names make the number of words that two
texts have in common a poor guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import Any, ClassVar, Literal

import numpy as np

from regard.data.example import Corpus, Question, Tokens
from regard.data.files import hash_text
from regard.data.synthetic import check_sizes

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
HELD: dict[int, Part] = {0: "valid", 1: "test"}  # of five names or templates: those that are not for training

CONSONANTS, VOWELS, ENDS = "bdfgklmnprstvz", "aeiou", ("", "", "n", "r", "s", "l")
OPENINGS = ("", "now ", "today ", "these days ", "as we know, ", "people say that ", "it seems that ")
ENDINGS = ("", " again", " as before", " this year", " after all")

# Forms of facts: a person {a}, and what the fact says about it, {b}. {c} is something that is not so.
FACTS = {
    "home": ("{a} lives in {b}", "{a} has a house in {b}", "the house of {a} is in {b}", "in {b} is the house of {a}"),
    "work": (
        *("{a} works in {b}", "{a} has an office in {b}"),
        *("the office of {a} is in {b}", "in {b} is the office of {a}"),
    ),
    "thing": ("{a} owns the {b}", "the {b} belongs to {a}", "the owner of the {b} is {a}", "{a} has the {b} at home"),
}
NEGATED = {
    "home": ("{a} lives not in {c} but in {b}", "{a} lives in {b} and not in {c}", "not in {c} but in {b} lives {a}"),
    "work": ("{a} works not in {c} but in {b}", "{a} works in {b} and not in {c}", "not in {c} but in {b} works {a}"),
    "thing": (
        *("{a} owns not the {c} but the {b}", "{a} owns the {b} and not the {c}"),
        "not the {c} but the {b} belongs to {a}",
    ),
}
# Questions about {b}, and about {a}.
ASKED = {
    "home": (("where does {a} live?", "in which town is the house of {a}?"), ("who lives in {b}?",)),
    "work": (("where does {a} work?", "in which town is the office of {a}?"), ("who works in {b}?",)),
    "thing": (
        ("what does {a} own?", "which thing belongs to {a}?"),
        ("who owns the {b}?", "to whom belongs the {b}?"),
    ),
}
ASKING = ("", "tell me, ", "do you know, ", "we ask, ", "by the way, ", "say, ", "and now, ")
# Pairs of relations of which one is the inverse of the other.
ORDERS = (
    ("{a} is taller than {b}", "{b} is shorter than {a}"),
    ("{a} is older than {b}", "{b} is younger than {a}"),
    ("{a} came before {b}", "{b} came after {a}"),
    ("{a} gave a book to {b}", "{b} got a book from {a}"),
    ("{a} sits to the left of {b}", "{b} sits to the right of {a}"),
)
DENIED = ("it is not true that ", "it is false that ", "it is wrong that ")


def part_of(name: str) -> Part:
    """The part of the data that a name belongs to."""
    return HELD.get(hash_text(name) % 5, "train")


@cache
def templates(part: Part, forms: tuple[str, ...], openings: tuple[str, ...], endings: tuple[str, ...]) -> list[str]:
    """The templates of a part, of all combinations of an opening, a form and an ending: a fifth is held out for each."""
    every = sorted(("".join(combination) for combination in product(openings, forms, endings)), key=hash_text)
    return [one for number, one in enumerate(every) if HELD.get(number % 5, "train") == part]


@cache
def _words() -> frozenset[str]:
    """The words of all templates, which are no names."""
    forms = [*FACTS.values(), *NEGATED.values(), *(form for pair in ASKED.values() for form in pair), *ORDERS]
    texts = [*OPENINGS, *ENDINGS, *ASKING, *DENIED, *chain.from_iterable(forms)]
    return frozenset(re.findall(r"\w+", " ".join(texts)))


class Writer:
    """Draws names and sentences of one part of the data."""

    def __init__(self, seed: int, part: Part) -> None:
        self.part: Part = part
        self.random = np.random.default_rng((seed, PARTS.index(part)))

    def pick(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.integers(len(values)))]

    def likely(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def shuffled(self, values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in self.random.permutation(len(values))]

    def names(self, count: int) -> list[str]:
        """Different invented names of two or three syllables."""
        found: dict[str, None] = {}
        while len(found) < count:
            syllables = [self.pick(CONSONANTS) + self.pick(VOWELS) for _ in range(self.pick((2, 2, 3)))]
            name = "".join(syllables) + self.pick(ENDS)
            if part_of(name) == self.part and name not in _words():
                found[name] = None
        return list(found)

    def sentence(
        self,
        forms: tuple[str, ...],
        openings: tuple[str, ...] = OPENINGS,
        endings: tuple[str, ...] = ENDINGS,
        **names: str,
    ) -> str:
        """A sentence of one of these forms. Its first letter is a capital, and it ends with a full stop."""
        text = str(self.pick(templates(self.part, forms, openings, endings))).format(**names)
        return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")


@dataclass(frozen=True)
class Fact:
    """What a passage says about a person: where it lives or works, or what it owns."""

    kind: str
    person: str
    value: str


def _facts(writer: Writer, people: int) -> list[Fact]:
    """Facts about some people, each of whom has a home, a place of work and a thing. All names differ."""
    found, names = list[Fact](), iter(writer.names(4 * people))
    for _ in range(people):
        person, home, work, thing = next(names).capitalize(), next(names).capitalize(), next(names).capitalize(), next(names)
        found += [Fact("home", person, home), Fact("work", person, work), Fact("thing", person, thing)]
    return found


def _told(writer: Writer, fact: Fact, others: Sequence[Fact]) -> str:
    """A sentence that states a fact; one of three also denies another value of the same kind."""
    names = {"a": fact.person, "b": fact.value}
    if writer.likely(1 / 3):
        wrong = writer.pick([one.value for one in others if one.kind == fact.kind and one != fact])
        return writer.sentence(NEGATED[fact.kind], **names, c=wrong)
    return writer.sentence(FACTS[fact.kind], **names)


def _passage(writer: Writer, fact: Fact, facts: Sequence[Fact], sentences: int) -> list[Fact]:
    """The facts of a passage in random order: one, the facts that are easily confused with it, and others.

    Those are another fact about the same person, and the same kind of fact about other people.
    """
    near = [one for one in facts if one != fact and fact.kind == one.kind]
    same = [one for one in facts if one != fact and fact.person == one.person]
    chosen = [fact, *writer.shuffled(near)[:2], *writer.shuffled(same)[:1]]
    rest = writer.shuffled([one for one in facts if one not in chosen])
    return writer.shuffled([*chosen, *rest][: max(sentences, len(chosen))])


@dataclass(frozen=True)
class MadeAnswers:
    """Questions about invented people, made from templates. The passage does not answer some of them."""

    tasks: ClassVar[tuple[str, ...]] = ("answer",)

    train: int = 20_000  # number of training questions
    valid: int = 500  # number of validation questions; names and templates differ in the parts
    test: int = 1000  # number of test questions
    sentences: int = 5  # sentences of a passage, at least 4
    unanswered: float = 0.15  # the share of questions that the passage does not answer
    seed: int = 1  # what the questions are drawn from
    window: int = 384  # the most tokens of question and passage that are read at once; a longer passage is cut
    stride: int = 128  # the tokens of a long passage by which a window of it moves on
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 300  # the most tokens

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "sentences": 4, "seed": 0})

    def load(self) -> Corpus:
        return Corpus(**{part: list(self._draw(part)) for part in PARTS})

    def _draw(self, part: Part) -> Iterator[Question]:
        writer = Writer(self.seed, part)
        for number in range(getattr(self, part)):
            facts = _facts(writer, people=3)
            fact = writer.pick(facts)
            there = _passage(writer, fact, facts, self.sentences)
            about_value = writer.likely(2 / 3)
            forms = ASKED[fact.kind][0 if about_value else 1]
            question = writer.sentence(forms, ASKING, ("",), a=fact.person, b=fact.value)
            if writer.likely(self.unanswered):
                there.remove(fact)
            passage, answers = "", ()
            for one in there:
                told = _told(writer, one, facts)
                if one == fact:
                    answer = fact.value if about_value else fact.person
                    place = re.search(rf"\b{answer}\b", told)
                    assert place is not None
                    answers = ((answer, len(passage) + place.start()),)
                passage += told + " "
            yield Question(question, passage.rstrip(), answers, f"{part}-{number}")
