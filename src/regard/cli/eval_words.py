"""The measures of `regard eval` that are for static word vectors alone: --wordsim and --analogies."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from regard.cli.console import SafeConsole, grid
from regard.cli.lines import print_line

if TYPE_CHECKING:
    from regard.verbs import Loaded


def print_word_tests(
    model: "Loaded", data: str | None, wordsim: bool, analogies: bool, most: int | None, json: bool
) -> None:
    """--wordsim and --analogies: agreement with people about similar words, and answers to analogies."""
    from regard.verbs.neighbours import word_table
    from regard.verbs.word_tests import test_files, word_analogies, word_similarity

    table, count = word_table(model), most or 300_000
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
            [each.name, _shown(each.spearman), f"{each.covered:,} of {each.pairs:,} ({each.coverage:.0%})"]
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


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
