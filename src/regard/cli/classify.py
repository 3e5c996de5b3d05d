"""`regard classify`: texts in, labels out."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import options
from regard.cli.lines import part_chunks, text_chunks
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.verbs.labelling import Chosen, Classified, LabelSet, Rating


Pairs = Annotated[bool, typer.Option("--pairs", help="For a public checkpoint: each line is first<TAB>second.")]


def classify(
    run: options.Run,
    file: options.File = "-",
    pairs: Pairs = False,
    json: options.Json = False,
    *,
    reading: options.Reading,
) -> None:
    """Label each line of a text: label, tab, its probability. A blank line gives a blank line.

    A .csv or .jsonl file, and a file of lines with a header, are read by the columns that the model was trained on.

    A model of pairs (regard train pair) reads lines first<TAB>second; a model of choices (regard train choice) reads
    context<TAB>choice<TAB>choice … and prints the likeliest choice. A public checkpoint reads pairs with --pairs.

    The labels are those of the model's training data, or of a public checkpoint. --json has the probability of each.
    A model of several labels (regard train multilabel) prints the labels whose probability is at least head.threshold,
    and these probabilities; | separates them. A model of numbers (regard train rate) prints the number.

    \b
    Examples:
      regard train classify data.train=opinions.tsv --out runs/opinions
      echo "what a lovely day" | regard classify runs/opinions
      regard classify runs/opinions --json texts.txt > labels.jsonl
      printf 'a man sleeps\\ta man is awake\\n' | regard classify runs/entailment
      regard classify hf:distilbert/distilbert-base-uncased-finetuned-sst-2-english --download texts.txt
    """
    from regard.render.formatting import format_number
    from regard.verbs.labelling import choose, label_sets, rate
    from regard.verbs.labelling import classify as classes

    def one_label(found: "Classified") -> list[str]:
        return [found.label, format_number(found.probability)]

    def several_labels(found: "LabelSet") -> list[str]:
        return ["|".join(found.given), "|".join(format_number(found.labels[name]) for name in found.given)]

    def number(found: "Rating") -> list[str]:
        return [format_number(found.number)]

    def choice(found: "Chosen") -> list[str]:
        return [found.choice, format_number(found.probability)]

    model = reading.open(run)
    model = model.of_pairs() if pairs else model
    if pairs and model.joined_text is None:
        raise UserError(f"--pairs: {run} is {model.kind} that reads one text; leave it out.")
    verbs: dict[str, tuple[Any, Any]] = {  # by the head: the verb, and the cells of one of its answers
        "class": (classes, one_label),
        "labels": (label_sets, several_labels),
        "number": (rate, number),
        "choice": (choose, choice),
    }
    able = model.task.head in verbs and model.predicts(model.task.head) and not model.module.config.numbers
    model.expect("classify", able)
    verb, cells = verbs[model.task.head]
    column = getattr(model.data, "text", "")
    texts = text_chunks(model, file, column=column) if model.joined_text is None else part_chunks(model, file)
    for chunk in texts:
        chunk.print_answers(verb(model, chunk.texts, reading.batch_tokens), json, cells)
