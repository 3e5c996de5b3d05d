"""`regard fill`: the likeliest tokens at each [MASK] of a text."""

from typing import Annotated

import typer

from regard.cli import options
from regard.cli.lines import chunks, count_unknown, numbered, print_line


def fill(
    run: options.Run,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="A text with masks; without TEXT, each line of standard input is one."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many tokens to show for every mask.")] = 5,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """Fill in masked tokens with a masked model (BERT, RoBERTa, ALBERT …), a language model or T5.

    Write the model's own mask, [MASK] or <mask>, where a token is wanted, once or several times. Each answer is the
    text with the likeliest token at every mask; then, for each mask after a tab, the likeliest pieces as the vocabulary
    has them (##s continues a word, ▁ is a space) and their probabilities. A blank line is answered by a blank line.

    A language model fills one [MASK] of a line: from the text before it, with model.direction=backward from the text
    after it, and with model.direction=both from both. T5 fills each mask, or sentinel such as <extra_id_0>, with a
    span of any length.

    \b
    Examples:
      regard fill bert/ "The [MASK] barked."
      regard fill roberta/ "The <mask> barked at the <mask>." --top 3 --json
      regard fill runs/text "The [MASK] barked."
      regard fill bert/ < masked.txt > filled.tsv
      regard fill hf:google-bert/bert-base-uncased "The [MASK] barked." --download
    """
    from regard import verbs
    from regard.render.formatting import format_number
    from regard.verbs.filling import can_fill, mask_of

    model = reading.open(run)
    model.expect("fill", can_fill(model))
    for first, lines in count_unknown(model, [(1, texts)] if texts else chunks("-"), without=mask_of(model)):
        for number, one in enumerate(verbs.fill(model, lines, top, reading.batch_tokens, first), first):
            guesses = [
                " ".join(f"{guess.piece} {format_number(guess.probability)}" for guess in mask) for mask in one.masks
            ]
            answer = one if lines[number - first].strip() else None
            print_line(*([numbered(number, answer)] if json else [one.text, *guesses]))
