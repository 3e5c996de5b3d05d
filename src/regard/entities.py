"""Tagging schemes, the entities of a sequence of tags, and their precision, recall and F1.

A tag is O, outside of all entities, or a letter and the type of an entity, as in B-PER:

    IOB1   I inside of an entity; B at the first word of an entity that follows another of the same type
    IOB2   B at the first word of an entity, I at its other words
    BIOES  B, I and E at the first, the inner and the last word of an entity, S at an entity of one word

BILOU and BMES are BIOES with other letters: L and U, or M.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["bioes", "iob2"]  # the schemes that a model predicts
OUTSIDE = "O"
LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
TAG = re.compile(rf"{OUTSIDE}|[{''.join(LETTERS)}](-.+)?")


class Entity(NamedTuple):
    """The words `start` to `end` − 1 of a sentence, and the type of what they name."""

    type: str
    start: int
    end: int


class EntityScores(NamedTuple):
    """Precision, recall and F1 of entities, and the number of gold entities. A ratio without any entity is 0."""

    precision: float
    recall: float
    f1: float
    support: int


def split_tag(tag: str) -> tuple[str, str]:
    """The letter of a tag (B, I, E, S or O), and the type of its entity."""
    letter, _, kind = tag.partition("-")
    return LETTERS.get(letter, OUTSIDE), kind


def names_entities(tags: Collection[str]) -> bool:
    """Whether these tags are those of a scheme, and not classes of another kind such as parts of speech."""
    return any(tag != OUTSIDE for tag in tags) and all(TAG.fullmatch(tag) for tag in tags)


def continues(before: str, tag: str) -> bool:
    """Whether a tag continues the entity of the tag before it: I or E after B or I of the same type.

    Any other tag but O begins an entity. This is how conlleval reads sequences, also those that are not legal in a
    scheme (Tjong Kim Sang & De Meulder 2003).
    """
    (last, last_kind), (letter, kind) = split_tag(before), split_tag(tag)
    return last in ("B", "I") and letter in ("I", "E") and last_kind == kind


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of the tags of a sentence, in any of the schemes."""
    found: list[Entity] = []
    for place, tag in enumerate(tags):
        if place and continues(tags[place - 1], tag):
            found[-1] = found[-1]._replace(end=place + 1)
        elif split_tag(tag)[0] != OUTSIDE:
            found.append(Entity(split_tag(tag)[1], place, place + 1))
    return found


def tags_of(found: Iterable[Entity], length: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of so many words that has these entities."""
    tags = [OUTSIDE] * length
    for kind, start, end in found:
        letters = ["B"] + ["I"] * (end - start - 1)
        if scheme == "bioes":
            letters[-1] = "S" if end == start + 1 else "E"
        tags[start:end] = [f"{letter}-{kind}" if kind else letter for letter in letters]
    return tags


def to_iob2(tag: str) -> str:
    """The tag of IOB2 for a tag of BIOES: B for S, and I for E. Tags that are legal in BIOES keep their entities."""
    letter, kind = split_tag(tag)
    letter = {"S": "B", "E": "I"}.get(letter, letter)
    return f"{letter}-{kind}" if kind else letter


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Literal["iob1", "iob2", "bioes", "none"]:
    """The scheme of the tags of sentences; none: they do not name entities.

    IOB1 if entities begin with I, and B only separates two of the same type; else IOB2.
    """
    sentences = list(sentences)
    names = {tag for tags in sentences for tag in tags}
    if not names_entities(names):
        return "none"
    if {split_tag(tag)[0] for tag in names} & {"E", "S"}:
        return "bioes"
    firsts = Counter[str]()
    for tags in sentences:
        for kind, start, _ in entities(tags):
            follows = start > 0 and split_tag(tags[start - 1]) in (("B", kind), ("I", kind))
            firsts[split_tag(tags[start])[0]] += not follows
    return "iob1" if firsts["I"] and not firsts["B"] else "iob2"


def may_follow(before: str | None, tag: str | None, scheme: str) -> bool:
    """Whether a tag is legal after another in a scheme; None is the place before the first or after the last word."""
    inside = tag is not None and split_tag(tag)[0] in ("I", "E")
    opened = before is not None and split_tag(before)[0] in ("B", "I")
    if scheme == "iob1":
        separates = before is not None and opened and split_tag(before)[1] == split_tag(tag or OUTSIDE)[1]
        return tag is None or split_tag(tag)[0] != "B" or separates
    if inside or (scheme == "bioes" and opened):
        return before is not None and tag is not None and continues(before, tag)
    return True


def complete(names: Iterable[str]) -> list[str]:
    """All tags of BIOES or IOB2 of the types that these tags have, in order, and O.

    A letter of a type may be missing in the training data, such as S-MISC, although other data has it.
    """
    names = set(names)
    letters = "BIES" if {split_tag(tag)[0] for tag in names} & {"E", "S"} else "BI"
    kinds = sorted({split_tag(tag)[1] for tag in names if tag != OUTSIDE})
    return sorted([OUTSIDE, *(f"{letter}-{kind}" if kind else letter for kind in kinds for letter in letters)])


def entity_scores(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, EntityScores]:
    """The scores of all entities under "", and those of each type. An entity is right if its type and words are."""
    counts = {which: Counter[str]() for which in ("right", "found", "gold")}
    for some, right in zip(found, gold):
        one, other = set(entities(some)), set(entities(right))
        for which, group in (("right", one & other), ("found", one), ("gold", other)):
            for entity in group:
                counts[which].update(("", entity.type) if entity.type else ("",))

    def scores(kind: str) -> EntityScores:
        right, predicted, there = (counts[which][kind] for which in ("right", "found", "gold"))
        f1 = 2 * right / (predicted + there) if right else 0.0
        return EntityScores(right / max(predicted, 1), right / max(there, 1), f1, there)

    return {kind: scores(kind) for kind in sorted({"", *counts["found"], *counts["gold"]})}
