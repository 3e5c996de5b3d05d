"""`regard neighbours`: the words nearest to a word, or the nearest occurrences of a word in sentences."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.console import SafeConsole, grid
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.report.sections import Section
    from regard.verbs import Loaded
    from regard.verbs.occurrences import OccurrenceNeighbours


def neighbours(
    run: options.Run,
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="A word, or words with + and - between them; with --text, a sentence with one word in asterisks.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many words to show.")] = 10,
    text: Annotated[
        str | None, typer.Option(help="Sentences, one on each line: the nearest occurrences of a marked word in them.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", callback=options.writable_file, help="With --text: write a page, one .html file."),
    ] = None,
    json: options.Json = False,
    *,
    opening: options.Opening,
) -> None:
    """The words nearest to a word, or with --text its nearest occurrences in sentences, by the cosine of vectors.

    Without --text, DIR is a run of word2vec or glove, or a file of vectors: word2vec's text or binary format or
    GloVe's, compressed (.gz) or not. Words with + and - between them are added: king - man + woman is near queen if the
    vectors have learnt it. The words of the question are no answers. A word that has no vector is looked up in lower
    case; else the nearest spellings are offered.

    With --text FILE, DIR is any model that reads text, and the question is a sentence with one word in asterisks. The
    occurrences of this word in FILE are compared by the vectors of the last layer in their sentences; the words nearest
    to its static vector stand beside them: its vector in a model of word vectors, else its row of the input embedding;
    of an ELMo, which has no such table, words of FILE. -o page.html draws all occurrences in two dimensions (principal
    components), with the sentences on hover.

    \b
    Examples:
      regard neighbours runs/word2vec river
      regard neighbours runs/glove king - man + woman --top 5
      regard neighbours vectors.txt.gz paris - france + italy --json
      regard neighbours runs/elmo "the boat leaves the *bank*" --text lines.txt
      regard neighbours bert/ "the children *play* in the yard" --text lines.txt -o play.html
    """
    from regard import verbs
    from regard.render.formatting import format_distinct

    if text is not None:
        _print_occurrences(opening.open(run), " ".join(question or []), text, top, out, json)
        return
    if out is not None:
        raise UserError(f"--out {out}: the page shows occurrences of a word; give --text FILE too, or leave it out.")
    if not question:
        raise UserError(f"neighbours: give a word, such as: regard neighbours {run} river")
    model = opening.open(run)
    config = model.module.config
    if model.task.head != "words" and not (model.reads_images or config.reads_words or config.numbers):
        asked = " ".join(question)
        sentence = shlex.quote(asked if "*" in asked else f"… *{question[0]}* …")
        use = f"give a sentence and a file of sentences: regard neighbours {run} {sentence} --text FILE"
        raise UserError(f"{run}: this is {model.kind}, which has no static word vectors; {use}")
    found = verbs.neighbours(model, question, top)
    if json:
        print_line({"question": " ".join(question), "neighbours": [one._asdict() for one in found]})
        return
    rows = [[one.word, cosine] for one, cosine in zip(found, format_distinct([one.cosine for one in found]))]
    SafeConsole().print(grid(f"Nearest to {' '.join(question)}", ["word", "cosine"], rows))


def _print_occurrences(model: "Loaded", question: str, text: str, top: int, out: Path | None, json: bool) -> None:
    """--text: the nearest occurrences of a marked word, and the nearest words beside them."""
    from dataclasses import asdict

    from regard.data.files import iterate_lines
    from regard.render.html import save_report
    from regard.render.terminal import sections_text
    from regard.verbs.occurrences import occurrence_neighbours

    if out is not None and out.suffix.lower() != ".html":
        raise UserError(f"--out {out}: the page is HTML; end its name in .html.")
    lines = [line.strip() for line in iterate_lines(text) if line.strip()]
    found = occurrence_neighbours(model, question, lines, top)
    sections = occurrence_sections(found, model.name, text)
    if out is not None:
        save_report(out, f"Occurrences of “{found.query.word}”", sections)
    if json:
        near = [{**asdict(one.occurrence), "cosine": one.cosine} for one in found.near]
        static = [one._asdict() for one in found.static]
        count = len(found.occurrences)
        print_line({"question": question, "occurrences": count, "near": near, "static": static, "page": out})
        return
    console = SafeConsole()
    console.print(sections_text(sections))
    if out is not None:
        console.print(f"The page: {out}", highlight=False, markup=False, soft_wrap=True)


def occurrence_sections(found: "OccurrenceNeighbours", model: str, text: str) -> "list[Section]":
    """The nearest occurrences beside the nearest words, and the picture of all occurrences."""
    from itertools import zip_longest

    from regard.render.formatting import format_distinct
    from regard.report.sections import Cell, Scatter, Table

    note = (
        f"The vectors are those of {model}; {len(found.occurrences):,} occurrences of “{found.query.word}” in {text} "
    )
    if found.in_context:
        note += "were compared, each by its vector in its sentence, of the last layer."
    else:
        note += "were found. This model has one vector for a spelling, so that the sentence makes no difference."
    columns = ["cosine", "occurrence"]
    cosines = format_distinct([one.cosine for one in found.near])
    rows: list[list[Cell]] = [[cosine, one.occurrence.excerpt()] for cosine, one in zip(cosines, found.near)]
    if found.static:
        columns += ["static neighbour", "cosine "]
        cosines = format_distinct([one.cosine for one in found.static])
        others: list[list[Cell]] = [[one.word, cosine] for one, cosine in zip(found.static, cosines)]
        rows = [[*left, *right] for left, right in zip_longest(rows, others, fillvalue=["", ""])]
        note += " A static neighbour is a word whose static vector, the same in every sentence, is near."
    table = Table(f"Nearest to “{found.query.word}” in “{found.query.text}”", columns, rows, note)
    if not found.in_context:
        return [table]  # a picture of the occurrences has one point
    near = {one.occurrence for one in found.near}
    groups = [0, *(1 if one in near else 2 for one in found.occurrences)]
    order = sorted(range(len(groups)), key=groups.__getitem__)
    texts = ["{}“{}”{}".format(*one.parts) for one in [found.query, *found.occurrences]]
    first, second = (f"component {at} ({part:.0%} of the variance)" for at, part in enumerate(found.variance, 1))
    picture = Scatter(
        "All occurrences in two dimensions",
        first,
        second,
        [found.points[at] for at in order],
        [texts[at] for at in order],
        [("the question", "nearest", "others")[groups[at]] for at in order],
        "The first two principal components of the vectors. Hover over a point to read its sentence.",
    )
    return [table, picture]
