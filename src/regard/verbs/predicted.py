"""What a model predicts for one text, beside its attention: its class, its labels, its number or the tags of its words.

A model that predicts tokens has no such answer: they are in the picture itself.
"""

from dataclasses import asdict

from regard.recording import pause_recording
from regard.render.formatting import format_number
from regard.render.view_data import Answer
from regard.verbs.labelling import classify, label_sets, rate
from regard.verbs.loaded import Loaded
from regard.verbs.tagging import tag_words

NEXT = 4  # the answers after the predicted one that a sentence names


def predicted(model: Loaded, text: str | tuple[str, ...]) -> Answer | None:
    """The class, the labels or the number of a text, or the tags of its words; None for a model of another task."""
    if model.module.config.numbers or model.reads_images:
        return None
    with pause_recording(model.module):
        if model.predicts("class"):
            return _class(model, text)
        if model.predicts("labels"):
            return _labels(model, text)
        if model.predicts("number"):
            (rated,) = rate(model, [text])
            return Answer(f"Predicted number: {format_number(rated.number)}.", asdict(rated))
        if model.predicts("tag") and isinstance(text, str):
            (tagged,) = tag_words(model, [text.split()])
            pairs = " · ".join(f"{word}: {tag}" for word, tag in zip(tagged.words, tagged.tags))
            return Answer(f"Predicted tags: {pairs}.", asdict(tagged))
    return None


def _class(model: Loaded, text: str | tuple[str, ...]) -> Answer:
    (found,) = classify(model, [text])
    others = [name for name in found.labels if name != found.label]
    sentence = f"Predicted class: {found.label}, probability {found.probability:.3f}{_next(others, found.labels)}."
    return Answer(sentence, asdict(found))


def _labels(model: Loaded, text: str | tuple[str, ...]) -> Answer:
    (found,) = label_sets(model, [text])
    given = ", ".join(f"{name} ({found.labels[name]:.3f})" for name in found.given) or "none"
    others = [name for name in found.labels if name not in found.given]
    return Answer(f"Predicted labels, with their probabilities: {given}{_next(others, found.labels)}.", asdict(found))


def _next(names: list[str], probabilities: dict[str, float]) -> str:
    """The likeliest of the other answers."""
    shown = ", ".join(f"{name} {probabilities[name]:.3f}" for name in names[:NEXT])
    more = f" and {len(names) - NEXT:,} more" if len(names) > NEXT else ""
    return f"; the next: {shown}{more}" if names else ""
