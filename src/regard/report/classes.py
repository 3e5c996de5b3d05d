"""The report of a classifier by class: precision, recall, F1 and support, averages, and the confusion matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.class_scores import ClassScores, Flags, class_scores, macro_average, micro_average
from regard.data.fields import LabelField
from regard.report.sections import Cell, Heatmap, Heatmaps, Table
from regard.training.evaluate import decided, outputs
from regard.verbs.forced import BATCH_TOKENS
from regard.verbs.loaded import Loaded

MOST_CLASSES = 10  # of a confusion matrix in a terminal; with more classes, the most frequent confusions are listed
MOST_CONFUSIONS = 10
MOST_MISTAKES = 5
LONGEST = 200  # characters of a text in a table
MISTAKE = ("text", "true", "predicted", "probability")  # the columns of a wrong prediction
NOTE = (
    "Precision: the part of the texts with this prediction that have the class. Recall: the part of the texts of the "
    "class that are found. F1: their harmonic mean. Macro: the mean of the classes; a class that is neither there nor "
    "predicted is left out. Micro: all predictions together"
)


@dataclass(frozen=True, eq=False)
class ClassReport:
    """Which classes N examples are found to have, and which they have."""

    names: tuple[str, ...]
    found: Flags  # (N, C)
    gold: Flags  # (N, C)
    several: bool  # whether an example may have several classes; there is then no confusion matrix
    probabilities: NDArray[np.float64] | None = None  # (N, C) of the classes; None: not known
    texts: Sequence[str] = ()  # of the examples

    @property
    def confusion(self) -> NDArray[np.int64]:
        """How many examples of each class (row) are found to have each class (column), (C, C)."""
        return self.gold.T.astype(np.int64) @ self.found.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """The scores by class, their averages, and the confusion matrix."""
        scores = class_scores(self.found, self.gold)
        averages = {"macro": macro_average(self.found, self.gold), "micro": micro_average(self.found, self.gold)}
        surest = [dict(zip(MISTAKE, row)) for row in self._surest_mistakes()]
        return {
            "names": list(self.names),
            "scores": {name: _numbers(scores, at) for at, name in enumerate(self.names)},
            **{name: _numbers(average, 0) for name, average in averages.items()},
            "confusion": None if self.several else self.confusion.tolist(),
            **({"mistakes": surest} if surest else {}),
        }

    def table(self) -> Table:
        """The scores, a row for each class and each average."""
        content = self.to_json()
        scores: dict[str, dict[str, Any]] = content["scores"]
        rows: list[list[Cell]] = [[name, *_cells(one)] for name, one in scores.items()]
        rows += [[f"({name} average)", *_cells(content[name])] for name in ("macro", "micro")]
        micro = "." if self.several else "; for one class per text these are the accuracy."
        return Table("By class", ["class", "precision", "recall", "F1", "support"], rows, NOTE + micro)

    def confusion_table(self) -> Table | None:
        """The confusion matrix, or the most frequent confusions of many classes; None if there is no such matrix."""
        if self.several:
            return None
        counts = self.confusion
        if len(self.names) <= MOST_CLASSES:
            rows: list[list[Cell]] = [[name, *row] for name, row in zip(self.names, counts.tolist())]
            note = "A row is a true class, a column a predicted one."
            return Table("Confusion matrix", ["true \\ predicted", *self.names], rows, note)
        wrong = counts - np.diag(np.diag(counts))
        order = [divmod(int(at), len(self.names)) for at in np.argsort(-wrong, axis=None, kind="stable")]
        rows = [
            [self.names[i], self.names[j], int(wrong[i, j]), int(counts[i].sum())]
            for i, j in order[:MOST_CONFUSIONS]
            if wrong[i, j]
        ]
        return Table("The most frequent confusions", ["true", "predicted", "texts", "of"], rows)

    def _surest_mistakes(self) -> list[tuple[str, str, str, float]]:
        """The wrong predictions with the highest probabilities: text, true class, predicted class, probability."""
        if self.several or self.probabilities is None:
            return []
        wrong, surest = (self.found & self.gold).sum(1) == 0, self.probabilities.max(1)
        order = [at for at in np.argsort(-surest, kind="stable").tolist() if wrong[at]][:MOST_MISTAKES]
        return [
            (
                self.texts[at] if len(self.texts[at]) <= LONGEST else self.texts[at][: LONGEST - 1] + "…",
                self.names[int(self.gold[at].argmax())],
                self.names[int(self.found[at].argmax())],
                float(surest[at]),
            )
            for at in order
        ]

    def mistakes(self) -> Table | None:
        """The wrong predictions with the highest probabilities; None if there is none."""
        rows: list[list[Cell]] = [[*row, f"{probability:.1%}"] for *row, probability in self._surest_mistakes()]
        wrong = int(((self.found & self.gold).sum(1) == 0).sum())
        note = f"{wrong:,} of {len(self.gold):,} predictions {'is' if wrong == 1 else 'are'} wrong. "
        note += "A sure mistake may be a wrong label."
        return Table("The most confident mistakes", list(MISTAKE), rows, note) if rows else None

    def heatmap(self) -> Heatmaps | None:
        """The confusion matrix as a picture: of the examples of each true class, the part with each prediction."""
        if self.several:
            return None
        parts = self.confusion / np.maximum(self.confusion.sum(1, keepdims=True), 1)
        picture = Heatmap("", "predicted class", "true class", parts, self.names, self.names, vmax=1.0)
        title = "Confusion matrix: of the examples of each true class, the part with each prediction"
        return Heatmaps(title, [picture])


def class_report(model: Loaded, examples: Sequence[Any], batch_tokens: int = BATCH_TOKENS) -> ClassReport | None:
    """The report of a model with one or several classes per example; None for any other model."""
    field = next((each for each in model.fields.values() if isinstance(each, LabelField)), None)
    if field is None or not model.module.config.one_per_text:
        return None
    logits, targets = outputs(model, examples, batch_tokens)
    found, gold = decided(model, logits, targets)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return ClassReport(
        field.names,
        found,
        gold,
        several=model.task.head == "labels",
        probabilities=odds / odds.sum(1, keepdims=True),
        texts=[_shown(example) for example in examples],
    )


def _shown(example: Any) -> str:
    """The text of an example; that of several parts joined, and nothing for pixels."""
    text = getattr(example, "text", "")
    return text if isinstance(text, str) else " | ".join(str(part) for part in text)


def _numbers(scores: ClassScores, at: int) -> dict[str, float | int]:
    values = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    return {**{name: float(one[at]) for name, one in values.items()}, "support": int(scores.support[at])}


def _cells(scores: dict[str, Any]) -> list[Cell]:
    return [*(f"{scores[name]:.2%}" for name in ("precision", "recall", "f1")), scores["support"]]
