"""Samples at the end of a run: a few texts that the model continues, whose masked word it fills in, or that it answers.

Of texts that it answers, the failures are shown too: the wrong answers that it is surest of, or the largest errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from regard import verbs
from regard.answer_scores import exact
from regard.data.answers import windows
from regard.data.example import Choice, Question, RatedPair, RatedText
from regard.data.fields import TextField
from regard.data.joined import cut_longest, inputs_of
from regard.models import reads_whole
from regard.verbs import Loaded
from regard.verbs.answering import answer
from regard.verbs.filling import mask_of
from regard.verbs.labelling import choose, rate
from regard.verbs.neighbours import neighbours, word_table

LONGEST = 80  # characters of an excerpt
PICTURED = 600  # characters of an example that has more than a text, such as tags: a page grows with their square
OPENING = 3  # words of an example that are the prompt
LENGTH = 160  # tokens of an answer
TEMPERATURE = 0.8
NEAR, NEAR_WORDS, NEAR_EVERY = 6, 5, 20  # neighbours of a word; words; every how many-th of the most frequent words
ANSWERED, WRONG = 200, 5  # examples that are answered to find failures; failures that are shown
NO_ANSWER = "(no answer)"
LONG_WORD = 5  # letters of a word: shorter ones are mostly function words


class Sample(NamedTuple):
    """An input, and the output of the model."""

    given: str
    said: str


class Answer(NamedTuple):
    """An input, the answer of the model and the right one."""

    given: str
    said: str
    right: str
    score: float  # how sure the model is: the mean log-probability of the tokens, a probability; or how wrong


def excerpts(model: Loaded, examples: Sequence[Any], most: int) -> list[Any]:
    """Texts of the first few examples that the model can read; a text that is too long is cut.

    A text of several parts is a tuple of them; of several choices, it has the right one. Of a passage it has the part
    around the answer, or the beginning.
    """
    name = next((name for name, each in model.fields.items() if isinstance(each, TextField)), None)
    if name is None or model.reads_images:
        return []
    if model.joined_text is not None:
        some = examples[:most]
        if model.predicts("span"):
            read = windows(model.fields, some, model.data, model.longest)
            some = [_near_answer(next((one for one in parts if one.answers), parts[0])) for parts in read]
        right = [one.label if model.predicts("choice") else 0 for one in some]
        return [_cut_parts(inputs_of(getattr(one, name))[place][:2]) for one, place in zip(some, right)]
    alone = len(model.fields) - len(model.task.made) == 1
    values = (getattr(one, name) for one in examples)
    texts = (value if isinstance(value, str) else value[0] for value in values)  # of several texts, the first
    found = (_readable(model, excerpt(text) if alone else _cut(text, PICTURED)) for text in texts)
    return list(islice((text for text in found if _enough(model, text)), most))


def excerpt(text: str) -> str:
    """The beginning of the longest line of a text."""
    return _cut(max(text.splitlines(), key=len, default=""), LONGEST)


def _cut(text: str, most: int) -> str:
    """The first words of a text, at most so many characters."""
    text = text.strip()
    return text if len(text) <= most else text[:most].rpartition(" ")[0] or text[:most]


def _near_answer(one: Question) -> Question:
    """A question whose passage begins shortly before its answer."""
    start = one.answers[0][1] if one.answers else 0
    begin = one.passage.rfind(" ", 0, max(0, start - PICTURED // 4)) + 1
    return replace(one, passage=one.passage[begin:], answers=())


def _cut_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """The parts of a text without their ends, so that a page can picture them; the longest is cut first."""
    kept = cut_longest([[*range(len(part))] for part in parts], PICTURED)
    return tuple(_cut(part, len(places)) for part, places in zip(parts, kept))


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
    given = [_opening(model, text) for text in texts]
    found = verbs.generate(model, given, TEMPERATURE, seed=seed, limit=LENGTH)
    whole = [one.text + one.prompt if backward else one.prompt + one.text for one in found]
    return [Sample(prompt, text) for prompt, text in zip(given, whole)]


def _opening(model: Loaded, text: str) -> str:
    """The first words of a text, or its first token if it has no other words: “h” of “hello”. Backward: the last."""
    words = text.split()
    if len(words) > OPENING:
        return " ".join(words[-OPENING:] if model.reads_backward else words[:OPENING])
    tokens = model.tokenizer.encode(text.strip())
    parts = (model.tokenizer.decode(tokens[:size]) for size in range(1, len(tokens)))
    return next((part for part in parts if part and "\ufffd" not in part), text)  # bytes may be half a character


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


def answers(model: Loaded, examples: Sequence[Any], most: int) -> tuple[list[Answer], list[Answer]]:
    """The first answers of a model that reads a source, and its failures: the wrong answers that it is surest of."""
    some = examples[:: max(1, len(examples) // ANSWERED)][:ANSWERED]
    said = verbs.translate(model, [one.source for one in some], align=False)
    found = [Answer(one.source, each.text, one.target, each.score) for one, each in zip(some, said)]
    accepted = [(one.target, *one.others) for one in some]
    wrong = [one for one, right in zip(found, accepted) if one.said not in right]
    return found[:most], sorted(wrong, key=lambda one: -one.score)[:WRONG]


def mistakes(model: Loaded, examples: Sequence[Any]) -> tuple[list[Answer], str]:
    """The worst mistakes of a model of choices, of answers or of numbers, and what their score is; none of others."""
    examined = MISTAKES.get(type(examples[0])) if examples else None
    if examined is None:
        return [], ""
    find, score = examined
    wrong = find(model, examples[:: max(1, len(examples) // ANSWERED)][:ANSWERED])
    return sorted(wrong, key=lambda one: -one.score)[:WRONG], score


def _wrong_choices(model: Loaded, examples: Sequence[Any]) -> list[Answer]:
    contexts = [(one.text[0][0], *(choice for _, choice in one.text)) for one in examples]
    return [
        Answer(context, found.choice, choices[one.label], found.probability)
        for one, (context, *choices), found in zip(examples, contexts, choose(model, contexts))
        if found.number != one.label
    ]


def _wrong_answers(model: Loaded, examples: Sequence[Any]) -> list[Answer]:
    right = [[text for text, _ in one.answers] or [""] for one in examples]
    found = answer(model, [(one.question, one.passage) for one in examples])
    return [
        Answer(one.question, said.text or NO_ANSWER, texts[0] or NO_ANSWER, said.probability)
        for one, texts, said in zip(examples, right, found)
        if not any(exact(said.text, text) for text in texts)
    ]


def _wrong_numbers(model: Loaded, examples: Sequence[Any]) -> list[Answer]:
    texts = [one.text if isinstance(one.text, str) else tuple(inputs_of(one.text)[0]) for one in examples]
    return [
        Answer(text if isinstance(text, str) else " · ".join(text), f"{found:.3g}", f"{right:.3g}", abs(found - right))
        for text, found, right in zip(
            texts, [one.number for one in rate(model, texts)], [one.number for one in examples]
        )
    ]


MISTAKES: dict[type, tuple[Callable[[Loaded, Sequence[Any]], list[Answer]], str]] = {  # by the class of the examples
    Choice: (_wrong_choices, "the probability of the output"),
    Question: (_wrong_answers, "the probability of the output"),
    RatedText: (_wrong_numbers, "the difference of output and right number"),
    RatedPair: (_wrong_numbers, "the difference of output and right number"),
}


def gapped(text: str, mask: str) -> str:
    """The text with a mask in place of its middle word."""
    words = text.split() or [""]
    words[len(words) // 2] = mask
    return " ".join(words)
