"""Commands to try with a run that has just ended."""

import shlex
from collections.abc import Callable

from regard.cli.lines import program
from regard.recording import attentions
from regard.report.run import Outcome
from regard.report.samples import OPENING, excerpts, gapped
from regard.verbs.filling import mask_of

LADDERS = ("dates", "sounds", "multi30k")  # recipes that `regard ladder` compares with other models


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
