"""Questions, entailments and choices that are made from templates: data for models that compare two texts.

A name is two invented words, such as Bal Mir. A name belongs to one part of the data (training, validation or test),
and so does a template: a sentence form with its opening and its ending. So a model cannot know an answer from a name or
a sentence that it has seen. There are 90,000 names, so that it cannot learn those of training by heart, either. The
single words are the same in all parts: a model from scratch knows no others. Distractors, negation and the order of
names make the number of words that two texts have in common a poor guide.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import ClassVar, Literal, TypeVar

from regard.data.example import Choice, LabelledPair, Question, Tokens
from regard.data.files import hash_text
from regard.data.joined import ChoiceText
from regard.data.squad import check_windows
from regard.data.synthetic import Drawn
from regard.errors import UserError

T = TypeVar("T")
Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
FOLDS = 7  # the folds that names and templates are dealt to
HELD: dict[int, Part] = {5: "valid", 6: "test"}  # the folds that are not for training

# The invented words of which names are made. They are many, so that a model cannot learn the names by heart.
WORDS = tuple("".join(letters) for letters in product("bdfghjklmprstvz", "aeiou", "lmnr"))
# There is an ending for each fold, so that every part has each form with each opening. No opening is also an ending:
# a sentence with the same word at both ends would be in one part only.
OPENINGS = ("", "now ", "today ", "surely ", "indeed ", "here ", "truly ")
ENDINGS = ("", " again", " too", " still", " already", " also", " anyway")

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
    "home": (("where does {a} live", "in which town is the house of {a}"), ("who lives in {b}",)),
    "work": (("where does {a} work", "in which town is the office of {a}"), ("who works in {b}",)),
    "thing": (("what does {a} own", "which thing belongs to {a}"), ("who owns the {b}", "to whom belongs the {b}")),
}
# Pairs of relations of which one is the inverse of the other.
ORDERS = (
    ("{a} is taller than {b}", "{b} is shorter than {a}"),
    ("{a} is older than {b}", "{b} is younger than {a}"),
    ("{a} came before {b}", "{b} came after {a}"),
    ("{a} is faster than {b}", "{b} is slower than {a}"),
)
LABELS = ("entailment", "contradiction", "neutral")
STATED = ("", "so ", "then ", "thus ", "hence ", "therefore ", "clearly ")
DENIED = ("it is not true that ", "it is false that ", "it is wrong that ")


def part_of(name: str) -> Part:
    """The part of the data that a name belongs to."""
    return HELD.get(hash_text(name) % FOLDS, "train")


@cache
def templates(part: Part, forms: tuple[str, ...], openings: tuple[str, ...]) -> list[str]:
    """The templates of a part, combinations of an opening, a form and an ending.

    The sum of their three numbers gives the fold, so that a template is in the same part whatever it is used for.
    """
    numbered = product(enumerate(openings), enumerate(forms), enumerate(ENDINGS))
    return [
        opening + form + ending
        for (one, opening), (two, form), (three, ending) in numbered
        if HELD.get((one + two + three) % FOLDS, "train") == part
    ]


def capital(text: str) -> str:
    """The text with its first letter as a capital."""
    return text[0].upper() + text[1:]


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
        end: str = ".",
        **names: str,
    ) -> str:
        """A sentence of one of these forms, from a capital letter to its end."""
        text = self.pick(templates(self.part, forms, openings)).format(**names)
        return capital(text) + end


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


def _fact_sentence(writer: Writer, fact: Fact, others: Sequence[Fact]) -> str:
    """A sentence that states a fact; one of three also denies another value of the same kind."""
    wrong = [one.value for one in others if one.kind == fact.kind and one != fact]
    if wrong and writer.likely(1 / 3):
        return writer.sentence(NEGATED[fact.kind], a=fact.person, b=fact.value, c=writer.pick(wrong))
    return writer.sentence(FACTS[fact.kind], a=fact.person, b=fact.value)


def _passage(writer: Writer, fact: Fact, facts: Sequence[Fact], sentences: int) -> list[Fact]:
    """The facts of a passage in random order: one, the facts that are easily confused with it, and others.

    Those are the same kind of fact about another person, and other facts about both persons: the passage says as much
    about the one as about the other, on average.
    """
    near = writer.pick([one for one in facts if one.kind == fact.kind and one != fact])
    others = [one for one in facts if one not in (fact, near)]
    about_both = writer.shuffled([one for one in others if one.person in (fact.person, near.person)])
    about_rest = writer.shuffled([one for one in others if one not in about_both])
    return writer.shuffled([fact, near, *about_both, *about_rest][:sentences])


@dataclass(frozen=True)
class MadeAnswers(Drawn):
    """Questions about invented people, made from templates. The passage does not answer some of them."""

    tasks: ClassVar[tuple[str, ...]] = ("answer",)
    least: ClassVar[Mapping[str, int]] = {"sentences": 3}

    train: int = 50_000  # number of training questions
    valid: int = 500  # number of validation questions; names and templates differ in the parts
    test: int = 1000  # number of test questions
    sentences: int = 3  # sentences of a passage: 3 to 9
    unanswered: float = 0.15  # the share of questions that the passage does not answer
    seed: int = 1  # random seed of the questions
    window: int = 384  # the most tokens of question and passage together; a longer passage is read in several windows
    stride: int = 128  # number of tokens between the beginnings of two windows of a long passage
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 1000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        check_windows(self.window, self.stride)
        if self.sentences > 9:
            raise UserError(f"data.sentences={self.sentences}: there are nine facts; give at most 9.")
        if not 0 <= self.unanswered < 1:
            raise UserError(f"data.unanswered={self.unanswered}: give 0 (none) or more, below 1.")

    def draw(self, part: int, count: int) -> Iterator[Question]:
        writer = Writer(self.seed, PARTS[part])
        for number in range(count):
            facts = _facts(writer, people=3)
            fact = writer.pick(facts)
            answered = not writer.likely(self.unanswered)
            there = _passage(writer, fact, facts, self.sentences + (not answered))
            about_value = writer.likely(2 / 3)
            forms = ASKED[fact.kind][0 if about_value else 1]
            question = writer.sentence(forms, end="?", a=fact.person, b=fact.value)
            if not answered:
                there.remove(fact)
            passage, answers = "", tuple[tuple[str, int], ...]()
            for one in there:
                sentence = _fact_sentence(writer, one, facts)
                if one == fact:
                    answer = fact.value if about_value else fact.person
                    place = re.search(rf"\b{answer}\b", sentence)
                    assert place is not None
                    answers = ((answer, len(passage) + place.start()),)
                passage += sentence + " "
            yield Question(question, passage.rstrip(), answers, f"{writer.part}-{number}")


@dataclass(frozen=True)
class Relations:
    """Relations of invented people, of which two are stated: `order` of the first two people, `other` of the third."""

    people: tuple[str, ...]  # four; the text says nothing about the last
    order: tuple[str, ...]  # two forms; the first is stated, the second is its inverse
    other: tuple[str, ...]
    absent: tuple[str, ...]  # is not stated
    text: str

    @classmethod
    def draw(cls, writer: Writer) -> Relations:
        a, b, c, d = (name.title() for name in writer.names(4))
        order, other, absent = (forms if writer.likely(1 / 2) else forms[::-1] for forms in writer.shuffled(ORDERS)[:3])
        sentences = [writer.sentence(order[:1], a=a, b=b), writer.sentence(other[:1], a=c, b=writer.pick((a, b)))]
        return cls((a, b, c, d), order, other, absent, " ".join(writer.shuffled(sentences)))

    def state(self, writer: Writer, kind: str) -> str:
        """A statement of a kind: entailment, contradiction, other people (of whom one may be new) or other relation.

        One statement of eight has the inverse relation (taller: shorter), and one of eight denies the opposite,
        whatever its kind. If these were as frequent as their opposites, none of them alone would tell anything about
        the kind, and a model that starts from nothing would learn nothing.
        """
        a, b, c, d = self.people
        pair, relation = ((b, a) if kind == "contradiction" else (a, b)), self.order
        if kind == "other people":
            pair = writer.pick(((a, c), (c, b), (a, d), (d, b)))
        if kind == "other relation":
            pair, relation = writer.pick(((a, b), (b, a))), writer.pick((self.other, self.absent))
        forms = relation[1:] if writer.likely(1 / 8) else relation[:1]
        if writer.likely(1 / 8):
            return writer.sentence(forms, DENIED, a=pair[1], b=pair[0])
        return writer.sentence(forms, STATED, a=pair[0], b=pair[1])


@dataclass(frozen=True)
class MadeEntailment(Drawn):
    """Two statements about invented people: does the first entail or contradict the second, or neither (neutral)?

    The first part has two sentences about three people. The second part states a relation of two people, or denies one.
    Which class is right depends on the relation, on the order of the names and on the negation.
    """

    tasks: ClassVar[tuple[str, ...]] = ("pair",)

    train: int = 50_000  # number of training pairs
    valid: int = 1000  # number of validation pairs; names and templates differ in the parts
    test: int = 1000  # number of test pairs
    seed: int = 1  # random seed of the pairs
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 1000  # the largest size of the vocabulary

    def draw(self, part: int, count: int) -> Iterator[LabelledPair]:
        writer = Writer(self.seed, PARTS[part])
        for _ in range(count):
            relations, label = Relations.draw(writer), writer.pick(LABELS)
            kind = writer.pick(("other people", "other people", "other relation")) if label == "neutral" else label
            yield LabelledPair((relations.text, relations.state(writer, kind)), label)


@dataclass(frozen=True)
class MadeChoices(Drawn):
    """Two sentences about invented people, and statements of which one follows from them.

    The wrong statements contradict the sentences, or are about other people or another relation.
    """

    tasks: ClassVar[tuple[str, ...]] = ("choice",)
    least: ClassVar[Mapping[str, int]] = {"choices": 2}
    part_columns: ClassVar[dict[str, str]] = {"context": "", "choices 1": ""}  # of a file that a trained model reads
    value = staticmethod(ChoiceText.value)

    train: int = 50_000  # number of training passages
    valid: int = 1000  # number of validation passages; names and templates differ in the parts
    test: int = 1000  # number of test passages
    choices: int = 4  # statements of which one is right: 2 to 4
    seed: int = 1  # random seed of the passages
    tokens: Tokens = "bpe"  # the kind of tokens
    vocab: int = 1000  # the largest size of the vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choices > 4:
            raise UserError(f"data.choices={self.choices}: there are three wrong statements; give at most 4.")

    def draw(self, part: int, count: int) -> Iterator[Choice]:
        writer = Writer(self.seed, PARTS[part])
        for _ in range(count):
            relations = Relations.draw(writer)
            kinds = ("entailment", "contradiction", "other people", "other relation")[: self.choices]
            right, *others = (relations.state(writer, kind) for kind in kinds)
            texts = writer.shuffled([right, *others])
            yield Choice(tuple((relations.text, text) for text in texts), texts.index(right))
