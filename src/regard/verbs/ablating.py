"""Ablate: the answer of a model without some of its heads, and all heads ranked by the damage of their absence.

The weights of a head show where it looks, not what the answer takes from it (Michel et al. 2019 rank heads this way).
What a change does to a head is defined in `verbs/head_changes.py`; the answers and their log-probabilities in
`verbs/outcomes.py`. Δ log p of a piece is the natural logarithm of its probability by the changed model, minus that by
the unchanged model. Both read the *original* answer, that of the unchanged model, so their pieces are the same. Both
are in one batch, and compute the changed attentions by their definition.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, cast

import torch

from regard.errors import UserError
from regard.recording import pause_recording
from regard.render.view import AttentionView
from regard.verbs.forced import BATCH_TOKENS
from regard.verbs.given import part_list
from regard.verbs.head_changes import (
    CHANGES,
    Change,
    Heads,
    check_keys,
    checked_change,
    described,
    for_page,
    head_changes,
    heads_changed,
    heads_of,
)
from regard.verbs.loaded import Loaded
from regard.verbs.looking import look
from regard.verbs.outcomes import Candidate, Given, Outcome, Subject
from regard.verbs.outcomes_next import Continued, Translated
from regard.verbs.outcomes_whole import Detected, Labels, Masked, Tags

AT_ONCE = 32  # heads that are ranked in one batch


@dataclass(frozen=True)
class Said:
    """What a model says: its own answer, and how likely it finds the original one."""

    answer: str
    pieces: list[str]  # of its own answer, where that is a text of tokens
    logps: list[float]  # of each piece of the original answer
    total: float  # their sum
    places: list[list[Candidate]]  # the likeliest of the next token, of each mask, of the classes or of each tag
    number: float | None = None  # of a regression model


@dataclass(frozen=True)
class Ablation:
    """The answer of a model to a text with some heads changed, beside its original answer."""

    text: Given
    kind: str  # what the model predicts: "target", "next", "masked", "class" …
    heads: dict[str, Change]  # name → change
    pieces: list[str]  # of the original answer
    before: Said
    after: Said
    deltas: list[float]  # Δ log p of each piece
    delta: float  # their sum; of a regression model, the change of the number
    changed: bool  # whether the answer is another one
    sentence: str


@dataclass(frozen=True)
class RankedHead:
    """One head alone is changed."""

    name: str  # such as cross:L1H2
    part: str
    layer: int
    head: int
    delta: float  # the sum of Δ log p of the original answer; of a regression model, the change of the number
    changed: bool  # whether the answer is another one


@torch.no_grad()
def ablate(model: Loaded, text: Given, heads: Heads, beam: int = 1) -> Ablation:
    """The answer of a model without some heads, or with them changed, beside its original answer.

    `heads` is a name, several, or a mapping of names to changes: "L1H2"; ["L1H2", "cross:L0H0=uniform"]; {"L0H1": 3}. A
    name has the layer and the head, both from 0, and before them the part (encoder, decoder or cross) if it is not the
    one that `look` shows first. A change is "off" (by default), "uniform", "one-hot", the number of a key, or a row
    of weights; see `regard.verbs.head_changes` for their definition, and `regard.verbs.outcomes` for log p. A
    translator searches for its answer with this `beam`. A tape of the caller records nothing.
    """
    changes = head_changes(model, heads)
    subject = _subject_of(model, text, beam)
    check_keys(changes, subject.keys)
    with pause_recording(model.module), heads_changed(model, [{}, changes]):
        old, new = subject.outcomes(2)
    if isinstance(subject, Translated):
        with heads_changed(model, [changes]):
            old, new = subject.with_answer(old, subject.original), subject.with_answer(new, subject.search())
    before, after = _said(old), _said(new)
    deltas = [one - other for one, other in zip(after.logps, before.logps)]
    delta = _delta(old, new)
    return Ablation(
        text=text,
        kind=model.task.head,
        heads={head.name: change for head, change in changes.items()},
        pieces=subject.pieces,
        before=before,
        after=after,
        deltas=deltas,
        delta=delta,
        changed=not new.same,
        sentence=_sentence(model, described(changes), before, after, new.same),
    )


@torch.no_grad()
def rank_heads(
    model: Loaded,
    text: Given,
    change: str = "off",
    batch_tokens: int = BATCH_TOKENS,
    report: Callable[[int], None] = lambda more: None,
) -> list[RankedHead]:
    """All heads of all attentions, each changed alone, ranked by the damage to the original answer, the worst first.

    The damage is the sum of Δ log p over the pieces of the original answer (of a regression model, how far the number
    moves). The original answer of a translator is its greedy one. `change` is "off", "uniform" or "one-hot".
    `report` is called with the number of heads that are done.
    """
    kind = checked_change("change", change)
    if kind not in CHANGES:
        raise UserError(f"change={change}: give {', '.join(CHANGES)}; keys and rows are for one head, see ablate.")
    heads = heads_of(model)
    if not heads:
        raise UserError(f"{model.path}: has no attention, so no heads to rank.")
    subject = _subject_of(model, text)
    size, found = min(AT_ONCE, max(1, batch_tokens // subject.tokens - 1)), []
    for first in range(0, len(heads), size):
        some = heads[first : first + size]
        with pause_recording(model.module), heads_changed(model, [{}, *({head: kind} for head in some)]):
            original, *outcomes = subject.outcomes(1 + len(some))
        for head, one in zip(some, outcomes):
            delta = _delta(original, one)
            found.append(RankedHead(head.name, head.part, head.layer, head.head, delta, not one.same))
        report(len(some))
    return sorted(found, key=lambda one: -abs(one.delta) if model.task.head == "number" else one.delta)


def _subject_of(model: Loaded, text: Given, beam: int = 1) -> Subject:
    """The text as a subject, by the kind of the model; it answers here for the first time, unchanged."""
    kinds: dict[str, type[Any]] = {"next": Continued, "masked": Masked, "replaced": Detected, "tag": Tags}
    kinds |= dict.fromkeys(("class", "labels", "number", "choice"), Labels)
    head = model.task.head
    readable = not (model.reads_images or model.halves or model.module.config.numbers)
    if not readable or not model.predicts(head) or (head != "target" and head not in kinds):
        able = "translators, language models, masked models, classifiers, taggers and regression models"
        raise UserError(f"{model.path}: this is {model.kind}; heads are changed in {able}.")
    (text,) = part_list([text], "text")
    if not isinstance(text, str) and head in ("class", "number"):
        model = model.of_pairs()
    empty = not text.strip() if isinstance(text, str) else not all(one.strip() for one in text)
    if empty:
        raise UserError('the text is empty; give one, such as "3 March 2021".')
    if not isinstance(text, str) and model.joined_text is None:
        raise UserError(f"{text!r:.60}: {model.kind} reads one text.")
    with pause_recording(model.module), torch.no_grad():
        return Translated(model, cast(str, text), beam) if head == "target" else kinds[head](model, text)


def _said(one: Outcome) -> Said:
    return Said(one.answer, one.pieces, one.logps, fsum(one.logps), one.places, one.number)


def _delta(before: Outcome, after: Outcome) -> float:
    """The change of the number, or of the log-probability of the original answer."""
    if before.number is not None and after.number is not None:
        return after.number - before.number
    return fsum(after.logps) - fsum(before.logps)


def _sentence(model: Loaded, changes: str, before: Said, after: Said, same: bool) -> str:
    """What the change does, as a sentence."""
    start = f"{changes[0].upper()}{changes[1:]}"
    old, new = (one.answer or "empty" for one in (before, after))
    logp = f"log p {_number(before.total)} → {_number(after.total)}"
    if model.predicts("next"):
        place = "before" if model.reads_backward else "after"
        was, now = (f"{one.places[0][0].probability:.3f}" for one in (before, after))
        likely = f"is still {new} (p {was} → {now})" if same else f"becomes {new} (p {now}); it was {old} (p {was})"
        return f"{start} the likeliest token {place} the text {likely}; {logp} of the text."
    if before.number is not None:
        return f"{start} the number {f'is still {new}' if same else f'becomes {new}; it was {old}'}."
    if model.predicts("tag"):
        return f"{start} the tags {f'are still {new}' if same else f'become {new}; they were {old}'} ({logp})."
    what = "the likeliest text" if model.predicts("masked") else "the answer"
    return f"{start} {what} {f'is still {new}' if same else f'becomes {new}; it was {old}'} ({logp})."


def _number(value: float) -> str:
    """A log-probability for a sentence, such as −0.02; a small one has one digit."""
    text = f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"
    return text.replace("-", "−")


def look_ablated(
    model: Loaded,
    text: Given,
    heads: Heads,
    beam: int = 1,
    part: str | None = None,
    layer: int | None = None,
) -> AttentionView:
    """The picture of `look` of the model with some heads changed, as in `ablate`, and so with its own answer."""
    changes = head_changes(model, heads)
    with heads_changed(model, [changes]):
        seen = look(model, text, None, beam, part, layer)
    what = described(changes)
    about = f"{seen.about} The first picture is of the model {what}.".strip()
    origin = None if seen.origin is None else replace(seen.origin, heads=for_page(changes))
    return replace(seen, title=f"{seen.title} · {what}", about=about, origin=origin)
