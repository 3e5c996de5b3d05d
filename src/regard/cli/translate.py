"""`regard translate`: lines in, translations out."""

from typing import Annotated, Any

import typer

from regard.cli import options
from regard.cli.lines import numbered, print_line, text_chunks


def translate(
    run: options.Run,
    file: options.File = "-",
    beam: options.Beam = 1,
    nbest: options.Nbest = 1,
    *,
    ranking: options.Ranking,
    coverage: options.Coverage = 0.0,
    limit: options.MaybeLimit = None,
    align: Annotated[bool, typer.Option("--align", help="Also print the alignment of each answer.")] = False,
    json: options.Json = False,
    opening: options.Opening,
    batch_tokens: options.SearchTokens = None,
    long: options.Long = "error",
) -> None:
    """Translate each line of a text, in order, as it comes.

    A blank line is answered by a blank line. With --nbest every answer has a line of its own: text, tab, score; with
    --align its links (source-target, from 0) follow after a tab. A score is the mean natural logarithm of the tokens'
    probabilities, or as --penalty sets it; --json has more, such as whether an answer "ended" or reached the --limit.
    With --align its "links" join the "unit", words or pieces (tokens); "words" and "pieces" both have their weights.

    \b
    Examples:
      echo "3 février 2021" | regard translate runs/dates
      regard translate runs/dates --beam 5 --nbest 3 dates.txt
      regard translate runs/dates --align --json < in.txt > out.jsonl
    """
    from regard import verbs
    from regard.alignment import pharaoh
    from regard.render.formatting import format_number
    from regard.verbs.search import Search

    penalty = ranking.with_coverage(coverage)
    Search(beam, nbest, penalty, limit)  # refuses wrong options before the model is loaded
    model = opening.open(run, long)
    model.expect("translate", model.module.config.source_vocab > 0)
    for chunk in text_chunks(model, file):
        for one in verbs.translate(model, chunk.lines, beam, nbest, penalty, limit, align, batch_tokens):
            pair = one.source_tokens, one.tokens
            aligned = verbs.aligned(model, pair, one.alignment) if align and one.tokens else None
            if json:
                found: dict[str, Any] = {"text": one.text, "score": one.score, "logp": one.logp, "ended": one.ended}
                if aligned:
                    found |= vars(aligned) | {"logps": one.logps}
                print_line(numbered(chunk.numbers[one.line], found if chunk.lines[one.line].strip() else None))
            else:
                score = [format_number(one.score)] if nbest > 1 and one.source_tokens else []
                print_line(one.text, *score, *([pharaoh(aligned.links)] if aligned else []))
