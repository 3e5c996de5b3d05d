"""`regard align`: which source unit stands behind which target unit."""

import sys
from typing import Annotated

import typer

from regard.cli import options
from regard.cli.lines import chunks, pair, say


def align(
    run: options.Run,
    file: options.File = "-",
    unit: Annotated[
        str, typer.Option(help="word, piece, or auto: pieces where the model reads characters, else words.")
    ] = "auto",
    method: Annotated[
        str, typer.Option(help="argmax: each target's best source; mutual: pairs that agree.")
    ] = "argmax",
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    batch_tokens: options.BatchTokens = 8192,
    long: options.Long = "error",
) -> None:
    """Align given pairs by the attention of a translator that is made to say each target.

    Each line is source<TAB>target; each answer is in Pharaoh format, source-target, counted from 0. Sub-words are
    merged to words. A blank line is answered by a blank line.

    \b
    Examples:
      regard align runs/translate < pairs.tsv > pairs.pharaoh
      regard align runs/dates --json dates.tsv
    """
    from regard import verbs
    from regard.alignment import pharaoh

    model = verbs.load(run, device, precision, long)
    model.expect("align", "translate")
    for first, lines in chunks(file):
        there = {number: pair(line, number) for number, line in enumerate(lines, first) if line.strip()}
        model.read([line.partition("\t")[0] for line in lines], first)  # refuses a line by its number in the file
        found = dict(zip(there, verbs.align(model, list(there.values()), unit, method, batch_tokens)))
        for number in range(first, first + len(lines)):
            one = found.get(number)
            if json:
                say({"line": number} | ({} if one is None else vars(one)))
            else:
                say("" if one is None else pharaoh(one.links))
        sys.stdout.flush()
