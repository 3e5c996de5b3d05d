"""What a model says of itself at the end of its run: a few texts that it goes on with, or fills in."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from regard import verbs
from regard.data.example import Example
from regard.verbs import Loaded
from regard.verbs.filling import mask_of

LONGEST = 80  # characters of an excerpt
OPENING = 3  # words of an example that are gone on with
LENGTH = 160  # tokens of an answer
TEMPERATURE = 0.8


class Sample(NamedTuple):
    """What a model was given, and what it made of it."""

    given: str
    said: str


def excerpts(model: Loaded, examples: Sequence[Example], most: int) -> list[str]:
    """Texts that stand for the first few examples and that the model, which cuts what is too long, can look at."""
    found = (_readable(model, excerpt(example)) for example in examples)
    return list(islice((text for text in found if _enough(model, text)), most))


def excerpt(example: Example) -> str:
    """A text that stands for an example: its source, or the beginning of its longest line."""
    if example.source:
        return example.source
    line = max(example.target.splitlines(), key=len, default="").strip()
    return line if len(line) <= LONGEST else line[:LONGEST].rpartition(" ")[0] or line[:LONGEST]


def _readable(model: Loaded, text: str) -> str:
    """The text, or as much of it as the model can read."""
    (kept,) = model.read([text])
    return text if kept == model.tokenizer.encode(text.strip()) else model.tokenizer.decode(kept)


def _enough(model: Loaded, text: str) -> bool:
    """Whether there is something to say: a model of running text has no begin to say a single token after."""
    tokens = model.tokenizer.encode(text.strip())
    return bool(tokens) and (
        model.module.task != "language" or len(model.tokenizer.special_tokens.wrap_target(tokens)) > 1
    )


def samples(model: Loaded, texts: Sequence[str], seed: int) -> list[Sample]:
    """How a language model goes on from the first words of texts, or how a model that reads both ways fills a gap."""
    match model.module.task:
        case "language":
            given = [" ".join(text.split()[:OPENING]) for text in texts]
            told = verbs.generate(model, given, TEMPERATURE, seed=seed, limit=LENGTH)
            return [Sample(prompt, one.prompt + one.text) for prompt, one in zip(given, told)]
        case "fill":
            given = [gapped(text, mask_of(model)) for text in texts]
            return [Sample(text, one.text) for text, one in zip(given, verbs.fill(model, given))]
        case _:
            return []


def gapped(text: str, mask: str) -> str:
    """The text without its middle word."""
    words = text.split()
    words[len(words) // 2] = mask
    return " ".join(words)
