"""The report of a tagger by type of entity: precision, recall and F1, and the wrong entities that it is surest of."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.data.fields import EntityTags
from regard.entities import Entity, EntityScores, entities, entity_scores, names_entities
from regard.report.sections import Cell, Table
from regard.verbs.forced import BATCH_TOKENS
from regard.verbs.loaded import Loaded
from regard.verbs.tagging import Tagged, tag_words

MOST_MISTAKES = 10
AROUND = 3  # words that are shown on each side of an entity
NOTE = (
    "An entity is right if its type and all its words are. Precision: the part of the found entities that are right. "
    "Recall: the part of the gold entities that are found. F1: their harmonic mean."
)


@dataclass(frozen=True)
class Mistake:
    """An entity that is found and is wrong, and the gold entities that share a word with it."""

    example: int  # the number of the sentence, from 1
    probability: float
    found: str  # the type and the words, such as "LOC New York"
    gold: str
    context: str  # the words around it


@dataclass(frozen=True)
class EntityReport:
    """The scores of all entities (under "") and of each type, and the most confident mistakes."""

    scores: dict[str, EntityScores]
    mistakes: tuple[Mistake, ...]

    def to_json(self) -> dict[str, Any]:
        """The scores by type, those of all entities, and the mistakes."""
        by_type = {kind: one._asdict() for kind, one in self.scores.items()}
        return {"all": by_type.pop(""), "types": by_type, "mistakes": [asdict(one) for one in self.mistakes]}

    def tables(self) -> list[Table]:
        """A table of scores, and one of mistakes if there are any."""
        kinds = [*(kind for kind in self.scores if kind), ""]
        rows: list[list[Cell]] = [
            [kind or "(all)", *(f"{value:.2%}" for value in self.scores[kind][:3]), self.scores[kind].support]
            for kind in kinds
        ]
        found = [Table("By type of entity", ["type", "precision", "recall", "F1", "gold"], rows, NOTE)]
        if self.mistakes:
            columns = ["probability", "found", "gold", "context"]
            wrong: list[list[Cell]] = [[f"{m.probability:.3f}", m.found, m.gold, m.context] for m in self.mistakes]
            found.append(Table("The most confident mistakes", columns, wrong))
        return found


def entity_report(model: Loaded, examples: Sequence[Any], batch_tokens: int = BATCH_TOKENS) -> EntityReport | None:
    """The report of a model that tags entities; None for any other model, or examples without entities."""
    tagged = any(isinstance(each, EntityTags) for each in model.fields.values())
    if not tagged or not names_entities({tag for one in examples for tag in one.tags}):
        return None
    found = tag_words(model, [one.text.split() for one in examples], batch_tokens)
    scores = entity_scores([one.tags for one in found], [one.tags for one in examples])
    mistakes = [
        mistake
        for number, (one, example) in enumerate(zip(found, examples), 1)
        for mistake in _mistakes(number, one, entities(example.tags))
    ]
    ranked = sorted(mistakes, key=lambda mistake: -mistake.probability)
    return EntityReport(scores, tuple(ranked[:MOST_MISTAKES]))


def _mistakes(number: int, found: Tagged, gold: Sequence[Entity]) -> list[Mistake]:
    """The wrong entities of a sentence."""

    def shown(one: Entity) -> str:
        return f"{one.type} {' '.join(found.words[one.start : one.end])}"

    wrong = []
    for one, named in zip(entities(found.tags), found.entities):
        if one not in gold:
            meant = [other for other in gold if other.start < one.end and one.start < other.end]
            context = " ".join(found.words[max(one.start - AROUND, 0) : one.end + AROUND])
            right = ", ".join(map(shown, meant)) or "–"
            wrong.append(Mistake(number, named.probability, shown(one), right, context))
    return wrong
