"""`regard tag`: texts in, entities or tags out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli import options
from regard.cli.lines import chunks, numbered, print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs.tagging import Tagged

Given = Annotated[
    Literal["lines", "spaces"] | None,
    typer.Option(
        "--tokens", help="The input has words: one on a line (a blank line between sentences), or separated by spaces."
    ),
]


def tag(
    run: options.Run,
    file: options.File = "-",
    tokens: Given = None,
    json: options.Json = False,
    *,
    opening: options.Opening,
    batch_tokens: options.BatchTokens = 8192,
) -> None:
    """Find the entities of each line of a text: line, start, end, type, probability and text, one entity on a line.

    start and end are the numbers of the first character of the entity in its line, from 0, and of the character after
    its last. A line is split into words at spaces and punctuation (docs/tagging.md). A line that is longer than the
    model reads is read in windows that overlap. With --tokens the words are given, and each word is printed with its
    tag; a blank line follows each sentence. If the tags of the model name no entities, such as parts of speech, each
    word of a line is printed so, too. --json prints one object for each line or sentence.

    \b
    Examples:
      regard train tag data.train=train.txt data.valid=valid.txt --out runs/names
      echo "Peter Blackburn flew to Brussels." | regard tag runs/names
      regard tag runs/names --json news.txt > entities.jsonl
      cut -d " " -f 1 test.txt | regard tag runs/names --tokens lines
    """
    from regard.entities import names_entities
    from regard.verbs.tagging import tag as tag_texts
    from regard.verbs.tagging import tag_names, tag_words

    model = opening.open(run)
    model.expect("tag", model.predicts("tag") and not model.module.config.numbers)
    if tokens is None:
        named = names_entities(tag_names(model))
        for first, lines in chunks(file):
            if first == 1:
                _refuse_columns(file, lines)
            for number, found in enumerate(tag_texts(model, lines, batch_tokens), first):
                if json:
                    print_line(numbered(number, found if lines[number - first].strip() else None))
                elif named:
                    for each in found.entities:
                        place = (str(number), str(each.start), str(each.end))
                        print_line(*place, each.type, f"{each.probability:.3f}", each.text)
                elif found.words:
                    _print_words(found)
        return
    for sentences in _sentences(file, tokens):
        answers = tag_words(model, [words for _, words in sentences], batch_tokens)
        for (number, _), one in zip(sentences, answers):
            if json:
                print_line(numbered(number, one))
            else:
                _print_words(one)


def _refuse_columns(file: str, lines: list[str]) -> None:
    """Refuse the lines of a file of columns, on which a word comes first and a tag such as B-PER or O last."""
    from regard.data.conll import columns_of
    from regard.entities import names_entities

    rows = [cells for cells in map(columns_of, lines) if cells]
    if all(len(cells) > 1 for cells in rows) and names_entities({cells[-1] for cells in rows}):
        name = "standard input" if file == "-" else file
        raise UserError(f"{name}: has a word and its tag on each line, not a text; read its words with --tokens lines.")


def _print_words(found: "Tagged") -> None:
    for word, name in zip(found.words, found.tags):
        print_line(word, name)
    print_line()


def _sentences(file: str, tokens: str) -> Iterator[list[tuple[int, list[str]]]]:
    """Groups of sentences: the number of the first line and the words of each."""
    from regard.data.conll import columns_of

    words: list[str] = []
    start = 1
    for first, lines in chunks(file):
        group: list[tuple[int, list[str]]] = []
        for number, line in enumerate(lines, first):
            cells = columns_of(line)
            if tokens == "spaces" and cells:
                group.append((number, cells))
            elif tokens == "lines" and cells:
                start = start if words else number
                words.append(cells[0])
            elif words:
                group.append((start, words))
                words = []
        if group:
            yield group
    if words:
        yield [(start, words)]
