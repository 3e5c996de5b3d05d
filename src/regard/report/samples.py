"""Samples at the end of a run: a few texts that the model continues, or whose masked word it fills in."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from regard import verbs
from regard.data.fields import TextField
from regard.models import reads_whole
from regard.verbs import Loaded
from regard.verbs.filling import mask_of
from regard.verbs.neighbours import neighbours, word_table

LONGEST = 80  # characters of an excerpt
OPENING = 3  # words of an example that are the prompt
LENGTH = 160  # tokens of an answer
TEMPERATURE = 0.8
NEAR, NEAR_WORDS, NEAR_EVERY = 6, 5, 20  # neighbours of a word; words; every how many-th of the most frequent words
LONG_WORD = 5  # letters of a word: shorter ones are mostly function words


class Sample(NamedTuple):
    """An input, and the output of the model."""

    given: str
    said: str


def excerpts(model: Loaded, examples: Sequence[Any], most: int) -> list[str]:
    """Texts of the first few examples that the model can read; a text that is too long is cut."""
    name = next((name for name, each in model.fields.items() if isinstance(each, TextField)), None)
    if name is None or model.reads_images:
        return []
    alone = len(model.fields) - len(model.task.made) == 1
    found = (_readable(model, excerpt(getattr(one, name)) if alone else getattr(one, name)) for one in examples)
    return list(islice((text for text in found if _enough(model, text)), most))


def excerpt(text: str) -> str:
    """The beginning of the longest line of a text."""
    line = max(text.splitlines(), key=len, default="").strip()
    return line if len(line) <= LONGEST else line[:LONGEST].rpartition(" ")[0] or line[:LONGEST]


def _readable(model: Loaded, text: str) -> str:
    """The text, or as much of it as the model can read."""
    (kept,) = model.read([text])
    return text if kept == model.tokenizer.encode(text.strip()) else model.tokenizer.decode(kept)


def _enough(model: Loaded, text: str) -> bool:
    """Whether a text has a token to predict: a model of running text has no begin token before the first one."""
    tokens = model.tokenizer.encode(text.strip())
    whole = reads_whole(model.module.config)
    return bool(tokens) and (whole or len(model.tokenizer.special_tokens.wrap_target(tokens)) > 1)


def samples(model: Loaded, texts: Sequence[str], seed: int) -> list[Sample]:
    """A sample for each text, by the verb of the model's task; none for a verb without samples."""
    sample = SAMPLES.get(model.task.verb)
    return [] if sample is None else sample(model, texts, seed)


def _generated(model: Loaded, texts: Sequence[str], seed: int) -> list[Sample]:
    """The first words of texts, and what the model generates after them.

    If the model reads backward: the last words, and what it generates before them.
    """
    backward = model.reads_backward
    part = slice(-OPENING, None) if backward else slice(OPENING)
    given = [" ".join(text.split()[part]) for text in texts]
    found = verbs.generate(model, given, TEMPERATURE, seed=seed, limit=LENGTH)
    whole = [one.text + one.prompt if backward else one.prompt + one.text for one in found]
    return [Sample(prompt, text) for prompt, text in zip(given, whole)]


def _filled(model: Loaded, texts: Sequence[str], seed: int) -> list[Sample]:
    """Texts without their middle word, and what the model fills in."""
    given = [gapped(text, mask_of(model)) for text in texts]
    return [Sample(text, one.text) for text, one in zip(given, verbs.fill(model, given))]


def _near(model: Loaded, texts: Sequence[str], seed: int) -> list[Sample]:
    """Some frequent words of more than a few letters, and their neighbours."""
    table = word_table(model)
    long = [word for word in table.words if len(word) >= LONG_WORD and word.isalpha()]
    words = (long or list(table.words))[: NEAR_WORDS * NEAR_EVERY : NEAR_EVERY]
    return [Sample(word, ", ".join(one.word for one in neighbours(table, [word], NEAR))) for word in words]


SAMPLES: dict[str, Callable[[Loaded, Sequence[str], int], list[Sample]]] = {
    "generate": _generated,
    "fill": _filled,
    "neighbours": _near,
}


def gapped(text: str, mask: str) -> str:
    """The text with a mask in place of its middle word."""
    words = text.split() or [""]
    words[len(words) // 2] = mask
    return " ".join(words)
