"""`regard eval`: how good a trained model is."""

from bisect import bisect_right
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group

from regard.cli import options
from regard.cli.console import SafeConsole, counted, grid, notice
from regard.cli.lines import print_line
from regard.errors import UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.objectives import Exposure
    from regard.verbs import Loaded
    from regard.verbs.filling import FillAccuracy

GROUPS = 8  # of sources by their length
SPLITS = ("test", "valid", "train")
PUBLIC = {
    "translate": ("bleu", "chrf"),
    "classify": ("accuracy",),
}  # the measures of a public checkpoint beside the loss, by its verb

Columns = Annotated[
    list[str] | None,
    typer.Argument(metavar="data.COLUMN=NAME", help="Of --data: its columns, such as data.text=sentence."),
]
Data = Annotated[
    str | None, typer.Option(help="Your own file, in a format that the recipe reads: tabs, lines, .csv or .jsonl.")
]
Split = Annotated[str | None, typer.Option(help="Of the recipe's data: test (if there is one), valid, train.")]
FreeRunning = Annotated[
    bool, typer.Option("--free-running", help="Also: loss and error by position, with and without teacher forcing.")
]
ByLength = Annotated[
    bool, typer.Option("--by-length", help="Also: the measures of short, middling and long sources apart.")
]
Fill = Annotated[
    bool, typer.Option("--fill", help="Also: how often a language model finds a masked token (the accuracy of fill).")
]
Running = Annotated[
    bool, typer.Option("--running", help="Read --data as one running text: perplexity, bits per byte and per word.")
]
LastWord = Annotated[
    bool,
    typer.Option("--last-word", help="Of --data FILE or --data lambada: how well the last word of each text is found."),
]
Stride = Annotated[
    int | None,
    typer.Option(help="Of --running: the tokens by which a window of the text moves on; else half of a window."),
]


def evaluate(
    run: options.Run,
    settings: Columns = None,
    data: Data = None,
    split: Split = None,
    beam: options.Beam = 1,
    penalty: options.Penalty = 1.0,
    formula: options.Formula = "power",
    coverage: options.Coverage = 0.0,
    stop: options.Stop = "present",
    patience: options.Patience = 1.0,
    free_running: FreeRunning = False,
    by_length: ByLength = False,
    fill: Fill = False,
    running: Running = False,
    last_word: LastWord = False,
    stride: Stride = None,
    json: options.Json = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    batch_tokens: options.BatchTokens = 8192,
    download: options.Download = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Measure a trained model on its recipe's test set, or on examples of your own.

    Of a classifier come precision, recall and F1 of each class and the confusion matrix.

    An example past the model's limit is cut; the number of such examples is printed. With --free-running a second table
    shows exposure bias: how much worse the model is at each position when it reads its own tokens instead of the
    reference. With --running a language model predicts every token of a text from the tokens before it, in windows that
    overlap; a recurrent model or Transformer-XL carries its state instead (docs/data.md). With --fill
    every token of a text is masked in turn, and a language model predicts it from one side or from both.

    \b
    Examples:
      regard eval runs/dates
      regard eval runs/translate --data mine.tsv --beam 5 --json
      regard eval runs/classify --data test.csv
      regard eval sst2-bert --data dev.tsv data.text=sentence data.label=label
      regard eval runs/translate --data plain.tsv data.source= data.target=
      regard eval runs/dates --split valid --free-running
      regard eval runs/translate --by-length
      regard eval runs/ptb --fill
      regard eval gpt2/ --last-word --data lambada
      regard eval gpt2/ --data book.txt --running --stride 256
    """
    from regard.decode import Penalty
    from regard.render.terminal import sections_text
    from regard.report.classes import class_report
    from regard.report.figures import find_metric
    from regard.training.evaluate import evaluate as measure
    from regard.training.evaluate import truncated

    ranking = Penalty(penalty, formula, coverage, stop, patience)
    if stride is not None and not running:
        raise UserError(f"--stride {stride}: is for --running; add that, or leave it out.")
    model = options.opened(run, device, precision, "truncate", download, allow_pickle)
    if last_word:
        if data is None or split or settings or free_running or by_length or fill or running:
            raise UserError("--last-word: measures the texts of --data alone; give --data lambada, or --data FILE.")
        _print_last_words(model, data, batch_tokens, json)
        return
    if running:
        if (
            data is None
            or split
            or settings
            or free_running
            or by_length
            or fill
            or (beam, ranking) != (1, Penalty(1.0))
        ):
            raise UserError("--running: measures one text, FILE of --data, and nothing else; give --data FILE alone.")
        _print_running(model, data, stride, batch_tokens, json)
        return
    if (beam, ranking) != (1, Penalty(1.0)) and not model.module.config.reads_source:
        why = f"{run} is {model.kind}, which is evaluated without a search"
        raise UserError(f"--beam {beam}: {why}; leave out --beam and the options of its penalty.")
    name, examples = _examples(model, data, split, settings or [])
    own = model.recipe.metrics if model.recipe else PUBLIC.get(model.task.verb, ())
    metrics = ("loss", *([] if model.module.config.one_per_text else ["perplexity"]), *own)
    scores = measure(model, examples, metrics, beam, ranking, batch_tokens)
    groups = _by_length(model, examples) if by_length else {}
    lengths = {span: measure(model, some, metrics, beam, ranking, batch_tokens).values for span, some in groups.items()}
    exposure = _exposure(model, examples, batch_tokens) if free_running else None
    classes = class_report(model, examples, batch_tokens)
    filled = _fill_accuracy(model, examples, batch_tokens) if fill else None
    cut = truncated(model, examples)
    if json:
        about = {"run": run, "step": model.step, "data": name, "examples": len(examples), "truncated": cut}
        more = {"lengths": lengths, "exposure": exposure and asdict(exposure)}
        by_class = {"classes": classes and classes.to_json()}
        more |= {"fill": {"tokens": filled.tokens, **filled.accuracy}} if filled else {}
        how = {"beam": beam, "penalty": asdict(ranking)}
        print_line({**about, **how, "scores": scores.values, "notes": scores.notes, **more, **by_class})
        return
    console = SafeConsole()
    what = f"{run}, step {model.step}," if model.recipe else f"{run}"
    found = {each: find_metric(each, model.metrics) for each in scores.values}
    rows = [
        [found[each].title, found[each].show(value), scores.notes.get(each, "")]
        for each, value in scores.values.items()
    ]
    console.print(grid(f"{what} on {len(examples):,} examples of {name}", ["", "", ""], rows))
    if cut:
        notice(f"{cut:,} of them are past the model's {model.longest} tokens and were cut")
    if classes:
        tables = (classes.table(), classes.confusion_table())
        console.print("", sections_text([table for table in tables if table]))
    if lengths:
        rows = [
            [span, *(found[each].show(value) for each, value in values.items())] for span, values in lengths.items()
        ]
        columns = ["tokens", *(metric.title for metric in found.values())]
        console.print("", grid("By length of the source, in tokens", columns, rows))
    if exposure:
        console.print("", _by_position(exposure))
    if filled:
        rows = [[f"from {name}", f"{value:.2%}"] for name, value in filled.accuracy.items()]
        console.print("", grid(f"Accuracy of fill: {filled.tokens:,} tokens, each masked in turn", ["", ""], rows))


def _print_last_words(model: "Loaded", data: str, batch_tokens: int, json: bool) -> None:
    from regard.data.running_corpora import lambada
    from regard.verbs.scoring import last_words

    found = last_words(model, [one.text for one in lambada(data)], batch_tokens)
    scores = {"accuracy": found.accuracy, "perplexity": found.perplexity}
    if json:
        print_line({"run": model.path, "step": model.step, "data": data, "scores": scores, **asdict(found)})
        return
    rows = [["accuracy", f"{found.accuracy:.2%}"], ["perplexity of the word", f"{found.perplexity:.6g}"]]
    SafeConsole().print(grid(f"{model.path}: the last words of {found.texts:,} texts of {data}", ["", ""], rows))


def _print_running(model: "Loaded", data: str, stride: int | None, batch_tokens: int, json: bool) -> None:
    from regard.data.streams import Book
    from regard.verbs.running import score_running

    text = Book(train=data, valid=data, valid_tokens=0).load().train
    with counted("tokens", prints=False) as count:
        found = score_running(model, text, stride, batch_tokens, count)
    scores = {
        "perplexity": found.perplexity,
        "bits_per_byte": found.bits_per_byte,
        "bits_per_word": found.bits_per_word,
        "word_perplexity": found.word_perplexity,
    }
    if json:
        print_line({"run": model.path, "step": model.step, "data": data, "scores": scores, **asdict(found)})
        return
    how = "the state is carried" if found.stride is None else f"windows of {found.window}, stride {found.stride}"
    words = f"{found.words:,} words"
    notes = (f"{found.tokens:,} tokens, {how}", f"{found.bytes:,} bytes of UTF-8", words, words)
    names = ("perplexity of a token", "bits per byte", "bits per word", "perplexity of a word")
    rows = [[name, f"{value:.6g}", note] for name, value, note in zip(names, scores.values(), notes)]
    console = SafeConsole()
    console.print(grid(f"{model.path} on the running text {data}", ["", "", ""], rows))
    if found.unknown:
        notice(f"{found.unknown:,} of the tokens are not in the vocabulary, so the figures are too low")


def _examples(
    model: "Loaded", data: str | None, split: str | None, settings: "Sequence[str]"
) -> "tuple[str, Sequence[Any]]":
    """The name of the data, and its examples."""
    if data is not None and split is not None:
        raise UserError(f"--data {data} and --split {split}: a file of your own has no parts; give one of them.")
    if data is not None:
        return data, _own_examples(model, data, settings)
    if settings:
        raise UserError(f"{settings[0]}: names a column of a file of your own; give it with --data FILE.")
    if split is not None and split not in SPLITS:
        raise UserError(f"--split {split}: no such part.{nearest(split, SPLITS)}")
    if model.recipe is None:
        raise UserError(f"{model.path}: a public checkpoint comes without data; give --data FILE.")
    corpus = model.recipe.data.load()
    name = split or ("test" if corpus.test else "valid")
    examples: Sequence[Any] = getattr(corpus, name)
    if not examples:
        raise UserError(f"--split {name}: {model.recipe.name} has no such examples; give --data FILE.")
    return name, examples


def _own_examples(model: "Loaded", data: str, settings: "Sequence[str]") -> "Sequence[Any]":
    """The examples of the user's file, in the columns that settings such as data.text=sentence name.

    The file is read like the files of the run if it had such files, else as its task reads them.
    """
    from regard.checks.adapters import FILES
    from regard.data.fields import LabelField
    from regard.data.labelled import check_labels
    from regard.data.sources import Lines
    from regard.data.streams import Book

    own: Any = model.recipe and model.recipe.data
    if not isinstance(own, (*FILES.values(), Lines, Book)):
        own = FILES.get(model.task.head, Lines)()
    columns = [each.name for each in fields(own) if each.name in model.fields]
    named = dict(setting.removeprefix("data.").partition("=")[::2] for setting in settings)
    for setting, name in zip(settings, named):
        if not setting.startswith("data.") or "=" not in setting or name not in columns:
            known = " or ".join(f"data.{each}=COLUMN" for each in columns) or "none: this file has no columns"
            cure = f"give {known}, or an empty name for a file without a header"
            raise UserError(f"{setting}: not a column of the examples; {cure}.")
    own = replace(own, train=data, valid=data, test="", **named)
    examples: Sequence[Any] = own.load().train
    classes = next((each for each in model.fields.values() if isinstance(each, LabelField)), None)
    if classes is not None:
        check_labels(data, own.columns, classes.names)
    return examples


def _by_length(model: "Loaded", examples: "Sequence[Any]") -> "dict[str, list[Any]]":
    """The examples in groups of about the same number, from short to long, each called by its lengths."""
    first = next(iter(model.fields))  # the source, or the only text there is
    lengths = [len(row[first]) for row in model.encode(examples)]
    ranked = sorted(lengths)
    edges = sorted({ranked[len(ranked) * part // GROUPS] for part in range(1, GROUPS)})
    groups: dict[int, list[int]] = {}
    for row, length in sorted(enumerate(lengths), key=lambda item: item[1]):
        groups.setdefault(bisect_right(edges, length), []).append(row)
    spans = {f"{lengths[rows[0]]}-{lengths[rows[-1]]}": rows for rows in groups.values()}
    return {span: [examples[row] for row in rows] for span, rows in spans.items()}


def _fill_accuracy(model: "Loaded", examples: "Sequence[Any]", batch_tokens: int) -> "FillAccuracy":
    """The accuracy of `fill` on texts, or on windows of a running text."""
    from regard.data.streams import encode_running, window_of
    from regard.training.evaluate import running_text
    from regard.verbs.filling import fill_accuracy

    tokenizer = model.target_tokenizer.in_direction("forward")
    special, most = tokenizer.special_tokens, model.longest
    if running_text(model) is not None:
        (ids, _), window = encode_running(tokenizer, examples), window_of(model.recipe.data, most)  # type: ignore[union-attr]
        texts = [ids[at : at + window].tolist() for at in range(0, len(ids), window)]
    else:
        texts = [special.wrap_target(ids)[:most] for ids in tokenizer.encode_batch([one.text for one in examples])]
    return fill_accuracy(model, texts, batch_tokens)


def _exposure(model: "Loaded", examples: "Sequence[Any]", batch_tokens: int) -> "Exposure":
    from regard.data.batches import collate
    from regard.objectives import exposure
    from regard.objectives.objective import CausalModel
    from regard.training.evaluate import encoded
    from regard.verbs.forced import grouped

    if not model.module.config.causal:
        raise UserError(f"--free-running: {model.kind} generates no text that it could read; leave it out.")
    rows = encoded(model, examples)
    groups = grouped([max(map(len, row.values())) for row in rows], batch_tokens)
    batches = (collate([rows[at] for at in group], model.task).to(model.device) for group in groups)
    with model.autocast():
        return exposure(cast(CausalModel, model.module), batches)


def _by_position(found: "Exposure") -> Group:
    columns = ("position", "targets", "loss, forced", "loss, free", "error, forced", "error, free")
    losses = zip(found.forced_loss, found.free_loss)
    errors = zip(found.forced_error, found.free_error)
    rows = [
        [str(position), f"{count:,}", *(f"{value:.4f}" for value in loss), *(f"{value:.2%}" for value in error)]
        for position, (count, loss, error) in enumerate(zip(found.count, losses, errors), 1)
    ]
    return grid("By position of the target", columns, rows)
