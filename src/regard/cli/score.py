"""`regard score`: how likely a model finds given sentences."""

import sys

from regard.cli import options
from regard.cli.lines import chunks, pair, say


def score(
    run: options.Run,
    file: options.File = "-",
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    batch_tokens: options.BatchTokens = 8192,
    long: options.Long = "error",
) -> None:
    """The log-probability of each line: in total, per token, and as a perplexity.

    A translator wants source<TAB>target, a language model a line of text. Each answer is total, tab, perplexity, tab,
    the pieces with their natural logarithms; the end of the sentence is the last of them. A blank line is answered by
    a blank line. The perplexity of everything goes to standard error.

    \b
    Examples:
      printf '3 February 2021\\t2021-02-03\\n' | regard score runs/dates
      regard score runs/dates --json pairs.tsv > scores.jsonl
    """
    from regard import verbs
    from regard.metrics import perplexity

    model = verbs.load(run, device, precision, long)
    model.expect("score", "translate", "language")
    total, count = 0.0, 0
    for first, lines in chunks(file):
        there = {number: line for number, line in enumerate(lines, first) if line.strip()}
        sources = [line.partition("\t")[0] for line in lines] if model.source_tokenizer else lines
        model.read(sources, first)  # refuses a line by its number in the file
        texts: list[str | tuple[str, str]] = [
            pair(line, number) if model.source_tokenizer else line for number, line in there.items()
        ]
        scored = dict(zip(there, verbs.score(model, texts, batch_tokens)))
        for number in range(first, first + len(lines)):
            one = scored.get(number)
            if json:
                say({"line": number} | ({} if one is None else vars(one)))
            elif one is None:
                say("")
            else:
                pieces = " ".join(f"{piece} {logp:.4f}" for piece, logp in zip(one.pieces, one.logps))
                say(f"{one.total:.4f}\t{one.perplexity:.4f}\t{pieces}")
        sys.stdout.flush()
        total += sum(one.total for one in scored.values())
        count += sum(len(one.pieces) for one in scored.values())
    if count:
        print(f"{count} tokens, perplexity {perplexity(total, count):.4f}", file=sys.stderr)
