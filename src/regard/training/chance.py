"""The scores of a guess that does not use the input, with which those of a model are compared."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from regard.data.fields import LabelField, TagsField
from regard.data.joined import JoinedText, inputs_of
from regard.objectives import ReplacedTokens
from regard.tasks import Task
from regard.training.evaluate import TOKEN_HEADS
from regard.verbs.answering import SENTENCE_END
from regard.verbs.loaded import Loaded


def describe_chance(model: Loaded, examples: Sequence[Any]) -> str:
    """The scores of a guess that does not use the input, as a sentence; empty where no such guess is known.

    For two texts that are compared, a second sentence has the score of a guess from the words that they share.
    """
    return " ".join(one for one in (_guess(model, examples), _overlap(model, examples)) if one)


def _guess(model: Loaded, examples: Sequence[Any]) -> str:
    """The scores of a guess that does not use the input."""
    if model.task.head == "span" and examples:
        none = sum(not one.answers for one in examples) / len(examples)
        return f"Chance: a model that always gives no answer has exact match {none:.1%}."
    if model.task.head == "choice" and examples:
        right = sum(1 / len(one.text) for one in examples) / len(examples)
        return f"Chance: a model that chooses at random has accuracy {right:.1%}."
    labels = next(((name, each) for name, each in model.fields.items() if isinstance(each, LabelField)), None)
    if labels is not None and model.task.head == "labels" and examples:
        classes = Counter(label for one in examples for label in getattr(one, labels[0]))
        ((answer, number),) = classes.most_common(1) or [("", 0)]
        f1 = 2 * number / (len(examples) + classes.total())  # hits / mean of the given and the right labels
        return f"Chance: a model that gives each text “{answer}” alone, the most frequent label, has micro F1 {f1:.1%}."
    if labels is not None and examples:
        return _class_chance(model.task, labels[1], [getattr(one, labels[0]) for one in examples])
    targets = [getattr(one, [*model.fields][-1]) for one in examples] if model.task.head in ("number", "keys") else []
    if targets and model.task.head == "number":
        guess = f"always answers {np.mean(targets):.4g}, the mean"
        return f"Chance: a model that {guess}, has mean squared error {np.var(targets):.4g}."
    if targets:
        share = np.concatenate([np.asarray(keys) for keys in targets]).mean(0, np.float64).clip(1e-12, 1 - 1e-12)
        loss = -(share * np.log(share) + (1 - share) * np.log(1 - share)).sum()
        return f"Chance: a model that gives each key the probability of its share of all steps has loss {loss:.3f}."
    if model.task.head in TOKEN_HEADS:
        vocab = model.target_tokenizer.size
        asked = model.recipe is not None and "sentences" in model.recipe.metrics
        return (
            f"Chance: a model that gives each of the {vocab:,} tokens the same probability has loss "
            f"{math.log(vocab):.3f}, perplexity {vocab:,} and accuracy {1 / vocab:.2%}."
        ) + " A random answer about the two sentences is right in 50%." * asked
    if model.recipe is not None and isinstance(objective := model.recipe.objective, ReplacedTokens):
        least = 1 - objective.part if objective.places == "all" else 0.0
        return (
            f"Chance: a model that finds no token replaced has recall 0% and an accuracy of about {least:.0%} or more."
        )
    return ""


def _overlap(model: Loaded, examples: Sequence[Any]) -> str:
    """The score of a guess from the number of words that two texts share; empty for other tasks."""
    if not any(isinstance(each, JoinedText) for each in model.fields.values()) or not examples:
        return ""
    if model.task.head == "span":
        found = sum(_shares_most(one.question, one.passage, one.answers) for one in examples) / len(examples)
        return f"The sentence that shares most words with the question has the answer in {found:.1%} of all questions."
    if model.task.head == "choice":
        right = 0.0
        for one in examples:
            shared = [_shared(choice, context) for context, choice in one.text]
            right += (shared[one.label] == max(shared)) / shared.count(max(shared))
        share = f"{right / len(examples):.1%}"
        return f"The choice that shares the largest part of its words with the context is right in {share}."
    if model.task.head == "class" and len(inputs_of(examples[0].text)[0]) > 1:
        classes = defaultdict[float, Counter[str]](Counter)
        for one in examples:
            first, second = inputs_of(one.text)[0][:2]
            classes[round(_shared(second, first), 1)][one.label] += 1
        likeliest = sum(max(counts.values()) for counts in classes.values()) / len(examples)
        rule = "the class that is most frequent for the part of the second text's words that the first one has"
        return f"A guess from shared words, {rule}, is right in {likeliest:.1%}."
    return ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _shared(text: str, other: str) -> float:
    """The part of the different words of a text that another text has, too."""
    words = _words(text)
    return len(words & _words(other)) / max(len(words), 1)


def _shares_most(question: str, passage: str, answers: Sequence[tuple[str, int]]) -> bool:
    """Whether the first sentence of a passage that shares most words with a question has one of its answers."""
    starts = [0, *(one.end() for one in SENTENCE_END.finditer(passage)), len(passage)]
    spans = [(start, end) for start, end in pairwise(starts) if start < end]
    start, end = max(spans, key=lambda span: len(_words(passage[slice(*span)]) & _words(question)), default=(0, 0))
    return any(start <= at < end for _, at in answers)


def _class_chance(task: Task, field: LabelField, values: Sequence[Any]) -> str:
    """The accuracy of the most frequent class of examples, or of places, among those that the model has."""
    answers = Counter(tag for tags in values for tag in tags) if isinstance(field, TagsField) else Counter(values)
    answer = max(field.names, key=lambda name: answers[name])
    share = answers[answer] / answers.total()
    found = f"Chance: a model that always answers “{answer}”, the most frequent class, has accuracy {share:.1%}"
    if "recallable" not in task.objective.measures:
        return f"{found}."
    loss = (1 - answers[field.names[0]] / answers.total()) * math.log(max(field.size - 1, 1))
    return f"{found}; one that knows which places are blank and guesses the others has loss {loss:.4f}."
