"""`regard classify`: texts in, labels out."""

import sys

from regard.cli import options
from regard.cli.lines import chunks, say
from regard.cli.opening import opened


def classify(
    run: options.Run,
    file: options.File = "-",
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    batch_tokens: options.BatchTokens = 8192,
    long: options.Long = "error",
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """The label of each line of a text: label, tab, probability. A blank line is answered by a blank line.

    \b
    Examples:
      echo "what a lovely day" | regard classify runs/mine
      regard classify runs/mine --json texts.txt
    """
    from regard import verbs

    model = opened(run, device, precision, long, download, allow_pickle)
    model.expect("classify", "classify")
    for first, lines in chunks(file):
        model.read(lines, first)  # refuses a line by its number in the file
        there = [number for number, line in enumerate(lines, first) if line.strip()]
        texts = [lines[number - first] for number in there]
        found = dict(zip(there, verbs.classify(model, texts, batch_tokens)))
        for number in range(first, first + len(lines)):
            one = found.get(number)
            if json:
                say({"line": number} | ({} if one is None else vars(one)))
            else:
                say("" if one is None else f"{one.label}\t{one.probability:.4f}")
        sys.stdout.flush()
