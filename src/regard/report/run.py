"""The report of a run: its scores, some examples, its attention, its curves and its settings."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any

from regard import verbs
from regard.config import format_value, tree
from regard.data.fields import MASK
from regard.recipes import Recipe
from regard.render import AttentionView, ImageView
from regard.report.classes import class_report
from regard.report.entities import entity_report
from regard.report.figures import Metrics, duration, find_metric, metric_curve, settings_line
from regard.report.glossary import PART_WORDS, glossary
from regard.report.samples import Answer, Sample, answers, excerpts, gapped, mistakes, samples
from regard.report.sections import Cell, Curve, Folded, Gallery, ImageGallery, Line, Section, Table, Text
from regard.report.steps import compute_gates, compute_steps, gate_table, step_table
from regard.training.chance import describe_chance
from regard.training.evaluate import Scores, evaluate, task_scores
from regard.training.events import Finished
from regard.training.ladder.quality import read_log
from regard.training.run import Run
from regard.verbs import Loaded
from regard.verbs.filters import look_filters
from regard.verbs.infilling import can_infill

SHOWN = 3  # examples
LONGEST = 160  # characters of a text in a table
METRIC_WORDS = {  # the words that a report defines for a measure
    "loss": ("loss", "cross-entropy", "nats"),
    "perplexity": ("perplexity",),
    "accuracy": ("chance",),
    "bleu": ("BLEU",),
    "alignment": ("alignment", "chance"),
}


@dataclass(frozen=True)
class Outcome:
    """The result of a run: its best step, evaluated on examples that it was not trained on."""

    name: str
    path: Path
    recipe: Recipe
    model: Loaded
    part: str  # test, or valid where there is no test set
    examples: Sequence[Any]
    scores: Scores
    finished: Finished

    @property
    def numbers(self) -> dict[str, Any]:
        """Everything that was measured."""
        finished = {"seconds": self.finished.seconds, "ended_by": f"plan.{self.finished.reason}"}
        run = {"step": self.model.step, "parameters": self.model.parameter_count, **finished}
        return {"part": self.part, "scores": self.scores.values, "notes": self.scores.notes, **run}

    @property
    def texts(self) -> list[Any]:
        """The texts of the first few examples."""
        return excerpts(self.model, self.examples, SHOWN)

    @property
    def pictured(self) -> list[Any]:
        """The texts whose attention is shown; of a T5 that fills in spans they have a gap, as in training."""
        hides_spans = self.model.task.made and can_infill(self.model)
        return [gapped(text, MASK) for text in self.texts] if hides_spans else self.texts

    @cached_property
    def captioned(self) -> list[ImageView]:
        """The attention of a captioner over the first few images."""
        images = [one.image for one in self.examples[:SHOWN]] if self.model.reads_images else []
        found = verbs.caption(self.model, images) if images else []
        return [replace(one.view, name=f"example {at} of {self.part}") for at, one in enumerate(found, 1)]

    def views(self) -> list[AttentionView]:
        """The attention of the model over the first few examples; the title has the class that it gives them."""
        seen = [verbs.look(self.model, text) for text in self.pictured]
        if self.model.task.head != "class" or self.model.module.config.numbers or not seen:
            return seen
        labels = verbs.classify(self.model, self.texts)
        return [
            replace(view, title=f"{view.title} → {one.label} ({one.probability:.2f})")
            for view, one in zip(seen, labels)
        ]

    @cached_property
    def chance(self) -> str:
        """The scores of a guess that does not use the input; empty where no such guess is known."""
        return describe_chance(self.model, self.examples)

    def words(self, seen: Sequence[AttentionView]) -> list[str]:
        """The words that the report defines: those of its measures and of its pictures."""
        parts = {layer.part for view in seen for layer in view.layers}
        found = [word for name in self.scores.values for word in METRIC_WORDS.get(name, ())]
        found += ["chance"] * bool(self.chance) + ["step", "parameters", "width"]
        found += ["attention", "query", "key", "weights", "head", "piece"] if parts else []
        found += ["attention", "weights"] if self.captioned else []
        found += [name for name, part in PART_WORDS.items() if part in parts]
        return list(dict.fromkeys(found))

    def pictures(self, seen: Sequence[AttentionView]) -> Gallery:
        """The attention over the first few examples; of a model with filters, the n-grams that won them."""
        if not self.model.module.config.filter_sizes:
            return Gallery("Attention", seen)
        return Gallery("The n-grams that won the filters", [look_filters(self.model, text) for text in self.texts])

    def class_sections(self) -> list[Section]:
        """The scores by class and the confusion matrix, or the scores by type of entity, and the worst mistakes."""
        if tagged := entity_report(self.model, self.examples):
            return list(tagged.tables())
        wrong, score = mistakes(self.model, self.examples)
        if wrong:
            return [answer_table("The worst mistakes", wrong, f"The score is {score}.")]
        if (found := class_report(self.model, self.examples)) is None:
            return []
        return [one for one in (found.table(), found.confusion_table(), found.heatmap(), found.mistakes()) if one]

    @cached_property
    def tasks(self) -> Table | None:
        """The scores of each task of a corpus that has several."""
        found = task_scores(self.model, self.examples, ("loss", *self.recipe.metrics))
        return task_table(found, self.model.metrics) if found else None

    @cached_property
    def answers(self) -> list[Table]:
        """The first answers and the failures of a model that reads a source text."""
        if not {"source", "target"} <= set(self.model.fields) - set(self.model.task.made):
            return []
        shown, wrong = answers(self.model, self.examples, SHOWN)
        tables = [answer_table("Answers", shown, "The score is the mean log-probability of the tokens.")]
        note = "The wrong answers that the model is surest of."
        return [*tables, *([answer_table("Failures", wrong, note)] if wrong else [])]

    @cached_property
    def steps(self) -> list[dict[str, Cell]]:
        """The states and probabilities of each step, if the model is small enough for a table."""
        return compute_steps(self.model, self.examples)

    @cached_property
    def gates(self) -> list[dict[str, Cell]]:
        """The gates of each step, if the model has gates and is small enough for a table."""
        return compute_gates(self.model, self.examples)

    def step_tables(self) -> list[Table]:
        """The states, probabilities and gates of each step."""
        tables = [step_table(self.steps)] if self.steps else []
        return [*tables, *([gate_table(self.gates, self.model.module.config.gates)] if self.gates else [])]

    def samples(self) -> list[Sample]:
        """What the model generates for the first few examples; none where the attention pictures show it already."""
        return samples(self.model, self.texts, self.recipe.plan.seed)


def conclude(name: str, run: Run, finished: Finished) -> Outcome:
    """Evaluates the best step of a run: the loss and the measures of its recipe."""
    corpus = run.prepared.corpus
    part, examples = ("test", corpus.test) if corpus.test else ("valid", corpus.valid)
    model = verbs.load(run.out, run.recipe.plan.device, long="truncate", kinds=run.kinds)
    scores = evaluate(model, examples, ("loss", *run.recipe.metrics)) if model.task.validates else Scores()
    return Outcome(name, run.out, run.recipe, model, part, examples, scores, finished)


def mean_scores(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """The mean and the standard deviation of every measure over runs that differ in their seed alone."""
    values = {name: [one.scores.values[name] for one in outcomes] for name in outcomes[0].scores.values}
    return {
        "mean": {name: statistics.fmean(each) for name, each in values.items()},
        "sd": {name: statistics.stdev(each) for name, each in values.items()},
    }


def score_table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each measure, a column for each run; of runs that differ in their seed alone, their mean first."""
    first = outcomes[0]
    seeded = len({one.recipe.plan.seed for one in outcomes}) > 1
    measures = list(dict.fromkeys(name for one in outcomes for name in one.scores.values))
    rows: list[list[str]] = []
    for name in measures:
        metric, values = find_metric(name, first.model.metrics), [one.scores.values for one in outcomes]
        rows.append([metric.title, *(metric.show(each[name]) if name in each else "–" for each in values)])
        if seeded:
            found = mean_scores(outcomes)
            rows[-1].insert(1, metric.show(found["mean"][name], found["sd"][name]))
    blank = [""] * seeded
    rows.append(["parameters", *blank, *(f"{one.model.parameter_count:,}" for one in outcomes)])
    best = "best step" if first.model.task.validates else "last step"
    rows.append([best, *blank, *(str(one.model.step) for one in outcomes)])
    rows.append(["training", *blank, *(duration(one.finished.seconds) for one in outcomes)])
    notes = [f"{name}: {note}" for name, note in first.scores.notes.items()]
    note = " ".join([*(["; ".join(notes) + "."] if notes else []), first.chance]).strip()
    count = f"{len(first.examples):,} example{'s' * (len(first.examples) != 1)}"
    title = f"Scores: {count} of {first.part}" if measures else "The run"
    return Table(title, ["", *["mean ± sd"] * seeded, *(outcome.name for outcome in outcomes)], rows, note)


def sample_table(found: Sequence[Sample]) -> Table:
    """The samples, as a table."""
    return Table("Samples", ["input", "output"], found)


def answer_table(title: str, found: Sequence[Answer], note: str = "") -> Table:
    """Answers beside the right ones, as a table."""
    texts = [[shorten(text, LONGEST, placeholder=" …") for text in one[:3]] for one in found]
    rows: list[list[Cell]] = [[*cells, f"{one.score:.3f}"] for cells, one in zip(texts, found)]
    return Table(title, ["input", "output", "right", "score"], rows, note)


def task_table(found: Mapping[str, tuple[int, Mapping[str, float]]], metrics: Metrics) -> Table:
    """The number of examples and the scores of each task; a measure that a task does not have is left empty."""
    names = list(dict.fromkeys(name for _, values in found.values() for name in values))
    shown = {name: find_metric(name, metrics) for name in names}
    rows: list[list[Cell]] = [
        [task, count, *(metric.show(values.get(name)) for name, metric in shown.items())]
        for task, (count, values) in found.items()
    ]
    return Table("By task", ["task", "examples", *(metric.title for metric in shown.values())], rows)


def run_sections(outcomes: Sequence[Outcome], seen: Sequence[AttentionView], found: Sequence[Sample]) -> list[Section]:
    """The report of the first run, compared with the others: scores, samples, attention, curves, settings."""
    first, recipe, captioned = outcomes[0], outcomes[0].recipe, outcomes[0].captioned
    settings = [[setting.name, format_value(setting.value), setting.comment] for setting in tree(recipe)]
    select = find_metric(recipe.plan.select, first.model.metrics).title
    measured = (
        f"The best step, by {select}, is step {first.model.step}; the scores and pictures are those of this step on "
        f"examples of {first.part}."
        if first.model.task.validates
        else f"All of the text is for training; the vectors are those of the last step, {first.model.step}."
    )
    paths = {outcome.name: outcome.path for outcome in outcomes}
    filters = bool(first.model.module.config.filter_sizes)
    shown = filters or any(view.layers for view in seen) or bool(seen and not found)  # else no picture says anything
    about = [
        f"{recipe.title[:1].upper()}{recipe.title[1:]}. {first.model.about}",
        f"Its task is “{first.model.task.name}”. {measured}",
        *(f"“{other.name}” is a run that it is compared with: {other.path}." for other in outcomes[1:]),
    ]
    return [
        Text(" ".join(about), "What is shown", "training.md"),
        score_table(outcomes),
        *([first.tasks] if first.tasks else []),
        *([sample_table(found)] if found else []),
        *first.answers,
        *first.class_sections(),
        *first.step_tables(),
        *([ImageGallery("Attention", captioned)] if captioned else []),
        *([first.pictures(seen)] if shown else []),
        *curves(paths, ("loss", *recipe.metrics), first.model.metrics),
        Folded(
            "Settings",
            settings_line(recipe, first.model.parameter_count),
            [Table("", ["setting", "value", "what it is"], settings)],
        ),
        glossary(first.words(seen)),
    ]


def curves(runs: Mapping[str, Path], measures: Sequence[str], metrics: Metrics) -> list[Curve]:
    """The training loss, and each validation measure, by step; a line for each run."""
    logs = {name: read_log(path) for name, path in runs.items()}
    found = []
    for kind, measure in (("train", "loss"), *(("valid", measure) for measure in measures)):
        lines = []
        for name, log in logs.items():
            there = [one for one in log if one["kind"] == kind and one.get(measure) is not None]
            lines.append(Line(name, [one["step"] for one in there], [one[measure] for one in there]))
        if any(line.xs for line in lines):
            metric = find_metric(measure, metrics)
            heading = f"{'Training' if kind == 'train' else 'Validation'}: {metric.title}"
            found.append(metric_curve(heading, "step", metric, lines))
    return found
