"""The end of a run: its score, some examples, a report in one file."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from regard import verbs
from regard.cli.figures import duration, title, told
from regard.cli.lines import program
from regard.cli.samples import OPENING, Sample, excerpts, gapped, samples
from regard.cli.tables import grid
from regard.config import tree
from regard.data.example import Example
from regard.recipes import Recipe
from regard.render import AttentionView
from regard.render import report as page
from regard.render.files import write
from regard.training.evaluate import Scores, evaluate
from regard.training.events import Finished
from regard.training.ladder.quality import read_log
from regard.training.run import Run
from regard.verbs import Loaded
from regard.verbs.filling import mask_of

SHOWN = 3  # examples
LADDERS = ("dates", "sounds", "multi30k")  # recipes whose model the ladder holds against others


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its best step, judged on examples that it never saw."""

    name: str
    path: Path
    recipe: Recipe
    model: Loaded
    part: str  # test, or valid where there is no test set
    examples: Sequence[Example]
    scores: Scores
    finished: Finished

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.module.parameters())

    @property
    def numbers(self) -> dict[str, Any]:
        """Everything that was measured."""
        told = {"step": self.model.step, "parameters": self.parameters, "seconds": self.finished.seconds}
        return {"part": self.part, "scores": self.scores.values, "notes": self.scores.notes, **told}


def judge(name: str, run: Run, finished: Finished) -> Outcome:
    """The loss and the recipe's measures of a run's best step."""
    corpus = run.prepared.corpus
    part, examples = ("test", corpus.test) if corpus.test else ("valid", corpus.valid)
    model = verbs.load(run.out, run.recipe.plan.device, long="truncate")
    scores = evaluate(model, examples, ("loss", *run.recipe.metrics))
    return Outcome(name, run.out, run.recipe, model, part, examples, scores, finished)


def views(outcome: Outcome) -> list[AttentionView]:
    """The first few examples as the model sees them."""
    return [verbs.look(outcome.model, text) for text in _texts(outcome)]


def said(outcome: Outcome) -> list[Sample]:
    """What the model makes of the first few examples, where its attention does not show that already."""
    return samples(outcome.model, _texts(outcome), outcome.recipe.plan.seed)


def sample_table(found: Sequence[Sample]) -> Group:
    """What was given, and what was said."""
    return grid("What it says", ["given", "said"], [list(sample) for sample in found], justify="left")


def _texts(outcome: Outcome) -> list[str]:
    return excerpts(outcome.model, outcome.examples, SHOWN)


def next_commands(outcome: Outcome) -> list[str]:
    """What to try with a run that has just ended."""
    run, recipe, me = shlex.quote(str(outcome.path)), outcome.recipe.name, program()
    (whole,) = excerpts(outcome.model, outcome.examples, 1) or [""]
    text = shlex.quote(whole)
    look, judge = f"{me} look {run} {text} -o look.html", f"{me} eval {run}"
    match outcome.model.module.task:
        case "translate":
            last = f"{me} ladder {recipe}" if recipe in LADDERS else f"{judge} --beam 5"
            return [look, f"echo {text} | {me} translate {run} --beam 5 --nbest 3", last]
        case "language":
            opening = shlex.quote(" ".join(whole.split()[:OPENING]))
            return [look, f"{me} generate {run} {opening} --temperature 0.8", f"echo {text} | {me} score {run}", judge]
        case "fill":
            gap = shlex.quote(gapped(whole, mask_of(outcome.model)))
            return [look, f"{me} fill {run} {gap}", judge]
        case _:
            return [look, f"echo {text} | {me} classify {run}", judge]


def score_table(outcomes: Sequence[Outcome]) -> Group:
    """The runs side by side: a row for each measure."""
    heading = f"{len(outcomes[0].examples):,} examples of {outcomes[0].part}"
    return grid(heading, ["", *(outcome.name for outcome in outcomes)], _rows(outcomes))


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    found = [told(one.scores.values) for one in outcomes]
    names = list(dict.fromkeys(name for measures in found for name in measures))
    rows = [[name, *(measures.get(name, "–") for measures in found)] for name in names]
    rows.append(["parameters", *(f"{one.parameters:,}" for one in outcomes)])
    rows.append(["best step", *(str(one.model.step) for one in outcomes)])
    return [*rows, ["training", *(duration(one.finished.seconds) for one in outcomes)]]


def write_report(outcomes: Sequence[Outcome], seen: Sequence[AttentionView], told: Sequence[Sample]) -> Path:
    """report.html of the first run: the scores, what it says, where it looks, the curves of metrics.jsonl, settings."""
    first = outcomes[0]
    recipe, notes = first.recipe, first.scores.notes
    settings = [[setting.name, _told(setting.value), setting.comment] for setting in tree(recipe)]
    columns = [f"on {first.part}", *(outcome.name for outcome in outcomes)]
    sections: list[page.Section] = [
        page.Text(f"{recipe.title}. The best step, by {recipe.plan.select}, is step {first.model.step}."),
        page.Table("Scores", columns, _rows(outcomes), note="; ".join(f"{name}: {notes[name]}" for name in notes)),
        *([page.Table("What it says", ["given", "said"], told)] if told else []),
        page.Gallery("Where it looks", seen),
        *curves({outcome.name: outcome.path for outcome in outcomes}, ("loss", *recipe.metrics)),
        page.Table("Settings", ["setting", "value", "what it is"], settings),
    ]
    return write(first.path / "report.html", page.report_html(recipe.name, sections))


def curves(runs: Mapping[str, Path], measures: Sequence[str]) -> list[page.Curve]:
    """The training loss, and each validation measure, by step; a line for each run."""
    logs = {name: read_log(path) for name, path in runs.items()}
    found = []
    for kind, measure in (("train", "loss"), *(("valid", measure) for measure in measures)):
        lines = []
        for name, log in logs.items():
            there = [one for one in log if one["kind"] == kind and isinstance(one.get(measure), int | float)]
            points = [(one["step"], one[measure]) for one in there]
            lines.append(page.Line(name, [x for x, _ in points], [y for _, y in points]))
        if any(line.xs for line in lines):
            heading = f"{'Training' if kind == 'train' else 'Validation'}: {title(measure)}"
            found.append(page.Curve(heading, "step", measure, lines, log_y=measure in ("loss", "perplexity")))
    return found


def _told(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
