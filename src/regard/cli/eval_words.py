"""The measures of `regard eval` that are for static word vectors alone: --wordsim and --analogies."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import SafeConsole, grid
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs import Loaded


@dataclass(frozen=True)
class WordMeasures:
    """Options: measurements of word vectors."""

    wordsim: Annotated[
        bool,
        typer.Option(
            "--wordsim",
            help="For word vectors: the correlation with human ratings of similarity; --data FILE, or "
            "REGARD_DATA/wordsim.",
        ),
    ] = False
    analogies: Annotated[
        bool,
        typer.Option(
            "--analogies", help="For word vectors: a is to b as c is to ?; --data FILE, or REGARD_DATA/wordsim."
        ),
    ] = False
    most: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --analogies: only the first words of the vocabulary can be answers. Default: 300000."
        ),
    ] = None


def print_word_tests(model: "Loaded", measures: WordMeasures, data: str | None, json: bool) -> None:
    """--wordsim and --analogies: agreement with people about similar words, and answers to analogies."""
    from regard.verbs.neighbours import test_files, word_analogies, word_similarity, word_table

    wordsim, analogies, count = measures.wordsim, measures.analogies, measures.most or 300_000
    if wordsim and analogies and data is not None:
        raise UserError(f"--data {data}: pairs or analogies, not both; give one of --wordsim and --analogies.")
    table = word_table(model)
    similar = [word_similarity(table, path) for path in test_files(data, False)] if wordsim else []
    answers = (
        [each for path in test_files(data, True) for each in word_analogies(table, path, count)] if analogies else []
    )
    right, covered, questions = (
        sum(getattr(each, name) for each in answers) for name in ("right", "covered", "questions")
    )
    if json:
        scores = {"accuracy": right / covered if covered else None, "covered": covered, "questions": questions}
        sections = [{**asdict(each), "accuracy": each.accuracy} for each in answers]
        print_line(
            {
                **{"run": model.path, "step": model.step, "words": len(table.words)},
                **({"wordsim": [asdict(each) for each in similar]} if wordsim else {}),
                **({"analogies": {**scores, "sections": sections}} if analogies else {}),
            }
        )
        return
    console = SafeConsole()
    if wordsim:
        rows = [
            [
                each.name,
                "–" if each.spearman is None else f"{each.spearman:.3f}",
                f"{each.covered:,} of {each.pairs:,} ({each.coverage:.0%})",
            ]
            for each in similar
        ]
        console.print(grid(f"{model.path}: similarity of words", ["test", "Spearman", "pairs with vectors"], rows))
    if analogies:
        lines = [(each.section, each.right, each.covered, each.questions) for each in answers]
        rows = [
            [name, f"{good / known:.1%}" if known else "–", f"{known:,} of {asked:,}"]
            for name, good, known, asked in (*lines, ("all", right, covered, questions))
        ]
        title = f"{model.path}: analogies, answers among the first {min(count, len(table.words)):,} words"
        console.print(*([""] if wordsim else []), grid(title, ["section", "right", "questions with vectors"], rows))
