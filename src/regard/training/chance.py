"""The scores of a guess that does not use the input, with which those of a model are compared."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.data.fields import LabelField, TagsField
from regard.tasks import Task
from regard.training.evaluate import TOKEN_HEADS
from regard.verbs.loaded import Loaded


def describe_chance(model: Loaded, examples: Sequence[Any]) -> str:
    """The scores of a guess that does not use the input, as a sentence; empty where no such guess is known."""
    labels = next(((name, each) for name, each in model.fields.items() if isinstance(each, LabelField)), None)
    if labels is not None and model.task.head == "labels" and examples:
        classes = Counter(label for one in examples for label in getattr(one, labels[0]))
        ((answer, number),) = classes.most_common(1) or [("", 0)]
        f1 = 2 * number / (len(examples) + classes.total())  # hits / mean of the given and the right labels
        return f"Chance: a model that gives each text “{answer}” alone, the most frequent label, has micro F1 {f1:.1%}."
    if labels is not None and examples:
        return _class_chance(model.task, labels[1], [getattr(one, labels[0]) for one in examples])
    if model.task.head == "choice" and examples:
        count = len(examples[0].text)
        return f"Chance: a model that takes one of the {count} choices at random has accuracy {1 / count:.1%}."
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
        return (
            f"Chance: a model that gives each of the {vocab:,} tokens the same probability has loss "
            f"{math.log(vocab):.3f}, perplexity {vocab:,} and accuracy {1 / vocab:.2%}."
        )
    return ""


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
