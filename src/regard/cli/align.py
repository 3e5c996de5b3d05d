"""`regard align`: which source unit each target unit is aligned to."""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.console import notice
from regard.cli.lines import text_chunks


def align(
    run: options.Run,
    file: options.File = "-",
    unit: Annotated[
        str, typer.Option(help="word, piece, or auto: pieces where the model reads characters, else words.")
    ] = "auto",
    method: Annotated[
        str, typer.Option(help="argmax: each target's best source; mutual: pairs that agree.")
    ] = "argmax",
    layer: Annotated[
        int | None,
        typer.Option(
            min=0, help="The layer whose attention is used, from 0. Default: the last but one; of two, the last."
        ),
    ] = None,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """Align given pairs by the attention of a translator under teacher forcing.

    Each line is source<TAB>target; each answer is in Pharaoh format, source-target, counted from 0. Sub-words are
    merged to words. A blank line is answered by a blank line. Of a Transformer one layer is read, the mean of its
    heads: --layer, or by default the last but one (of two, the last); its number goes to standard error. In --json the
    "links" join the "unit", words or pieces; "words" and "pieces" both have their source, target and weights.

    \b
    Examples:
      regard align runs/translate < pairs.tsv > pairs.pharaoh
      regard align runs/dates --json dates.tsv
      regard align runs/translate --layer 2 < pairs.tsv
    """
    from regard import verbs
    from regard.alignment import pharaoh
    from regard.models.parts import source_reads
    from regard.verbs.forced import aligning

    model = reading.open(run)
    model.expect("align", model.module.config.source_vocab > 0)
    layers, read = source_reads(model.module), aligning(model, layer)
    if len(layers) > 1 and read is not None:
        place = f"layer {layers.index(read)} of 0 to {len(layers) - 1}"
        notice(f"aligned by {place}, the mean of its heads")
    for chunk in text_chunks(model, file, paired=True):
        found = verbs.align(model, chunk.texts, unit, method, reading.batch_tokens, layer)
        chunk.print_answers(found, json, lambda one: [pharaoh(one.links)])
