"""`regard eval`: how good a trained model is."""

from bisect import bisect_right
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Group

from regard.cli import options
from regard.cli.console import SafeConsole, grid, notice
from regard.cli.eval_lm import (
    TextMeasures,
    measure_fill,
    measure_memories,
    memory_lengths,
    print_last_words,
    print_running,
    print_substitution,
)
from regard.cli.eval_prompt import LabelRanking, print_prompted
from regard.cli.eval_words import WordMeasures, print_word_tests
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.decode import Penalty
    from regard.objectives import Exposure
    from regard.report.classes import ClassReport
    from regard.report.entities import EntityReport
    from regard.training.evaluate import Scores
    from regard.verbs import Loaded
    from regard.verbs.filling import FillAccuracy

GROUPS = 8  # of sources by their length
# The measurements and the other options that each of them takes; "" is the usual one, of examples. If several
# measurements are given, the first of the table is meant, and it takes the others or refuses them.
TAKES = {
    "substitution": (),
    "prompt": ("settings", "data", "split", "labels", "shots", "seed", "per_token", "calibrate"),
    "analogies": ("wordsim", "data", "most"),
    "wordsim": ("data",),
    "last_word": ("data",),
    "running_text": ("data", "stride"),
    "": (
        *("settings", "data", "split", "beam", "penalty", "formula", "coverage", "stop", "patience"),
        *("free_running", "by_length", "fill", "memory"),
    ),
}
ALWAYS = ("run", "json", "device", "precision", "batch_tokens", "download", "allow_pickle")  # options of all of them
PUBLIC = {
    "translate": ("bleu", "chrf"),
    "classify": ("accuracy",),
}  # the measures of a public checkpoint beside the loss, by its verb
FILLED_FROM = {
    "before": "from the text before the token",
    "after": "from the text after the token",
    "both": "from both: p(x | before) · p(x | after) / p(x)",
    "product": "from both, not divided by p(x)",
}  # what a masked token is predicted from, by the name in --json

# settings of --data beside the columns of fields
COLUMNS = ("column", "first", "second", "context", "choices", "least")


@dataclass(frozen=True)
class Source:
    """Options: the examples that a model is measured on."""

    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="data.NAME=VALUE",
            help="Where a file of the run is now, if it was moved: data.test=FILE. With --data: its columns, such as "
            "data.text=sentence. With --prompt also files: data.train=FILE.",
        ),
    ] = None
    data: Annotated[
        str | None, typer.Option(help="Your own file, in a format that the recipe reads: tabs, lines, .csv or .jsonl.")
    ] = None
    split: options.Split = None

    def needed(self, option: str, cure: str) -> str:
        """The text of --data, without which a measurement is refused."""
        if self.data is None:
            raise UserError(f"{option}: measures a text of your own; give {cure}.")
        return self.data


@dataclass(frozen=True)
class Parts:
    """Options: what is measured beside the scores of all examples."""

    free_running: Annotated[
        bool, typer.Option("--free-running", help="Also: loss and error by position, with and without teacher forcing.")
    ] = False
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Also: the metrics of short, medium and long sources apart.")
    ] = False
    fill: Annotated[
        bool,
        typer.Option("--fill", help="Also: how often a language model predicts a masked token (the accuracy of fill)."),
    ] = False
    memory: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="Also: the loss of Transformer-XL with memories of so many tokens."),
    ] = None


def evaluate(
    context: typer.Context,
    run: options.Run,
    *,
    source: Source,
    beam: options.Beam = 1,
    ranking: options.Ranking,
    coverage: options.Coverage = 0.0,
    parts: Parts,
    texts: TextMeasures,
    words: WordMeasures,
    labelling: LabelRanking,
    json: options.Json = False,
    opening: options.Opening,
    batch_tokens: options.BatchTokens = 8192,
) -> None:
    """Measure a trained model on its recipe's test set, or on examples of your own.

    For a classifier, precision, recall and F1 of each class and the confusion matrix are printed too; for a tagger,
    those of each type of entity, and the wrong entities with the highest probability. With --json, the keys of an
    object are those of what was measured (docs/command-line.md).

    An example that is longer than the model's limit is cut; the number of such examples is printed. With --free-running
    a second table shows exposure bias: how much worse the model is at each position when it reads its own tokens
    instead of the reference. With --running a language model predicts every token of a text from the tokens before it,
    in windows that overlap; a recurrent model or Transformer-XL carries its state instead (docs/data.md). With --fill
    every token of a text is masked in turn, and a language model predicts it from one side or from both. With
    --substitution a model of context2vec ranks words that could replace a word of a sentence; the sentences come with
    the library. With --wordsim and --analogies word vectors are measured: the rank correlation (Spearman) of cosines
    with judgements, and the right answers. With --prompt a language model classifies texts without training for it:
    labels are ranked by the log-probability of their words after the prompt, which may show examples first
    (docs/prompt.md).

    \b
    Examples:
      regard eval runs/dates
      regard eval runs/translate --data mine.tsv --beam 5 --json
      regard eval runs/classify --data test.csv
      regard eval runs/tag --data test.conll data.column=4
      regard eval sst2-bert --data dev.tsv data.text=sentence data.label=label
      regard eval runs/translate --data plain.tsv data.source= data.target=
      regard eval runs/dates --split valid --free-running
      regard eval runs/translate --by-length
      regard eval runs/ptb --fill
      regard eval runs/xl --memory 0,70,140
      regard eval gpt2/ --last-word --data lambada
      regard eval runs/context2vec --substitution
      regard eval gpt2/ --data book.txt --running --stride 256
      regard eval runs/word2vec --wordsim --analogies
      regard eval gpt2/ --prompt "{text} It was {label}" --labels terrible=0,great=1 --data dev.tsv
      regard eval vectors.bin --wordsim --data pairs.tsv
    """
    from regard.decode import Penalty

    measurement = _measurement(context)
    penalty = ranking.with_coverage(coverage)
    model = opening.open(run, "truncate")
    if not model.fields:
        model.expect("eval", model.predicts(model.task.head))
    match measurement:
        case "substitution":
            print_substitution(model, json)
        case "prompt":
            print_prompted(model, labelling, source.data, source.split, source.settings or [], batch_tokens, json)
        case "wordsim" | "analogies":
            print_word_tests(model, words, source.data, json)
        case "last_word":
            data = source.needed("--last-word", "--data lambada or --data FILE")
            print_last_words(model, data, batch_tokens, json)
        case "running_text":
            print_running(model, source.needed("--running", "--data FILE"), texts.stride, batch_tokens, json)
        case _:
            if model.task.head == "words":
                raise UserError(f"{run}: this is {model.kind}; give --wordsim, --analogies or both.")
            if (beam, penalty) != (1, Penalty(1.0)) and not model.module.config.reads_source:
                why = f"{run} is {model.kind}, which is evaluated without a search"
                raise UserError(f"--beam {beam}: {why}; leave out --beam and the options of its penalty.")
            if model.recipe is None:
                _ = model.target_tokenizer  # raises an error if the checkpoint has none
            name, examples = _examples(model, source)
            found = _measure(model, examples, beam, penalty, batch_tokens, parts)
            about = {"run": run, "step": model.step, "data": name, "examples": len(examples)}
            if json:
                search = {"beam": beam, "penalty": asdict(penalty)} if model.module.config.reads_source else {}
                print_line({**about, "truncated": found.truncated, **search, **found.to_json()})
            else:
                what = f"{run}, step {model.step}," if model.recipe else f"{run}"
                _print_tables(model, found, f"{what} on {len(examples):,} examples of {name}")


def _measurement(context: typer.Context) -> str:
    """The measurement that is asked for. An option that it does not take is refused."""
    options_of = {each.name or "": each.opts[0] for each in context.command.params}
    given = {}
    for name, option in options_of.items():
        source, value = context.get_parameter_source(name), context.params[name]
        if source is not None and source.name == "COMMANDLINE":
            stated = option if isinstance(value, bool) else f"{option} {value}"
            given[name] = value[0] if name == "settings" else stated
    found = next((name for name in TAKES if name in given), "")
    for name, option in given.items():
        if name not in (found, *TAKES[found], *ALWAYS):
            homes = [options_of[each] for each, takes in TAKES.items() if each and name in takes]
            cure = f"is not for {given[found]}; leave it out" if found else f"is for {' or '.join(homes)}; add that"
            raise UserError(f"{option}: {cure}.")
    return found


@dataclass(frozen=True)
class Measured:
    """The figures of one evaluation: the scores of all examples, and the parts that were asked for."""

    scores: "Scores"
    lengths: dict[str, dict[str, float]]  # the scores of each group of --by-length
    tasks: dict[str, tuple[int, dict[str, float]]]  # of a corpus with several: the examples and the scores of each
    exposure: "Exposure | None"  # of --free-running
    classes: "ClassReport | None"  # of a classifier
    entities: "EntityReport | None"  # of a tagger
    filled: "FillAccuracy | None"  # of --fill
    memories: dict[int, dict[str, float]]  # the scores with each length of --memory
    chance: str  # the scores of guesses, as sentences; empty where none is known
    truncated: int  # examples past the model's limit

    def to_json(self) -> dict[str, Any]:
        """The figures as `regard eval --json` prints them; a part that was not measured has no key."""
        parts = {
            "lengths": self.lengths,
            "tasks": {name: {"examples": count, "scores": values} for name, (count, values) in self.tasks.items()},
            "exposure": self.exposure and asdict(self.exposure),
            "fill": self.filled and {"tokens": self.filled.tokens, **self.filled.accuracy},
            "memory": self.memories,
            "classes": self.classes and self.classes.to_json(),
            "entities": self.entities and self.entities.to_json(),
        }
        always = {"scores": self.scores.values, "notes": self.scores.notes, "chance": self.chance}
        return always | {name: part for name, part in parts.items() if part}


def _measure(
    model: "Loaded",
    examples: "Sequence[Any]",
    beam: int,
    ranking: "Penalty",
    batch_tokens: int,
    parts: Parts,
) -> Measured:
    from regard.report.classes import class_report
    from regard.report.entities import entity_report
    from regard.training.chance import describe_chance
    from regard.training.evaluate import TOKEN_HEADS, evaluate, task_scores, truncated

    own = model.recipe.metrics if model.recipe else PUBLIC.get(model.task.verb, ())
    metrics = ("loss", *(["perplexity"] if model.task.head in TOKEN_HEADS else []), *own)
    memories = [] if parts.memory is None else memory_lengths(model, parts.memory)
    groups = _by_length(model, examples) if parts.by_length else {}
    return Measured(
        evaluate(model, examples, metrics, beam, ranking, batch_tokens),
        {span: evaluate(model, some, metrics, beam, ranking, batch_tokens).values for span, some in groups.items()},
        task_scores(model, examples, metrics, beam, ranking, batch_tokens),
        _exposure(model, examples, batch_tokens) if parts.free_running else None,
        class_report(model, examples, batch_tokens),
        entity_report(model, examples, batch_tokens),
        measure_fill(model, examples, batch_tokens) if parts.fill else None,
        measure_memories(model, examples, memories, batch_tokens),
        describe_chance(model, examples),
        truncated(model, examples),
    )


def _print_tables(model: "Loaded", found: Measured, title: str) -> None:
    from regard.render.terminal import sections_text
    from regard.report.figures import find_metric
    from regard.report.run import task_table

    console = SafeConsole()
    metrics = {name: find_metric(name, model.metrics) for name in found.scores.values}
    rows = [
        [metrics[name].title, metrics[name].show(value), found.scores.notes.get(name, "")]
        for name, value in found.scores.values.items()
    ]
    console.print(grid(title, ["", "", ""], rows))
    if found.chance:
        console.print(found.chance)
    if found.truncated:
        notice(f"{found.truncated:,} of them are past the model's {model.longest} tokens and were cut")
    if found.tasks:
        console.print("", sections_text([task_table(found.tasks, model.metrics)]))
    if found.classes:
        tables = (found.classes.table(), found.classes.confusion_table(), found.classes.mistakes())
        console.print("", sections_text([table for table in tables if table]))
    if found.entities:
        console.print("", sections_text(found.entities.tables()))
    if found.lengths:
        rows = [
            [span, *(metrics[name].show(value) for name, value in values.items())]
            for span, values in found.lengths.items()
        ]
        columns = ["tokens", *(metric.title for metric in metrics.values())]
        console.print("", grid("By length of the source, in tokens", columns, rows))
    if found.exposure:
        console.print("", _by_position(found.exposure))
    if found.filled:
        rows = [[FILLED_FROM[side], f"{value:.2%}"] for side, value in found.filled.accuracy.items()]
        title = f"Accuracy of fill: {found.filled.tokens:,} tokens, each masked in turn"
        console.print("", grid(title, ["", ""], rows))
    if found.memories:
        rows = [
            [str(length), *(metrics[name].show(value) for name, value in values.items())]
            for length, values in found.memories.items()
        ]
        console.print("", grid("By length of the memory, in tokens", ["tokens", "loss", "perplexity"], rows))


def _examples(model: "Loaded", source: Source) -> "tuple[str, Sequence[Any]]":
    """The name of the data, and its examples."""
    from regard.data.run_files import read_elsewhere

    data, split, settings = source.data, source.split, source.settings or []
    if data is not None and split is not None:
        raise UserError(f"--data {data} and --split {split}: a file of your own has no parts; give one of them.")
    if data is not None:
        return data, _own_examples(model, data, settings)
    model = _with_files(model, settings)
    found = model.examples(split)
    for note in read_elsewhere(model.data, model.located_data):
        notice(note)
    return found


def _with_files(model: "Loaded", settings: "Sequence[str]") -> "Loaded":
    """The model with its run's data where settings such as data.test=PATH say, and only there, that its files are."""
    from regard.config import override
    from regard.data.run_files import named_paths, only_as_named

    if not settings:
        return model
    named = [] if model.recipe is None else [name for name, _ in named_paths(model.recipe.data)]
    known = named if model.files is None else [*model.files]
    for setting in settings:
        if setting.partition("=")[0] not in known:
            files = f"no file that this run was started with (those are {', '.join(known)})" if known else "not known"
            raise UserError(f"{setting}: {files}; a column of your own file is named beside --data FILE.")
    assert model.recipe is not None
    stated = [setting.partition("=")[0] for setting in settings]
    there = None if model.files is None else only_as_named(model.files, stated)
    return replace(model, recipe=override(model.recipe, settings, model.kinds), files=there)


def _own_examples(model: "Loaded", data: str, settings: "Sequence[str]") -> "Sequence[Any]":
    """The examples of the user's file, in the columns that settings such as data.text=sentence name.

    The file is read like the files of the run if it had such files, else as its task reads them.
    """
    from regard.checks.adapters import FILES, OWN_FILES
    from regard.config import override
    from regard.data.fields import EntityTags, LabelField, TagsField
    from regard.data.labelled import check_labels
    from regard.data.sources import Lines
    from regard.entities import detect_scheme

    own = model.data
    if not isinstance(own, OWN_FILES):
        own = FILES.get(model.task.head, Lines)()
    classes = next((each for each in model.fields.values() if isinstance(each, LabelField)), None)
    if isinstance(classes, EntityTags) and model.data is None:  # the scheme of a public checkpoint is that of its tags
        own = replace(own, scheme="bioes" if detect_scheme([classes.names]) == "bioes" else "iob2")
    columns = [each.name for each in fields(own) if each.name in (*model.fields, *COLUMNS)]
    named = dict(setting.removeprefix("data.").partition("=")[::2] for setting in settings)
    for setting, name in zip(settings, named):
        if not setting.startswith("data.") or "=" not in setting or name not in columns:
            known = " or ".join(f"data.{each}=COLUMN" for each in columns) or "none: this file has no columns"
            cure = f"give {known}, or an empty name for a file without a header"
            raise UserError(f"{setting}: not a column of the examples; {cure}.")
    own = override(replace(own, train=data, valid=data, test=""), [f"{key}={name}" for key, name in named.items()], {})
    examples: Sequence[Any] = own.load().valid  # of pairs with numbers, training reads those that belong together
    if isinstance(classes, EntityTags):
        _check_tags(data, [tag for one in examples for tag in one.tags], classes.names)
    elif classes is not None and not isinstance(classes, TagsField):
        check_labels(data, own.columns, classes.names)
    return examples


def _check_tags(data: str, tags: "Sequence[str]", known: "Sequence[str]") -> None:
    """Print the tags of a file that the model cannot predict; if it can predict none, refuse the file."""
    unseen = [tag for tag in tags if tag not in known]
    listed = ", ".join(sorted(set(unseen))[:8]) + ", …" * (len(set(unseen)) > 8)
    if unseen and len(unseen) == len(tags):
        cure = f"give a file with tags such as {', '.join(known[:3])}, or name their column with data.column=N"
        raise UserError(f"--data {data}: the model can predict none of its tags ({listed}); {cure}.")
    if unseen:
        notice(
            f"{data}: {len(unseen):,} of {len(tags):,} words have tags that the model cannot predict ({listed}); they "
            "count as mistakes, but not in the loss"
        )


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


def _exposure(model: "Loaded", examples: "Sequence[Any]", batch_tokens: int) -> "Exposure":
    from regard.objectives import exposure
    from regard.objectives.objective import CausalModel
    from regard.training.evaluate import evaluation_batches

    if not model.module.config.causal:
        raise UserError(f"--free-running: {model.kind} generates no text that it could read; leave it out.")
    batches = evaluation_batches(model, examples, batch_tokens)
    with model.autocast():
        return exposure(cast(CausalModel, model.module), (batch.to(model.device) for batch in batches))


def _by_position(found: "Exposure") -> Group:
    columns = ("position", "targets", "loss, forced", "loss, free", "error, forced", "error, free")
    losses = zip(found.forced_loss, found.free_loss)
    errors = zip(found.forced_error, found.free_error)
    rows = [
        [str(position), f"{count:,}", *(f"{value:.4f}" for value in loss), *(f"{value:.2%}" for value in error)]
        for position, (count, loss, error) in enumerate(zip(found.count, losses, errors), 1)
    ]
    return grid("By position of the target", columns, rows)
