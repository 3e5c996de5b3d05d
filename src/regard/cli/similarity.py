"""`regard similarity`: pairs of texts in, numbers out."""

import os
from typing import Annotated

import typer

from regard.cli import options
from regard.cli.lines import numbered, part_chunks, print_line
from regard.errors import UserError

First = Annotated[
    str,
    typer.Argument(
        metavar="FILE|FIRST", help="A file: lines first<TAB>second, .csv or .jsonl. Or, with SECOND, a text."
    ),
]
Second = Annotated[str | None, typer.Argument(metavar="SECOND", help="The text that FIRST is compared with.")]


def similarity(
    run: options.Run,
    first: First = "-",
    second: Second = None,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """Give each pair of texts a number: how similar they are, as in the model's training data.

    The model is one of regard train similarity; or of regard train embed, whose number is the cosine of two vectors. A
    line has first, tab, second; a .csv or .jsonl file, or a file with a header, has the columns that the model was
    trained on. A blank line gives a blank line.

    \b
    Examples:
      regard train similarity data.train=pairs.tsv --out runs/similar
      regard similarity runs/similar "A man is asleep." "Somebody sleeps."
      regard similarity runs/similar pairs.tsv > numbers.txt
    """
    from regard.render.formatting import format_number
    from regard.verbs.labelling import similarity as similarities

    model = reading.open(run).of_pairs()
    if second is not None:
        (found,) = similarities(model, [(first, second)], reading.batch_tokens)
        print_line(numbered(1, found) if json else format_number(found.number))
        return
    able = model.predicts("vector") or (model.joined_text is not None and model.predicts("number"))
    model.expect("compare two texts", able)
    if first != "-" and not os.path.exists(first):
        raise UserError(f"{first!r:.60}: no such file; give a file of pairs, or a second text to compare it with.")
    for chunk in part_chunks(model, first):
        answers = similarities(model, chunk.texts, reading.batch_tokens)
        chunk.print_answers(answers, json, lambda one: [format_number(one.number)])
