"""`regard eval --prompt`: classification with a language model that ranks the words of labels."""

import codecs
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import SafeConsole, grid, notice
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.data.example import LabelledText
    from regard.report.classes import ClassReport
    from regard.verbs import Loaded
    from regard.verbs.prompting import Prompt

SETTINGS = ("train", "valid", "test", "text", "label")  # of --prompt: the files and the columns of data=labelled
ESCAPES = re.compile(r"\\[nt]")  # a shell passes "\n" as two characters
LONGEST = 300  # characters of the prompt that is printed


@dataclass(frozen=True)
class LabelRanking:
    """Options: labels that a language model ranks after a prompt."""

    prompt: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help=r'For a language model: rank labels after a prompt such as "Review: {text}\nSentiment: {label}".',
        ),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS=LABEL,…", help="With --prompt: the words of each label, as in negative=0,positive=1."
        ),
    ] = None
    shots: Annotated[
        int, typer.Option(min=0, help="With --prompt: how many examples of data.train=FILE come before each text.")
    ] = 0
    seed: Annotated[int, typer.Option("--seed", help="With --prompt: the seed that draws the examples.")] = 1
    per_token: Annotated[
        bool, typer.Option("--per-token", help="With --prompt: rank by the mean log-probability of a label's tokens.")
    ] = False
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="With --prompt: divide by the probability of a label after a text without content."
        ),
    ] = False


def print_prompted(
    model: "Loaded",
    ranking: LabelRanking,
    data: str | None,
    split: str | None,
    settings: "Sequence[str]",
    batch_tokens: int,
    json: bool,
) -> None:
    """--prompt: the accuracy of labels that are ranked by log-probability, by class and beside the most frequent."""
    import numpy as np

    from regard.class_scores import macro_average
    from regard.metrics import matthews
    from regard.report.classes import ClassReport
    from regard.verbs.prompting import rank_labels

    shots, seed, per_token, calibrate = ranking.shots, ranking.seed, ranking.per_token, ranking.calibrate
    name, examples, prompt = _prompt(ranking, data, split, settings)
    ranked = rank_labels(model, [one.text for one in examples], prompt, per_token, calibrate, batch_tokens)
    names, right = np.array(ranked.labels), [one.label for one in examples]
    found, gold = (np.array(some)[:, None] == names for some in (ranked.best, right))
    report = ClassReport(ranked.labels, found, gold, several=False)
    frequent = Counter(right).most_common(1)[0][0]
    scores = {
        "accuracy": float((found & gold).any(1).mean()),
        "majority": right.count(frequent) / len(right),
        "f1_macro": float(macro_average(found, gold).f1[0]),
        "matthews": matthews(found, gold),
    }
    fewer = sum(number < shots for number in ranked.shots)
    if json:
        print_line(
            {
                **{"run": model.path, "step": model.step, "data": name, "examples": len(examples)},
                **{"prompt": prompt.template, "labels": prompt.words, "shots": shots, "seed": seed if shots else None},
                **{"per_token": per_token, "calibrated": calibrate, "fewer_shots": fewer, "truncated": ranked.cut},
                **{"scores": scores, "classes": report.to_json(), "first_prompt": ranked.first, "best": ranked.best},
            }
        )
        return
    how = f"{shots} shots, seed {seed}" if shots else "no shots"
    title = f"{model.path}: labels of {len(examples):,} texts of {name}, ranked with a prompt ({how})"
    rows = [
        ["accuracy", f"{scores['accuracy']:.2%}", ""],
        ["(majority)", f"{scores['majority']:.2%}", f"always {frequent!r}, the most frequent label"],
        ["F1, macro", f"{scores['f1_macro']:.2%}", ""],
        ["Matthews correlation", f"{scores['matthews']:.4f}", ""],
    ]
    SafeConsole().print(grid(title, ["", "", ""], rows))
    limit = f"longer than the model's {model.longest} tokens"
    if fewer:
        most = f"with {shots} shots and have fewer, at least {min(ranked.shots)}"
        notice(f"{fewer:,} of {len(examples):,} prompts are {limit} {most}")
    if ranked.cut:
        notice(f"{ranked.cut:,} prompts are {limit} and lost their beginning")
    _print_report(report, ranked.first)


def _print_report(report: "ClassReport", first: str) -> None:
    """The scores by class, and the first prompt."""
    from regard.render.terminal import sections_text

    console, tables = SafeConsole(), (report.table(), report.confusion_table())
    console.print("", sections_text([table for table in tables if table]))
    shown = first if len(first) <= LONGEST else "…" + first[-LONGEST:]
    console.print()
    console.print(f"The first prompt, before its label: {shown!r}", soft_wrap=True, markup=False, highlight=False)


def _prompt(
    ranking: LabelRanking, data: str | None, split: str | None, settings: "Sequence[str]"
) -> "tuple[str, Sequence[LabelledText], Prompt]":
    """The name of the texts, the texts with their labels, and the prompt with its words and its shots."""
    from regard.data.text2text import verbalisers
    from regard.verbs.prompting import Prompt, draw_shots

    assert ranking.prompt is not None
    labels, shots, seed = ranking.labels, ranking.shots, ranking.seed
    template = ESCAPES.sub(lambda found: codecs.decode(found[0], "unicode_escape"), ranking.prompt)
    words = None if labels is None else verbalisers(labels.split(","), f"--labels {labels}")
    Prompt(template, words or {"a": "a", "b": "b"})  # refuses a wrong template before files are read
    name, train, examples = _examples(data, split, settings, shots)
    words = words or {label: label for label in sorted({one.label for one in (*train, *examples)})}
    for one in (*train, *examples):
        if one.label not in words:
            known = ", ".join(map(repr, words))
            raise UserError(f"--labels: the label {one.label!r:.40} has no words; name it too, beside {known:.80}.")
    return name, examples, Prompt(template, words, draw_shots([(one.text, one.label) for one in train], shots, seed))


def _examples(
    data: str | None, split: str | None, settings: "Sequence[str]", shots: int
) -> "tuple[str, Sequence[LabelledText], Sequence[LabelledText]]":
    """The name of the texts that are labelled, the examples to draw shots from, and the texts with their labels."""
    from regard.config import override
    from regard.data.labelled import Labelled

    for setting in settings:
        if setting.removeprefix("data.").partition("=")[0] not in SETTINGS or not setting.startswith("data."):
            known = ", ".join(f"data.{name}=" for name in SETTINGS)
            raise UserError(f"{setting}: not a setting of --prompt; give {known}.")
    own: Any = override(Labelled(), [setting.removeprefix("data.") for setting in settings], {})
    if data is not None and (own.test or split):
        other = f"data.test={own.test}" if own.test else f"--split {split}"
        raise UserError(f"--data {data} and {other}: both name the texts to label; give one of them.")
    test = data or own.test
    if not own.train and (shots or not test):
        if shots:
            raise UserError(f"--shots {shots}: examples are drawn from a training file; give data.train=FILE.")
        raise UserError("--prompt: measures texts with labels; give --data FILE, a table or label<TAB>text.")
    if not own.train:
        return test, [], replace(own, train=test, valid=test, test="").load().train
    part = split or ("test" if test else "valid")
    valid = own.valid or ("" if part == "valid" else own.train)  # texts are held out only if they are to be labelled
    corpus = replace(own, test=test, valid=valid).load()
    found: Sequence[LabelledText] = getattr(corpus, part, ())
    if not found:
        raise UserError(f"--split {part}: there are no such texts; give test (data.test=FILE), valid or train.")
    return test or f"{own.valid or own.train} ({part})", corpus.train, found
