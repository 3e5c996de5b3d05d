"""Measures of `regard eval` for language models alone: --last-word, --running, --fill, --memory, --substitution."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from regard.cli.console import SafeConsole, counted, grid, notice
from regard.cli.lines import print_line
from regard.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.verbs import Loaded
    from regard.verbs.filling import FillAccuracy


@dataclass(frozen=True)
class TextMeasures:
    """Options: measurements of language models on texts."""

    running_text: Annotated[
        bool, typer.Option("--running", help="Read --data as one running text: perplexity, bits per byte and per word.")
    ] = False
    last_word: Annotated[
        bool,
        typer.Option(
            "--last-word", help="With --data FILE or --data lambada: how well the last word of each text is predicted."
        ),
    ] = False
    substitution: Annotated[
        bool,
        typer.Option(
            "--substitution", help="For context2vec: how well the context of a word ranks words that can replace it."
        ),
    ] = False
    stride: Annotated[
        int | None,
        typer.Option(help="With --running: by how many tokens a window moves on. Default: half of a window."),
    ] = None


def print_last_words(model: "Loaded", data: str, batch_tokens: int, json: bool) -> None:
    """--last-word: how well the model finds the last word of each text."""
    from regard.data.running_corpora import lambada
    from regard.verbs.scoring import last_words

    found = last_words(model, [one.text for one in lambada(data)], batch_tokens)
    scores = {"accuracy": found.accuracy, "perplexity": found.perplexity}
    if json:
        print_line({"run": model.path, "step": model.step, "data": data, "scores": scores, **asdict(found)})
        return
    rows = [["accuracy", f"{found.accuracy:.2%}"], ["perplexity of the word", f"{found.perplexity:.6g}"]]
    SafeConsole().print(grid(f"{model.path}: the last words of {found.texts:,} texts of {data}", ["", ""], rows))


def print_running(model: "Loaded", data: str, stride: int | None, batch_tokens: int, json: bool) -> None:
    """--running: perplexity, bits per byte and bits per word of one running text."""
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


def measure_fill(model: "Loaded", examples: "Sequence[Any]", batch_tokens: int) -> "FillAccuracy":
    """--fill: the accuracy of `fill` on texts, or on windows of a running text."""
    from regard.data.fields import running_field
    from regard.data.streams import encode_running, window_of
    from regard.verbs.filling import fill_accuracy

    tokenizer = model.target_tokenizer.in_direction("forward")
    special, most = tokenizer.special_tokens, model.longest
    if running_field(model.fields):
        (ids, _), window = encode_running(tokenizer, examples), window_of(model.recipe.data, most)  # type: ignore[union-attr]
        texts = [ids[at : at + window].tolist() for at in range(0, len(ids), window)]
    else:
        texts = [special.wrap_target(ids)[:most] for ids in tokenizer.encode_batch([one.text for one in examples])]
    return fill_accuracy(model, texts, batch_tokens)


def memory_lengths(model: "Loaded", given: str) -> list[int]:
    """--memory: the lengths that are given. Models without a memory of segments are refused."""
    if not model.module.config.memory:
        why = f"{model.kind} has no memory of earlier segments, only a Transformer-XL has one"
        raise UserError(f"--memory {given}: {why}; leave it out.")
    if not all(each.strip().isdecimal() for each in given.split(",")):
        raise UserError(f"--memory {given}: give numbers of tokens, such as 0,70,140.")
    return [int(each) for each in given.split(",")]


def measure_memories(
    model: "Loaded", examples: "Sequence[Any]", lengths: "Sequence[int]", batch_tokens: int
) -> dict[int, dict[str, float]]:
    """The loss and the perplexity of Transformer-XL with memories of other lengths, by the length."""
    from regard.training.evaluate import evaluate

    config, found = cast(Any, model.module.config), {}
    try:
        for length in lengths:
            model.module.config = replace(config, memory=length)
            found[length] = evaluate(model, examples, ("loss", "perplexity"), batch_tokens=batch_tokens).values
    finally:
        model.module.config = config
    return found


def print_substitution(model: "Loaded", json: bool) -> None:
    """--substitution: how well the context of a word ranks the words that can replace it."""
    from regard.verbs.substitution import substitution

    found = substitution(model)
    if json:
        print_line({"run": model.path, "step": model.step, **asdict(found)})
        return
    console = SafeConsole()
    rows = [
        [f"{one.sentence.before} [{one.sentence.word}] {one.sentence.after}", " ".join(one.candidates), str(one.rank)]
        for one in found.ranked
    ]
    console.print(grid("Candidates by their cosine with the context", ["sentence", "best first", "rank"], rows), "")
    scores = [
        ["mean reciprocal rank", f"{found.mrr:.3f}", f"{found.chance_mrr:.3f}"],
        ["precision at 1", f"{found.precision:.1%}", f"{found.chance_precision:.1%}"],
    ]
    title = f"{model.path}: lexical substitution in {len(found.ranked)} sentences"
    console.print(grid(title, ["", "", "chance"], scores))
    if found.unknown:
        skipped = f"; {found.skipped} sentences were skipped" if found.skipped else ""
        notice(f"{found.unknown} candidates are not in the vocabulary and were left out{skipped}")
