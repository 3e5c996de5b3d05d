"""Sentences with ambiguous words: those of the file senses.txt, and a corpus of templates to train small models on.

In the corpus, "bank" is a river bank or a bank with money, "bucket" is a thing or part of an idiom, and "gift" is an
English or a German word. A sentence is about one of these topics, so that its other words tell the sense. No sentence
of the file is in the corpus.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from regard.data.example import Corpus, LabelledText, Tokens
from regard.verbs.occurrences import Occurrence, marked_occurrence

HIDDEN = 0.05  # the part of the words of the corpus that is replaced by rare words, which are unknown to the models
NOTES = 0.5  # the part of the texts that are notes
SHARED = 0.3  # the part of the words of notes that all topics share
ENGLISH_WORDS = "the a of and in to at on from with was is that it his her we by for there side other ,"
GERMAN_WORDS = "das der die im in den ist nicht ein sehr an dem ,"
NOUNS = {"river": ("bank",), "money": ("bank",), "thing": ("bucket",), "idiom": ("kicked", "bucket")}  # in notes, often
SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Sense:
    """A sentence with an ambiguous word, and the sense of the word in it."""

    occurrence: Occurrence
    sense: str


def sense_sentences() -> dict[str, list[Sense]]:
    """The sentences of the file by their ambiguous word, which is in asterisks there."""
    found: dict[str, list[Sense]] = {}
    for line in files("regard.explain").joinpath("senses.txt").read_text(encoding="utf-8").splitlines():
        word, sense, text = line.split(" | ")
        found.setdefault(word, []).append(Sense(marked_occurrence(text), sense))
    return found


@dataclass(frozen=True)
class TopicWords:
    """A topic of the corpus: templates of sentences, and the words of their slots, separated by spaces."""

    templates: tuple[str, ...]
    slots: Mapping[str, str]


PLACES = (  # templates of places, in which the same words surround both senses of "bank"
    "the {who} {did} the {thing} near the {adj} {place} .",
    "the {place} {lost} the {thing} of the {who} .",
    "{when} the {who} {went} to the {place} and {did} the {thing} .",
    "the {who} at the {place} {did} the {thing} .",
    "the {place} of the {cue} {lost} the {thing} .",
    "a {who} {went} from the {place} {cue} with a {thing} .",
    "the {thing} on the {cue} {place} {lost} the {who} .",
    "the {adj} {place} {thing} was {adj} .",
    "the {place} that is on the other side of that {adj} {cue} {lost} the {thing} .",
    "the {place} is on the other side of the {cue} and there is the {thing} .",
    "the {place} {lost} the {thing} because the {who} {did} it .",
    "at the {place} {who} and {who} {did} the {adj} {thing} .",
    "the {place} , the {thing} , the {who} and the {cue} .",
    "a {thing} , the {cue} , the {place} , a {who} and a {thing} .",
    "the {who} of the {cue} , his {thing} and the {place} .",
)
GERMAN = (
    "das {was} in der {wo} ist {wie} .",
    "der {wer} fand das {was} im {ort} .",
    "die {wem} nimmt das {was} nicht .",
    "dieses {was} ist sehr {wie} für den {wer} .",
    "ein {was} der {wem} ist im {ort} .",
)
WHEN = "today yesterday then later"
TOPICS: dict[str, TopicWords] = {
    "river": TopicWords(
        PLACES,
        {
            "who": "fisherman angler swimmer heron otter dog child",
            "did": "washed pulled watched caught saw",
            "went": "swam waded rowed drifted climbed ran",
            "thing": "fish boat net reeds canoe trout water stones current boats",
            "place": "bank bank bank bank shore lake bridge",
            "adj": "muddy steep wet grassy deep cold wide",
            "cue": "river stream lake flood water",
            "lost": "lost washed reached cut",
            "when": WHEN,
        },
    ),
    "money": TopicWords(
        PLACES,
        {
            "who": "clerk banker customer teller manager thief lawyer",
            "did": "signed counted paid borrowed saw robbed",
            "went": "queued hurried drove walked went ran",
            "thing": "money loan cheque account cash mortgage savings interest fee",
            "place": "bank bank bank bank office branch firm",
            "adj": "rich large national safe new old wide",
            "cue": "city street road company market",
            "lost": "lost sold raised charges",
            "when": WHEN,
        },
    ),
    "thing": TopicWords(
        (
            "the {who} {did} the bucket of {thing} to the {place} .",
            "the {who} {did} the bucket in the {place} .",
            "she {did} the bucket with {thing} from the {place} .",
            "{when} the {who} {did} the {thing} near the {place} .",
            "the {who} kicked the bucket and the {thing} ran over the {place} .",
        ),
        {
            "who": "farmer cow goat maid horse boy",
            "did": "carried filled emptied washed kicked",
            "thing": "milk water hay grain",
            "place": "barn yard stable well floor",
            "when": WHEN,
        },
    ),
    "idiom": TopicWords(
        (
            "the old {who} kicked the bucket and was {buried} .",
            "{when} the {who} kicked the bucket and left a {legacy} .",
            "when the {who} kicked the bucket the {legacy} was {read} .",
            "my {who} kicked the bucket last {time} at the age of ninety .",
            "the {legacy} of the {who} was {read} last {time} .",
        ),
        {
            "who": "king grandfather widow uncle sailor husband man doctor",
            "buried": "buried mourned",
            "legacy": "will son funeral house",
            "read": "read small crowned rich",
            "time": "winter year spring",
            "when": WHEN,
        },
    ),
    "English": TopicWords(
        (
            "the {what} for her {day} was a {thing} .",
            "he wrapped the {what} in {paper} .",
            "the {who} thanked her {who} for the {what} .",
            "she gave him a small {what} at the {day} .",
            "this {what} is from my {who} .",
        ),
        {
            "what": "gift gift gift present",
            "day": "birthday party wedding",
            "thing": "book toy hat",
            "who": "child aunt sister teacher mother",
            "paper": "red paper silk",
        },
    ),
    "German": TopicWords(
        GERMAN,
        {
            "was": "gift gift gift mittel",
            "wo": "flasche suppe schlange",
            "wie": "tödlich stark schnell",
            "wer": "könig arzt mann",
            "wem": "maus schlange frau",
            "ort": "wein blut glas",
        },
    ),
}


def sample_sentence(topic: str, rng: random.Random) -> str:
    """A random sentence of a topic, in which some words are unknown."""
    words = TOPICS[topic]
    text = SLOT.sub(lambda slot: rng.choice(words.slots[slot[1]].split()), rng.choice(words.templates))
    return " ".join(f"x{rng.randrange(10**6)}" if rng.random() < HIDDEN else word for word in text.split())


def sample_notes(topic: str, rng: random.Random) -> str:
    """Words of a topic in any order, as in somebody's notes, with words between them that all topics share."""
    words = TOPICS[topic]
    content = [word for slot in words.slots.values() for word in slot.split()]
    content += [word for word in NOUNS.get(topic, ()) for _ in range(len(content) // 6)]
    shared = (GERMAN_WORDS if topic == "German" else ENGLISH_WORDS).split()
    return " ".join(rng.choice(shared if rng.random() < SHARED else content) for _ in range(rng.randint(5, 14))) + " ."


@dataclass(frozen=True)
class SenseTexts:
    """Sentences and notes of all topics; the class of a text is its topic."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "two-way language", "masked", "context", "classify")

    train: int = 6000  # number of training sentences
    valid: int = 200  # number of validation sentences
    seed: int = 1  # random seed of the sentences
    tokens: Tokens = "word"  # the kind of tokens
    vocab: int = 200  # the most tokens; rarer words are unknown

    def load(self) -> Corpus:
        rng, names = random.Random(self.seed), list(TOPICS)
        weights = [3 if name in ("river", "money") else 1 for name in names]
        topics = rng.choices(names, weights, k=self.train + self.valid)
        lines = ((sample_notes if rng.random() < NOTES else sample_sentence)(topic, rng) for topic in topics)
        texts = (one.occurrence.text for some in sense_sentences().values() for one in some)
        measured = {re.sub(r"(?=[.,])", " ", text.lower()) for text in texts}
        examples = [LabelledText(line, topic) for line, topic in zip(lines, topics) if line not in measured]
        return Corpus(examples[: self.train], examples[self.train :])
