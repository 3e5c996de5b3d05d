"""The report of the ladder of pre-training: its numbers, and its sections."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.metrics import METRICS
from regard.report.figures import deviation, duration, metric_curve
from regard.report.glossary import glossary
from regard.report.sections import Curve, Line, Section, Table, Text
from regard.training.ladder.pretraining import GRID, Pair, Pretrained, Probe
from regard.training.ladder.quality import Point

NONE = "–"


@dataclass(frozen=True)
class Kind:
    """What some families learn to predict: their figures can be compared with each other, not with those of others."""

    title: str
    metrics: tuple[str, ...]  # those that are shown


KINDS = {  # by the objective, as the recipe of a cell names it
    "teacher": Kind("next token", ("perplexity",)),
    "masked": Kind("masked tokens", ("perplexity", "filled", "sentences")),
    "replaced": Kind("replaced tokens", ("accuracy", "replaced_precision", "replaced_recall")),
    "spans": Kind("hidden spans", ("perplexity",)),
}
SHORT = {"filled": "found", "sentences": "sentences", "replaced_precision": "precision", "replaced_recall": "recall"}


@dataclass(frozen=True)
class PretrainingStanding:
    """Everything that a ladder of pre-training measured."""

    results: Sequence[Pretrained]
    pairs: Sequence[Pair]
    probe: Probe  # without a file if there was none
    minutes: float | None  # the limit of the pre-training of an entry
    settings: Sequence[str] = ()  # those of the user

    @property
    def by_name(self) -> dict[str, Pretrained]:
        return {one.entry.name: one for one in self.results}

    @property
    def numbers(self) -> dict[str, Any]:
        """As ladder.json holds them."""
        about = {"minutes": self.minutes, "probe": vars(self.probe), "settings": list(self.settings)}
        pairs = [
            {"setting": pair.setting, "claim": pair.claim, "entries": [entry.name for entry in pair.entries]}
            for pair in self.pairs
        ]
        return {**about, "rows": [self._number(one) for one in self.results], "pairs": pairs, "grid": GRID}

    def _number(self, one: Pretrained) -> dict[str, Any]:
        found: dict[str, Any] = {"name": one.entry.name, "family": one.entry.family, "changed": one.entry.changed}
        found |= {"learns": _kind(one).title if one.cell else None, "scores": one.cell["scores"] if one.cell else None}
        for name, cells in (("probe", one.tuned), ("scratch", self._scratch(one))):
            values = _accuracies(cells)
            mean = statistics.fmean(values) if values else None
            found[name] = {"mean": mean, "sd": deviation(values), "seeds": len(values)}
        found |= {"probes_diverged": one.diverged, "cell": one.cell, "tuned": one.tuned, "scratch_cells": one.scratch}
        return found

    def _scratch(self, one: Pretrained) -> Sequence[Mapping[str, Any]]:
        """The same network from new weights; an entry that has the network of its family has the figures of that."""
        family = self.by_name.get(one.entry.family)
        return one.scratch if one.entry.own_network or family is None else family.scratch

    def tables(self) -> list[Section]:
        """For the terminal: the families, the grid and the pairs."""
        return [self._families(), *self._grid(), *self._pairs()]

    def sections(self) -> list[Section]:
        """The tables, then the loss of each kind against seconds of training."""
        limit = f" or {self.minutes:g} minutes, whichever is sooner" if self.minutes else ""
        what = (
            "Families of pre-trained models on one text, with one tokenizer and one budget: plan.steps steps of "
            f"plan.batch_tokens tokens{limit}. The widths are chosen so that the models have the parameters of BERT "
            "within 5 %; albert has its width instead, because sharing weights is its purpose. The generator of "
            "electra is not counted: it is no part of the model."
        )
        return [
            Text(f"{what}\n\n{self._probed}", "What is shown", "ladder.md"),
            *self.tables(),
            *self._curves(),
            glossary(("chance", "parameters", "loss", "step", "perplexity", "token")),
        ]

    @property
    def _probed(self) -> str:
        """What the probe is."""
        cells = [cell for one in self.results for cell in one.tuned]
        if not cells:
            return "There is no probe: probe.train=FILE names labelled texts on which all models are fine-tuned."
        labels = f"at most {self.probe.labels:,} labelled texts" if self.probe.labels else "all labelled texts"
        return (
            f"The probe: every model is fine-tuned on {labels} for {self.probe.steps:,} steps, and evaluated "
            f"once, after the last step, on {cells[0]['examples']:,} validation texts. From scratch: the same network "
            f"with new weights. {cells[0]['chance']}"
        )

    def _families(self) -> Table:
        columns = ["family", "parameters", "its own task, valid", *self._probe_columns, "steps", "time"]
        rows = [
            [
                one.entry.family,
                f"{one.cell['parameters']:,}" if one.cell else NONE,
                f"{_kind(one).title}: {_own(one)}" if one.cell else _own(one),
                *self._probe_cells(one),
                f"{one.cell['steps']:,}" if one.cell else NONE,
                duration(one.cell["training_seconds"]) if one.cell else NONE,
            ]
            for one in self.results
            if not one.entry.changed
        ]
        note = (
            "Perplexities and accuracies of its own task can be compared only between families that learn the same. "
            "Half of the texts of BERT are parts of two texts, and half of those of ALBERT are in the wrong order, "
            f"which makes masked tokens harder. {self._probed}"
        )
        return Table("Pre-training", columns, rows, note)

    @property
    def _probe_columns(self) -> list[str]:
        return ["probe", "from scratch"] if self.probe.train else []

    def _probe_cells(self, one: Pretrained) -> list[str]:
        if not self.probe.train:
            return []
        some = f" ({one.diverged} diverged)" if one.diverged else ""
        return [_show("accuracy", _accuracies(one.tuned)) + some, _show("accuracy", _accuracies(self._scratch(one)))]

    def _grid(self) -> list[Table]:
        """RNN and Transformer by one and two directions, if all four were trained."""
        if not all(name in self.by_name for names in GRID.values() for name in names):
            return []
        rows = []
        for network, names in GRID.items():
            cells = []
            for one in map(self.by_name.__getitem__, names):
                probe = f"; probe {self._probe_cells(one)[0]}" if self.probe.train else ""
                cells.append(f"{one.entry.family}: {_own(one)}{probe}")
            rows.append([network, *cells])
        columns = ["", "one direction (next token)", "two directions (masked tokens)"]
        note = "A column compares networks that learn the same; a row compares directions, by the probe alone."
        return [Table("Network and direction", columns, rows, note)]

    def _pairs(self) -> list[Table]:
        """Two rows for each pair."""
        rows = []
        for pair in self.pairs:
            for at, (value, entry) in enumerate(zip(pair.values, pair.entries)):
                one = self.by_name[entry.name]
                size = f"{one.cell['parameters']:,}" if one.cell else NONE
                setting = f"{pair.setting}={value}"
                rows.append(["" if at else pair.family, setting, size, _own(one), *self._probe_cells(one)[:1]])
        columns = ["family", "setting", "parameters", "its own task, valid", *self._probe_columns[:1]]
        note = " ".join(f"{pair.family}, {pair.setting}: {pair.claim}" for pair in self.pairs)
        return [Table("Pairs that differ in one setting", columns, rows, note)] if rows else []

    def _curves(self) -> list[Curve]:
        """For each kind, the loss on the validation text against seconds of training."""
        found: dict[str, list[Line]] = {}
        for one in self.results:
            if one.cell:
                points = [Point(**point) for point in one.cell["curve"]]
                line = Line(one.entry.name, [point.seconds for point in points], [point.value for point in points])
                found.setdefault(_kind(one).title, []).append(line)
        loss = METRICS["loss"]
        return [metric_curve(f"{kind}: loss", "seconds of training", loss, lines) for kind, lines in found.items()]


def _kind(one: Pretrained) -> Kind:
    assert one.cell is not None
    return KINDS[one.cell["recipe"]["objective"]["kind"]]


def _own(one: Pretrained) -> str:
    """The figures of an entry on the task that it was pre-trained for."""
    if one.cell is None:
        return "diverged"
    scores = one.cell["scores"]
    shown = [(SHORT.get(name, name), METRICS[name].show(scores[name])) for name in _kind(one).metrics if name in scores]
    return ", ".join(f"{name} {value}" for name, value in shown)


def _accuracies(cells: Sequence[Mapping[str, Any]]) -> list[float]:
    """The accuracy of each run of the probe; of a model that writes the label, how often that is the right one."""
    return [next(cell["scores"][name] for name in ("accuracy", "exact") if name in cell["scores"]) for cell in cells]


def _show(metric: str, values: Sequence[float]) -> str:
    return METRICS[metric].show(statistics.fmean(values), deviation(values)) if values else NONE


def result_line(one: Pretrained) -> str:
    """The result of an entry in one line."""
    if one.cell is None:
        return f"{one.entry.name}: training diverged"
    probe = f"; probe {_show('accuracy', _accuracies(one.tuned))}" if one.tuned else ""
    probe += f", from scratch {_show('accuracy', _accuracies(one.scratch))}" if one.scratch else ""
    time = f"{one.cell['steps']:,} steps in {duration(one.cell['training_seconds'])}"
    return f"{one.entry.name}: {_kind(one).title}, {_own(one)}{probe} ({one.cell['parameters']:,} parameters, {time})"
