"""`regard generate`: the continuation of a prompt by a language model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import options
from regard.cli.console import counted, many, notice
from regard.cli.lines import chunks, count_unknown, numbered, print_line
from regard.errors import UserError, escape_controls

if TYPE_CHECKING:
    from regard.verbs import Generated, Loaded
    from regard.verbs.generating import GenerationOptions


Prompts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROMPT", help="The beginning of a text; without PROMPT, each line of standard input is one."
    ),
]
Temperature = Annotated[
    float, typer.Option(help="0: always the likeliest token; 1: tokens are drawn with their probabilities.")
]
TopK = Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens only.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the likeliest tokens whose probabilities sum to p.")]
Seed = Annotated[int, typer.Option(help="The seed of the drawn tokens; the same seed gives the same answers.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print each piece as it comes.")]
Long = Annotated[
    str,
    typer.Option(
        help="A prompt past the context: error, truncate (its beginning is kept) or window (its end; and an answer "
        "that reaches the end of the context continues from its last half)."
    ),
]


def generate(
    run: options.Run,
    prompts: Prompts = None,
    limit: options.Limit = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    beam: options.Beam = 1,
    nbest: options.Nbest = 1,
    *,
    ranking: options.Ranking,
    stream: Stream = False,
    json: options.Json = False,
    opening: options.Opening,
    batch_tokens: options.SearchTokens = None,
    long: Long = "error",
) -> None:
    """Continue prompts: each is printed with the text that a language model generates after it.

    An empty PROMPT is allowed if the model has a begin token; a blank line of standard input is answered by a blank
    line. The answer to a PROMPT may have several lines; the answer to a line of standard input is one line, in which a
    line end is written \\n. With --nbest every answer is followed by a tab and its score. --json has the exact texts,
    tokens and log-probabilities. Each prompt has draws of its own: its answer does not depend on the prompts beside it.
    A model trained with model.direction=backward writes what comes before a prompt: the prompt is the end of the text.

    \b
    Examples:
      regard generate runs/shakespeare "ROMEO:" --temperature 0.8 --top-k 40 --stream
      regard generate gpt2/ "The lighthouse keeper" "At noon" --limit 40
      regard generate gpt2/ --json --beam 4 < prompts.txt > answers.jsonl
      regard generate gpt2/ "Once" --temperature 1 --limit 5000 --long window
      regard generate hf:openai-community/gpt2 "Once" --download
    """
    from regard.models import reads_whole
    from regard.verbs.generating import GenerationOptions

    if stream and (json or beam > 1):
        raise UserError(
            f"--stream and {'--json' if json else '--beam'}: one prints during generation, one at its end; give one."
        )
    chosen = GenerationOptions(temperature, top_k, top_p, seed, limit, beam, ranking.with_coverage(), nbest)
    model = opening.open(run, long)
    model.expect("generate", not reads_whole(model.module.config))
    if stream and model.reads_backward:
        raise UserError("--stream: this model reads backward and writes the beginning last; leave --stream out.")
    cut = 0
    keep = "\n\t" if prompts else ""  # an answer to a line is one line
    for first, lines in count_unknown(model, [(1, prompts)] if prompts else chunks("-", bar=False)):
        if stream:
            cut += sum(_stream(model, line, chosen, number, keep) for number, line in enumerate(lines, first - 1))
            continue
        for number, answers in _answered(model, lines, chosen, batch_tokens, first - 1, empty=bool(prompts)):
            _print_answers(model, number + 1, answers, nbest > 1, keep, json)
            cut += sum(one.ended == "context" for one in answers)
    if cut:
        line = f"stopped at the model's context of {model.longest} tokens; --long window continues past it"
        notice(f"{many(cut, 'answer', 'answers')} {line}")


def _answered(
    model: "Loaded", lines: list[str], chosen: "GenerationOptions", batch_tokens: int | None, first: int, empty: bool
) -> "Iterator[tuple[int, list[Generated]]]":
    """The answers in the order of their prompts, each as soon as those before it are there.

    Blank prompts are continued if `empty`; else they have no answers.
    """
    from regard.verbs.generating import generate_unordered

    waiting: dict[int, list[Generated]] = {
        number: [] for number, line in enumerate(lines, first) if not (empty or line.strip())
    }
    prompts = {number: line for number, line in enumerate(lines, first) if number not in waiting}
    following = first
    with counted("prompts", len(prompts)) as count:
        for number, answers in generate_unordered(model, prompts, chosen, batch_tokens):
            count(1)
            waiting[number] = answers
            while following in waiting:
                yield following, waiting.pop(following)
                following += 1
    yield from waiting.items()  # if all lines are blank


def _print_answers(model: "Loaded", line: int, answers: "list[Generated]", scored: bool, keep: str, json: bool) -> None:
    """Print the answers to the prompt of a line; a prompt without answers is a blank line."""
    from regard.render.formatting import format_number

    for one in answers:
        score = [format_number(one.score)] if scored else []
        whole = one.text + one.prompt if model.reads_backward else one.prompt + one.text
        print_line(*([numbered(line, one)] if json else [whole, *score]), keep=keep)
    if not answers:
        print_line(numbered(line, None) if json else "")


def _stream(model: "Loaded", prompt: str, chosen: "GenerationOptions", number: int, keep: str) -> bool:
    """Print a prompt and its answer a piece at a time; whether the context cut it short."""
    from regard.verbs.generating import continuations, stream_pieces

    if not (prompt.strip() or keep):  # a blank line of standard input
        print(flush=True)
        return False
    (one,) = continuations(model, {number: prompt})
    print(escape_controls(one.prompt, keep), end="", flush=True)
    for piece in stream_pieces(model, one, chosen):
        print(escape_controls(piece.text, keep), end="", flush=True)
    print(flush=True)
    return one.ended == "context"
