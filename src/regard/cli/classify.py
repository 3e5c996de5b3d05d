"""`regard classify`: texts in, labels out."""

import sys

from regard.cli import options
from regard.cli.lines import chunks, print_line
from regard.cli.opening import opened
from regard.cli.unknown import Unknown


def classify(
    run: options.Run,
    file: options.File = "-",
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    batch_tokens: options.BatchTokens = 8192,
    long: options.Long = "error",
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Label each line of a text: label, tab, its probability. A blank line gives a blank line.

    The labels are those of the model's training data, or of a public checkpoint. --json has the probability of each.

    \b
    Examples:
      regard train classify data.train=opinions.tsv --out runs/opinions
      echo "what a lovely day" | regard classify runs/opinions
      regard classify runs/opinions --json texts.txt > labels.jsonl
      regard classify hf:distilbert/distilbert-base-uncased-finetuned-sst-2-english --download texts.txt
    """
    from regard import verbs
    from regard.render.formatting import format_number

    model = opened(run, device, precision, long, download, allow_pickle)
    model.expect("classify", "class" in model.module.config.predicts)
    unknown = Unknown(model)
    for first, lines in chunks(file):
        unknown.count(model.read(lines, first), first)  # refuses a line by its number in the file
        there = [number for number, line in enumerate(lines, first) if line.strip()]
        texts = [lines[number - first] for number in there]
        found = dict(zip(there, verbs.classify(model, texts, batch_tokens)))
        for number in range(first, first + len(lines)):
            one = found.get(number)
            if json:
                print_line({"line": number} | ({} if one is None else vars(one)))
            else:
                print_line("" if one is None else f"{one.label}\t{format_number(one.probability)}")
        sys.stdout.flush()
    unknown.report()
