"""What several commands share: options, each worded once, the model that they name, and the tables of kinds."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.completion import setting_names
from regard.file_io import check_writable
from regard.shipped import no_such_run, run_named

if TYPE_CHECKING:
    from regard import decode
    from regard.config import Kinds
    from regard.verbs import Loaded


def check_exists(run: Path) -> Path:
    """The directory of a model; a missing one is refused here, before torch is imported, which takes seconds."""
    in_steps = run.parent.name == "steps"  # a step may be in steps/.old
    if not (str(run).startswith("hf:") or run_named(run).exists() or in_steps):
        raise no_such_run(run)
    return run


def writable(context: typer.Context, out: Path | None) -> Path | None:
    """The directory to write; a place that cannot be written is refused here, before the work."""
    if out is not None and not context.resilient_parsing:  # not while a shell completes the command
        check_writable(out)
    return out


def writable_file(context: typer.Context, out: Path | None) -> Path | None:
    """The file to write; what is no plain file is refused, too."""
    if out is not None and not context.resilient_parsing:
        check_writable(out, is_file=True)
    return out


Run = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        callback=check_exists,
        help="A run, such as runs/dates, or a step of a run; the name of a model that comes with regard, such as dates "
        "(regard show lists them); the directory of a public checkpoint; hf:OWNER/NAME; or a "
        "file of word vectors.",
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
BatchTokens = Annotated[int, typer.Option(min=1, help="Padded tokens of a batch; fewer need less memory.")]
SearchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens", min=1, help="Padded tokens of a batch; fewer need less memory. Default: 8192, on a GPU 32768."
    ),
]
Split = Annotated[
    str | None, typer.Option(help="The part of the recipe's data: test (if there is one), valid or train.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Long = Annotated[
    str,
    typer.Option(
        help="A text that is longer than the model's limit: error (refuse it), truncate (keep its beginning) or window "
        "(keep its end)."
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Download hf:OWNER/NAME if it is not on this machine.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read pickled weights (tensors only) if a checkpoint has no others.")
]
Seed = Annotated[int | None, typer.Option(help="The seed of all random numbers: plan.seed.")]
Penalty = Annotated[
    float, typer.Option(help="Length penalty, 0 to 10: score = logp / length^penalty; 0 favours short answers.")
]
Formula = Annotated[str, typer.Option(help="power: length^penalty; gnmt: ((5 + length) / 6)^penalty.")]
Coverage = Annotated[
    float, typer.Option(help="Coverage penalty: this × Σ ln min(attention to a source token, 1) is added to a score.")
]
Stop = Annotated[str, typer.Option(help="When a beam search stops: present (the default of transformers) or exact.")]
Patience = Annotated[
    float,
    typer.Option(help="How many answers must have ended before a beam search stops, in multiples of the beam size."),
]
Limit = Annotated[
    int, typer.Option(min=1, help="The largest number of tokens of an answer, its end included (max new tokens).")
]
MaybeLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The largest number of tokens of an answer, its end included (max new tokens). Default: by the source.",
    ),
]
Nbest = Annotated[int, typer.Option(help="The number of answers for each line, at most the beam size.")]
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
    from regard.cli.console import notice
    from regard.verbs import load

    model = load(run, device, precision, long, allow_pickle, download, all_kinds())
    for line in model.warnings:
        notice(f"warning: {line}")
    return model


@dataclass(frozen=True)
class Opening:
    """Options: where a model runs, and what may be done to get it."""

    device: Device = "auto"
    precision: Precision = "auto"
    download: Download = False
    allow_pickle: AllowPickle = False

    def open(self, run: Path, long: str = "error") -> "Loaded":
        return opened(run, self.device, self.precision, long, self.download, self.allow_pickle)


@dataclass(frozen=True)
class Reading(Opening):
    """Options: how a model is opened, and how it reads texts."""

    batch_tokens: BatchTokens = 8192
    long: Long = "error"

    def open(self, run: Path, long: str = "") -> "Loaded":
        return super().open(run, long or self.long)


@dataclass(frozen=True)
class Ranking:
    """Options: how a beam search scores its answers, and when it stops."""

    penalty: Penalty = 1.0
    formula: Formula = "power"
    stop: Stop = "present"
    patience: Patience = 1.0

    def with_coverage(self, coverage: float = 0.0) -> "decode.Penalty":
        from regard import decode

        return decode.Penalty(self.penalty, self.formula, coverage, self.stop, self.patience)


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its groups of options, parameters that are dataclasses, as an option for each field."""
    parameters, groups = list[inspect.Parameter](), dict[str, Any]()
    for name, one in inspect.signature(command).parameters.items():
        if is_dataclass(one.annotation):
            groups[name] = one.annotation
            parameters += [
                one.replace(name=each.name, default=each.default, annotation=each.type)
                for each in fields(one.annotation)
            ]
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def help_of(command: Callable[..., None]) -> str:
    """A docstring with each paragraph on one line, to be wrapped where the terminal ends; examples stay as they are."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs)
