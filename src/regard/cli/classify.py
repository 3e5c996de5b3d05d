"""`regard classify`: texts in, labels out."""

from regard.cli import options
from regard.cli.lines import text_chunks


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

    model = options.opened(run, device, precision, long, download, allow_pickle)
    model.expect("classify", "class" in model.module.config.predicts)
    for chunk in text_chunks(model, file):
        found = verbs.classify(model, chunk.texts, batch_tokens)
        chunk.print_answers(found, json, lambda one: [one.label, format_number(one.probability)])
