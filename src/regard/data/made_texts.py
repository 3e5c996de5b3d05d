"""Questions, entailments and choices that are made from templates: data for models that compare two texts.

A name is two invented words, such as Bal Mir. A name belongs to one part of the data (training, validation or test),
and so does a template: a sentence form with its opening and its ending. So a model cannot know an answer from a name or
a sentence that it has seen. The single words are the same in all parts: a model from nothing knows no others.
Distractors, negation and the order of names make the number of words that two texts have in common a poor guide.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import ClassVar, Literal, TypeVar

from regard.data.example import Choice, Corpus, LabelledPair, Question, Tokens
from regard.data.files import hash_text
from regard.data.joined import ChoiceText
from regard.data.synthetic import check_sizes
from regard.errors import UserError

T = TypeVar("T")
Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
HELD: dict[int, Part] = {0: "valid", 1: "test"}  # of five names or templates: those that are not for training

# The invented words of which names are made: few, so that a small model meets each of them often.
WORDS = (
    *("bal", "dan", "fen", "gor", "hun", "jem", "kir", "lor", "mir", "nus"),
    *("pol", "ren", "sal", "tem", "tol", "val", "vir", "zam", "zen", "dum"),
)
OPENINGS = ("", "now ", "today ", "surely ", "indeed ")
ENDINGS = ("", " again", " today", " now")

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
ASKING = ("", "so ", "now ", "say ", "and ")
# Pairs of relations of which one is the inverse of the other.
ORDERS = (
    ("{a} is taller than {b}", "{b} is shorter than {a}"),
    ("{a} is older than {b}", "{b} is younger than {a}"),
    ("{a} came before {b}", "{b} came after {a}"),
    ("{a} is faster than {b}", "{b} is slower than {a}"),
    ("{a} sits to the left of {b}", "{b} sits to the right of {a}"),
)
SURE = ("", " indeed", " now", " today")
LABELS = ("entailment", "contradiction", "neutral")
DENIED = ("it is not true that ", "it is false that ", "it is wrong that ")


def part_of(name: str) -> Part:
    """The part of the data that a name belongs to."""
    return HELD.get(hash_text(name) % 5, "train")


@cache
def templates(part: Part, forms: tuple[str, ...], openings: tuple[str, ...], endings: tuple[str, ...]) -> list[str]:
    """The templates of a part, combinations of an opening, a form and an ending: a fifth each is for valid and test.

    The part follows from the numbers of the three, so that a template is in the same part whatever it is used for.
    """
    numbered = product(enumerate(openings), enumerate(forms), enumerate(endings))
    return [
        opening + form + ending
        for (one, opening), (two, form), (three, ending) in numbered
        if HELD.get((one + two + three) % 5, "train") == part
    ]


class Writer:
    """Draws names and sentences of one part of the data."""

    def __init__(self, seed: int, part: Part) -> None:
        self.part: Part = part
        self._random = random.Random(f"{seed} {part}").random  # the one method that Python promises not to change

    def pick(self, values: Sequence[T]) -> T:
        return values[int(self._random() * len(values))]

    def likely(self, probability: float) -> bool:
        return self._random() < probability

    def shuffled(self, values: Sequence[T]) -> list[T]:
        return sorted(values, key=lambda _: self._random())

    def names(self, count: int) -> list[str]:
        """Different invented names, each of two words."""
        found: dict[str, None] = {}
        while len(found) < count:
            name = f"{self.pick(WORDS)} {self.pick(WORDS)}"
            if part_of(name) == self.part:
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
        text = self.pick(templates(self.part, forms, openings, endings)).format(**names)
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
        person, home, work, thing = (next(names).title() for _ in range(4))
        found += [Fact("home", person, home), Fact("work", person, work), Fact("thing", person, thing)]
    return found


def _told(writer: Writer, fact: Fact, others: Sequence[Fact]) -> str:
    """A sentence that states a fact; one of three also denies another value of the same kind."""
    wrong = [one.value for one in others if one.kind == fact.kind and one != fact]
    if wrong and writer.likely(1 / 3):
        return writer.sentence(NEGATED[fact.kind], a=fact.person, b=fact.value, c=writer.pick(wrong))
    return writer.sentence(FACTS[fact.kind], a=fact.person, b=fact.value)


def _passage(writer: Writer, fact: Fact, facts: Sequence[Fact], sentences: int) -> list[Fact]:
    """The facts of a passage in random order: one, the facts that are easily confused with it, and others.

    Those are another fact about the same person, and the same kind of fact about other people.
    """
    near = [one for one in facts if one != fact and fact.kind == one.kind]
    same = [one for one in facts if one != fact and fact.person == one.person]
    near, same = writer.shuffled(near), writer.shuffled(same)
    chosen = [fact, near[0], same[0], near[1]]
    rest = writer.shuffled([one for one in facts if one not in chosen])
    return writer.shuffled([*chosen, *rest][:sentences])


@dataclass(frozen=True)
class MadeAnswers:
    """Questions about invented people, made from templates. The passage does not answer some of them."""

    tasks: ClassVar[tuple[str, ...]] = ("answer",)

    train: int = 20_000  # number of training questions
    valid: int = 500  # number of validation questions; names and templates differ in the parts
    test: int = 1000  # number of test questions
    sentences: int = 3  # sentences of a passage: 3 to 9
    unanswered: float = 0.15  # the share of questions that the passage does not answer
    seed: int = 1  # what the questions are drawn from
    window: int = 384  # the most tokens of question and passage that are read at once; a longer passage is cut
    stride: int = 128  # the tokens of a long passage by which a window of it moves on
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 800  # the most tokens

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "sentences": 3, "seed": 0})

    def load(self) -> Corpus:
        train, valid, test = (list(self._draw(part)) for part in PARTS)
        return Corpus(train, valid, test)

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
            passage, answers = "", tuple[tuple[str, int], ...]()
            for one in there:
                told = _told(writer, one, facts)
                if one == fact:
                    answer = fact.value if about_value else fact.person
                    place = re.search(rf"\b{answer}\b", told)
                    assert place is not None
                    answers = ((answer, len(passage) + place.start()),)
                passage += told + " "
            yield Question(question, passage.rstrip(), answers, f"{part}-{number}")


@dataclass(frozen=True)
class MadeEntailment:
    """Two statements about invented people: does the first entail or contradict the second, or neither (neutral)?

    The first part has two sentences about three people. The second part states a relation of two of them, or denies
    one. Which class is right depends on the relation, on the order of the names and on the negation.
    """

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    train: int = 40_000  # number of training pairs
    valid: int = 500  # number of validation pairs; names and templates differ in the parts
    test: int = 1000  # number of test pairs
    seed: int = 1  # what the pairs are drawn from
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 800  # the most tokens

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "seed": 0})

    def load(self) -> Corpus:
        train, valid, test = (list(self._draw(part)) for part in PARTS)
        return Corpus(train, valid, test)

    def _draw(self, part: Part) -> Iterator[LabelledPair]:
        writer = Writer(self.seed, part)
        for _ in range(getattr(self, part)):
            a, b, c = (name.title() for name in writer.names(3))
            order, other = writer.shuffled(ORDERS)[:2]
            told = [
                writer.sentence(order, OPENINGS, SURE, a=a, b=b),
                writer.sentence(other, OPENINGS, SURE, a=c, b=writer.pick((a, b))),
            ]
            label = writer.pick(LABELS)
            if label == "neutral":  # another pair of people, or another relation of the same people
                pair, relation = writer.pick((((a, c), order), ((c, b), order), ((a, b), other), ((b, a), other)))
                denied = writer.likely(1 / 2)
            else:
                denied = writer.likely(1 / 2)
                pair, relation = ((a, b) if (label == "entailment") != denied else (b, a)), order
            openings = DENIED if denied else ("",)
            stated = writer.sentence(relation, openings, SURE, a=pair[0], b=pair[1])
            yield LabelledPair((" ".join(writer.shuffled(told)), stated), label)


@dataclass(frozen=True)
class MadeChoices:
    """A passage about invented people, and statements of which one follows from it.

    The wrong statements have another person, another value or another kind of fact. All their names are in the passage.
    """

    tasks: ClassVar[tuple[str, ...]] = ("choice",)
    part_columns: ClassVar[dict[str, str]] = {"context": "", "choices 1": ""}  # of a file that a trained model reads
    value = staticmethod(ChoiceText.value)

    train: int = 20_000  # number of training passages
    valid: int = 500  # number of validation passages; names and templates differ in the parts
    test: int = 1000  # number of test passages
    choices: int = 4  # statements of which one is right: 2 to 4
    sentences: int = 4  # sentences of a passage, at least 4
    seed: int = 1  # what the passages are drawn from
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 800  # the most tokens

    def __post_init__(self) -> None:
        check_sizes(self, {"train": 1, "valid": 1, "test": 0, "choices": 2, "sentences": 4, "seed": 0})
        if self.choices > 4:
            raise UserError(f"data.choices={self.choices}: there are three wrong statements; give at most 4.")

    def load(self) -> Corpus:
        train, valid, test = (list(self._draw(part)) for part in PARTS)
        return Corpus(train, valid, test)

    def _draw(self, part: Part) -> Iterator[Choice]:
        writer = Writer(self.seed, part)
        for _ in range(getattr(self, part)):
            facts = _facts(writer, people=3)
            fact = writer.pick([one for one in facts if one.kind != "thing"])
            there = _passage(writer, fact, facts, self.sentences)
            passage = " ".join(_told(writer, one, there) for one in there)
            near = writer.shuffled([one for one in there if one.kind == fact.kind and one != fact])
            wrong = [
                replace(fact, value=near[0].value),
                replace(fact, person=near[1].person),
                replace(fact, kind="home" if fact.kind == "work" else "work"),
            ]
            stated = writer.shuffled([fact, *wrong[: self.choices - 1]])
            texts = [writer.sentence(FACTS[one.kind], ("",), ENDINGS, a=one.person, b=one.value) for one in stated]
            yield Choice(tuple((passage, text) for text in texts), stated.index(fact))
