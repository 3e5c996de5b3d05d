"""The end of a run: its scores, some examples, a report in one file, and commands to try next."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group

from regard import verbs
from regard.cli.figures import duration, formatted, title
from regard.cli.lines import program
from regard.cli.samples import OPENING, Sample, excerpts, gapped, samples
from regard.cli.tables import grid
from regard.config import tree
from regard.recipes import Recipe
from regard.recording import attentions
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
LADDERS = ("dates", "sounds", "multi30k")  # recipes that `regard ladder` compares with other models


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
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.module.parameters())

    @property
    def numbers(self) -> dict[str, Any]:
        """Everything that was measured."""
        run = {"step": self.model.step, "parameters": self.parameters, "seconds": self.finished.seconds}
        return {"part": self.part, "scores": self.scores.values, "notes": self.scores.notes, **run}


def conclude(name: str, run: Run, finished: Finished) -> Outcome:
    """Evaluate the best step of a run: the loss and the measures of its recipe."""
    corpus = run.prepared.corpus
    part, examples = ("test", corpus.test) if corpus.test else ("valid", corpus.valid)
    model = verbs.load(run.out, run.recipe.plan.device, long="truncate", kinds=run.kinds)
    scores = evaluate(model, examples, ("loss", *run.recipe.metrics))
    return Outcome(name, run.out, run.recipe, model, part, examples, scores, finished)


def views(outcome: Outcome) -> list[AttentionView]:
    """The attention of the model over the first few examples."""
    return [verbs.look(outcome.model, text) for text in _texts(outcome)]


def sampled(outcome: Outcome) -> list[Sample]:
    """What the model generates for the first few examples; none where the attention pictures show it already."""
    return samples(outcome.model, _texts(outcome), outcome.recipe.plan.seed)


def sample_table(found: Sequence[Sample]) -> Group:
    """The samples, as a table."""
    return grid("What it says", ["given", "said"], [list(sample) for sample in found], justify="left")


def _texts(outcome: Outcome) -> list[str]:
    return excerpts(outcome.model, outcome.examples, SHOWN)


def next_commands(outcome: Outcome) -> list[str]:
    """Commands to try with a run that has just ended."""
    run, me, verb = shlex.quote(str(outcome.path)), program(), outcome.model.task.verb
    (text,) = excerpts(outcome.model, outcome.examples, 1) or [""]
    look = f"{me} look {run} {shlex.quote(text)} -o look.html"
    uses = NEXT.get(verb, _read_lines)(outcome, run, text)
    looks = [look] if outcome.model.source_tokenizer or attentions(outcome.model.module) else []
    if outcome.recipe.name in LADDERS:
        return [*looks, *uses, f"{me} ladder {outcome.recipe.name}"]
    return [*looks, *uses, f"{me} eval {run}{EVAL.get(verb, '')}"]


def _read_lines(outcome: Outcome, run: str, text: str) -> list[str]:
    return [f"echo {shlex.quote(text)} | {program()} {outcome.model.task.verb} {run}"]


def _translate(_outcome: Outcome, run: str, text: str) -> list[str]:
    return [f"echo {shlex.quote(text)} | {program()} translate {run} --beam 5 --nbest 3"]


def _generate(_outcome: Outcome, run: str, text: str) -> list[str]:
    opening = shlex.quote(" ".join(text.split()[:OPENING]))
    generate = f"{program()} generate {run} {opening} --temperature 0.8"
    return [generate, f"echo {shlex.quote(text)} | {program()} score {run}"]


def _fill(outcome: Outcome, run: str, text: str) -> list[str]:
    return [f"{program()} fill {run} {shlex.quote(gapped(text, mask_of(outcome.model)))}"]


# The commands that use a model, by its verb; for any other verb, `_read_lines`.
NEXT: dict[str, Callable[[Outcome, str, str], list[str]]] = {
    "translate": _translate,
    "generate": _generate,
    "fill": _fill,
}
EVAL = {"translate": " --beam 5"}  # options of `regard eval`, by the model's verb


def score_table(outcomes: Sequence[Outcome]) -> Group:
    """A row for each measure, a column for each run."""
    heading = f"{len(outcomes[0].examples):,} examples of {outcomes[0].part}"
    return grid(heading, ["", *(outcome.name for outcome in outcomes)], _rows(outcomes))


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    found = [formatted(one.scores.values) for one in outcomes]
    names = list(dict.fromkeys(name for measures in found for name in measures))
    rows = [[name, *(measures.get(name, "–") for measures in found)] for name in names]
    rows.append(["parameters", *(f"{one.parameters:,}" for one in outcomes)])
    rows.append(["best step", *(str(one.model.step) for one in outcomes)])
    return [*rows, ["training", *(duration(one.finished.seconds) for one in outcomes)]]


def write_report(outcomes: Sequence[Outcome], seen: Sequence[AttentionView], found: Sequence[Sample]) -> Path:
    """Write report.html of the first run: scores, samples, attention, the curves of metrics.jsonl, settings."""
    first = outcomes[0]
    recipe, notes = first.recipe, first.scores.notes
    settings = [[setting.name, _written(setting.value), setting.comment] for setting in tree(recipe)]
    columns = [f"on {first.part}", *(outcome.name for outcome in outcomes)]
    sections: list[page.Section] = [
        page.Text(f"{recipe.title}. The best step, by {recipe.plan.select}, is step {first.model.step}."),
        page.Table("Scores", columns, _rows(outcomes), note="; ".join(f"{name}: {notes[name]}" for name in notes)),
        *([page.Table("What it says", ["given", "said"], found)] if found else []),
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


def _written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
