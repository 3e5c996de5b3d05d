"""The end of a run: its score, some examples, a report in one file."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from regard import verbs
from regard.cli.figures import duration, title, told
from regard.cli.lines import program
from regard.cli.tables import grid
from regard.config import tree
from regard.data.example import Example
from regard.train.evaluate import Scores, evaluate
from regard.train.events import Finished
from regard.train.run import Run
from regard.verbs import Loaded
from regard.view import AttentionView
from regard.view import report as page
from regard.view.files import write

SHOWN = 3  # examples


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its best step, judged on examples that it never saw."""

    name: str
    path: Path
    model: Loaded
    part: str  # test, or valid where there is no test set
    examples: list[Example]
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
    scores = evaluate(model, examples, ("loss", *model.recipe.metrics))
    return Outcome(name, run.out, model, part, examples, scores, finished)


def views(outcome: Outcome) -> list[AttentionView]:
    """The first few examples as the model sees them."""
    texts = [example.source or example.target for example in outcome.examples[:SHOWN]]
    return [verbs.look(outcome.model, text) for text in texts]


def next_commands(outcome: Outcome) -> list[str]:
    """What to try with a run that has just ended."""
    run, recipe = shlex.quote(str(outcome.path)), outcome.model.recipe.name
    text = shlex.quote(outcome.examples[0].source or outcome.examples[0].target)
    me = program()
    look = f"{me} look {run} {text} -o look.html"
    match outcome.model.module.task:
        case "translate":
            last = f"{me} ladder {recipe}" if recipe in ("dates", "sounds") else f"{me} eval {run} --beam 5"
            return [look, f"echo {text} | {me} translate {run} --beam 5 --nbest 3", last]
        case "language":
            return [look, f"echo {text} | {me} score {run}", f"{me} eval {run}"]
        case _:
            return [look, f"echo {text} | {me} classify {run}", f"{me} eval {run}"]


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


def write_report(outcomes: Sequence[Outcome], seen: Sequence[AttentionView]) -> Path:
    """report.html of the first run: the scores, the curves of metrics.jsonl, alignments, every setting."""
    first = outcomes[0]
    recipe, notes = first.model.recipe, first.scores.notes
    settings = [[setting.name, _told(setting.value), setting.comment] for setting in tree(recipe)]
    columns = [f"on {first.part}", *(outcome.name for outcome in outcomes)]
    sections: list[page.Section] = [
        page.Text(f"{recipe.title}. The best step, by {recipe.plan.select}, is step {first.model.step}."),
        page.Table("Scores", columns, _rows(outcomes), note="; ".join(f"{name}: {notes[name]}" for name in notes)),
        page.Gallery("Where it looks", seen),
        *curves({outcome.name: outcome.path for outcome in outcomes}, ("loss", *recipe.metrics)),
        page.Table("Settings", ["setting", "value", "what it is"], settings),
    ]
    return write(first.path / "report.html", page.report(recipe.name, sections))


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


def read_log(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, but for one that a kill left half-written."""
    found = []
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _told(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
