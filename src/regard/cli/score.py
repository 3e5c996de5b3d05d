"""`regard score`: how likely a model finds given sentences."""

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from regard.cli import options
from regard.cli.console import many, notice
from regard.cli.lines import text_chunks

if TYPE_CHECKING:
    from regard.verbs import Scored

# What each factor of the probability of a text is, by how the model reads it.
FORWARD, BACKWARD, ORIGINAL = "p(piece | before)", "p(piece | after)", "p(original)"


def score(
    run: options.Run,
    file: options.File = "-",
    tokens: Annotated[
        bool,
        typer.Option("--tokens", "-v", help="The chain rule, a line for each token: p, ln p, and their sum so far."),
    ] = False,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """The log-probability of each line: in total, per token, and as a perplexity.

    A line for a translator is source<TAB>target, for a language model a text. Each answer is total, tab, perplexity,
    tab, the pieces with their natural logarithms. A model with a begin token predicts the first piece after it, and one
    with an end token predicts it last: GPT-2's <|endoftext|> is both. A model of running text has neither, and its
    first piece has no probability; a line of one such piece has no perplexity (-). With --tokens each piece has a line
    of its own, with the sum of the logarithms so far, and of a bigram model with the counts that give its probability.
    A model that reads backward predicts each piece from those after it, and the beginning last; the pieces stay in
    reading order. A model of both directions gives its backward answer after its forward one, in three more columns.
    ELECTRA gives the probability that each piece is the original one and was not replaced; their product is no
    probability of the text. A blank line is answered by a blank line. The perplexity of all lines goes to standard
    error.

    \b
    Examples:
      printf '3 February 2021\\t2021-02-03\\n' | regard score runs/dates
      regard score runs/dates --json pairs.tsv > scores.jsonl
      echo "To be, or not to be" | regard score runs/shakespeare --tokens
    """
    from regard import verbs
    from regard.metrics import perplexity
    from regard.render.formatting import format_number
    from regard.verbs.scoring import can_score

    def cells(one: "Scored") -> list[str]:
        more = [] if one.backward is None else [one.backward]
        if tokens:
            chains = (_chain(each, factor if each is one else BACKWARD) for each in (one, *more))
            return [line for chain in chains for line in chain]
        found = []
        for each in (one, *more):
            pieces = " ".join(f"{piece} {format_number(logp)}" for piece, logp in zip(each.pieces, each.logps))
            found += [format_number(each.total), format_number(each.perplexity) if each.pieces else "-", pieces]
        return found

    model = reading.open(run)
    model.expect("score", can_score(model))
    factor = BACKWARD if model.reads_backward else ORIGINAL if model.predicts("replaced") else FORWARD
    total, count, single = 0.0, 0, 0
    for chunk in text_chunks(model, file, paired=model.source_tokenizer is not None):
        scored = verbs.score(model, chunk.texts, reading.batch_tokens)
        chunk.print_answers(scored, json, cells, between="\n" if tokens else "\t")
        each = [*scored, *(one.backward for one in scored if one.backward is not None)]
        total += sum(one.total for one in each)
        count += sum(len(one.pieces) for one in each)
        single += sum(not one.pieces for one in scored)
    if count and factor == ORIGINAL:
        notice(f"{count} tokens, mean of ln {ORIGINAL} {format_number(total / count)}")
    elif count:
        notice(f"{count} tokens, perplexity {format_number(perplexity(total, count))}")
    if single:
        lines = many(single, "line", "lines")
        notice(f"{lines} of one token: it has no probability, as this model has no begin token before it")


def _chain(one: "Scored", factor: str) -> Iterator[str]:
    """p(text) = Π p(piece | the pieces before it): the factors, and their product so far.

    Read backward, a piece is predicted from the pieces after it; the lines stay in reading order.
    """
    from regard.render.formatting import format_number

    wide = max(map(cell_len, [*one.pieces, "piece"]))
    yield f"{'piece':<{wide}}  {factor:>17}  {'ln p':>12}  {'sum':>12}"
    formulas = one.formulas or [""] * len(one.pieces)
    for piece, logp, total, formula in zip(one.pieces, one.logps, accumulate(map(float, one.logps)), formulas):
        pad = " " * (wide - cell_len(piece))
        probability, logp_text, total_text = map(format_number, (math.exp(logp), logp, total))
        yield f"{piece}{pad}  {probability:>17}  {logp_text:>12}  {total_text:>12}  {formula}".rstrip()
    if factor == ORIGINAL:
        yield f"sum of ln {ORIGINAL} = {format_number(one.total)} over {len(one.pieces)} tokens"
        yield ""
        return
    perplexity = format_number(one.perplexity) if one.pieces else "-"
    yield f"ln p(text) = {format_number(one.total)}, perplexity {perplexity} over {len(one.pieces)} tokens"
    yield ""
