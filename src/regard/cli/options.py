"""What several commands share: options, each worded once, the model that they name, and the tables of kinds."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.completion import setting_names
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.config import Kinds
    from regard.verbs import Loaded


def check_exists(run: Path) -> Path:
    """The directory of a model; a missing one is refused here, before torch is imported, which takes seconds."""
    if not (str(run).startswith("hf:") or run.exists() or run.parent.name == "steps"):  # a step may be in steps/.old
        raise UserError(f"{run}: no such directory; name a run, such as runs/dates.")
    return run


Run = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        callback=check_exists,
        help="A run, such as runs/dates, or a step of it; a public checkpoint's folder; hf:OWNER/NAME; or a file of "
        "word vectors.",
    ),
]
File = Annotated[str, typer.Argument(metavar="FILE", help="A text file, UTF-8; - or nothing: standard input.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SETTING=VALUE", help="Changes to the recipe: plan.steps=400.", autocompletion=setting_names
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (bf16 on a GPU that supports it, else float32), float32 or bf16.")]
MaybeDevice = Annotated[str | None, typer.Option(help="auto, cpu or cuda: plan.device.")]
MaybePrecision = Annotated[str | None, typer.Option(help="auto, float32 or bf16: plan.precision.")]
MaybeBatchTokens = Annotated[int | None, typer.Option(min=2, help="Padded tokens of a batch: plan.batch_tokens.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Padded tokens of a batch: less needs less memory.")]
SearchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens", min=1, help="Padded tokens of a batch: less needs less memory; else 8192, on a GPU 32768."
    ),
]
Split = Annotated[str | None, typer.Option(help="Of the recipe's data: test (if there is one), valid, train.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Long = Annotated[
    str,
    typer.Option(
        help="Truncation of a text past the model's limit: error (none), truncate (keeps its beginning) or window (its "
        "end)."
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch hf:OWNER/NAME where it is not on this machine.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read pickled weights where a checkpoint has no others: tensors only.")
]
Seed = Annotated[int | None, typer.Option(help="Of everything random: plan.seed.")]
Penalty = Annotated[
    float, typer.Option(help="Length penalty, 0 to 10: score = logp / length^penalty; 0 favours short answers.")
]
Formula = Annotated[str, typer.Option(help="power: length^penalty; gnmt: ((5 + length) / 6)^penalty.")]
Coverage = Annotated[float, typer.Option(help="Added to a score: this × Σ ln min(attention to a source token, 1).")]
Stop = Annotated[str, typer.Option(help="When a beam stops: present (as transformers does by default) or exact.")]
Patience = Annotated[float, typer.Option(help="Answers that must have ended before a beam stops, in multiples of it.")]
Limit = Annotated[int, typer.Option(min=1, help="The most tokens of an answer, its end included (max new tokens).")]
MaybeLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The most tokens of an answer, its end included (max new tokens); else twice the source's, and some.",
    ),
]
Nbest = Annotated[int, typer.Option(help="Answers for each line, at most as many as the beam.")]
Beam = Annotated[int, typer.Option(help="Beam size: hypotheses kept at each step; 1 decodes greedily.")]

_ADDED: "ContextVar[Kinds | None]" = ContextVar("kinds", default=None)


@contextmanager
def added(kinds: "Kinds | None") -> Iterator[None]:
    """Inside, commands know the kinds of a user's own tables beside ours."""
    token = _ADDED.set(kinds)
    try:
        yield
    finally:
        _ADDED.reset(token)


def all_kinds() -> "Kinds":
    """Our tables of kinds, with those that were added."""
    from regard.recipes import with_kinds

    return with_kinds(_ADDED.get())


def opened(
    run: Path,
    device: str = "auto",
    precision: str = "auto",
    long: str = "error",
    download: bool = False,
    allow_pickle: bool = False,
) -> "Loaded":
    """A run, a public checkpoint or `hf:NAME`, loaded for use."""
    from regard.verbs import load

    return load(run, device, precision, long, allow_pickle, download, all_kinds())


def help_of(command: Callable[..., None]) -> str:
    """A docstring with each paragraph on one line, to be wrapped where the terminal ends; examples stay as they are."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs)
