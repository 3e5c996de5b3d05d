"""The commands in one table, and what becomes of a mistake: one line on stderr, exit code 2."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard.cli.align import align
from regard.cli.answer import answer
from regard.cli.caption import caption
from regard.cli.classify import classify
from regard.cli.completion import plan_settings
from regard.cli.console import INTERRUPTED, MISTAKE, discard, notice
from regard.cli.doctor import doctor
from regard.cli.embed import embed
from regard.cli.eval import evaluate
from regard.cli.explain import explain
from regard.cli.export import export
from regard.cli.fill import fill
from regard.cli.generate import generate
from regard.cli.ladder import ladder
from regard.cli.look import look
from regard.cli.neighbours import neighbours
from regard.cli.options import added, help_of, ungrouped
from regard.cli.score import score
from regard.cli.show import show
from regard.cli.similarity import similarity
from regard.cli.tag import tag
from regard.cli.train import train
from regard.cli.translate import translate
from regard.errors import UserError, is_out_of_memory, shorten
from regard.synonyms import OPTIONS, SETTINGS, ours
from regard.version import __version__

if TYPE_CHECKING:
    from regard.config import Kinds

ClickError = typer.BadParameter.__mro__[2]  # typer carries a click of its own or uses the installed one

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Learn": {"show": show, "train": train, "eval": evaluate, "ladder": ladder},
    "Use": {
        "translate": translate,
        "caption": caption,
        "generate": generate,
        "fill": fill,
        "embed": embed,
        "neighbours": neighbours,
        "classify": classify,
        "similarity": similarity,
        "tag": tag,
        "answer": answer,
        "score": score,
        "align": align,
        "export": export,
    },
    "Look": {"look": look, "doctor": doctor},
}


def _plain_flags(params: list[Any]) -> list[Any]:
    """The parameters of a command, of which the help shows flags without a type."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class PlainCommand(TyperCommand):
    """A command whose help shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain_flags(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose help shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain_flags(super().get_params(ctx))


app = typer.Typer(
    cls=PlainGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=PlainCommand, rich_help_panel=panel, help=help_of(command))(ungrouped(command))
# Its --help is its own: it explains a topic.
app.command("explain", rich_help_panel="Look", help=help_of(explain), add_help_option=False)(explain)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (REGARD_DEBUG=1 too).")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version)] = False,
) -> None:
    """[bold]Attention, from Bahdanau to BERT: train it, run it, look inside.[/]

    \b
    A first minute:
      regard look dates "3 février 2021"
      regard show
      regard train dates
    """


_GROUP = typer.main.get_command(app)  # built once: it takes longer than many commands


def run_command(arguments: Sequence[str] | None = None, kinds: "Kinds | None" = None) -> int:
    """Run one command; the exit code, as `regard.cli.main` returns it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed from the start (>&-): print(file=None) would write to the other one
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    debug = "--debug" in arguments or bool(os.environ.get("REGARD_DEBUG"))
    try:
        with added(kinds):
            code = _GROUP([word for word in arguments if word != "--debug"], prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.Abort:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        discard(sys.stdout)  # the reader closed the pipe; rich and click turn that into an exit
        return 0
    except Exception as error:
        line = _message(error)
        if line is None or debug:
            raise
        notice(shorten(f"error: {line}"))
        if isinstance(error, OSError):
            discard(sys.stdout)
        return MISTAKE


def _meant(error: Exception) -> str:
    """Our option or setting for an option of another library that a command does not have; empty if there is none."""
    name, ctx = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if name is None or ctx is None:
        return ""
    own = {option: param for param in ctx.command.params for option in param.opts}
    found = [option for option in ours(name, OPTIONS) if option in own]
    if any(param.name == "settings" for param in ctx.command.params) and "--data" not in own:
        word = name.lstrip("-").replace("-", "_")
        settings = [f"plan.{word}"] if word in plan_settings() else ours(name, SETTINGS)
        found += [f"the setting {setting}=VALUE" for setting in settings]
        found += [option for option in ours(name, OPTIONS) if "=" in option]
    return " or ".join(found or [f"the setting {setting} of regard train" for setting in ours(name, SETTINGS)])


def _message(error: Exception) -> str | None:
    """One line about an error that the user can fix; None for an error of the library."""
    if isinstance(error, UserError):
        return " ".join(str(error).split("\n"))
    if isinstance(error, ClickError):
        if meant := _meant(error):
            return f"No such option: {getattr(error, 'option_name', '')}. Did you mean {meant}? Try --help."
        line = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
        return f"{line}{'' if line.endswith(('.', '?')) else '.'} Try --help."
    if is_out_of_memory(error):
        on_gpu = type(error).__name__ == "OutOfMemoryError"
        cure = "choose --device cpu" if on_gpu else "give less text at a time, or use a smaller model"
        return f"out of memory; lower --batch-tokens (plan.batch_tokens), or {cure}."
    if isinstance(error, OSError):
        cures = {
            errno.ENOSPC: "free some space",
            errno.EDQUOT: "free some space",
            errno.EACCES: "check its permissions",
        }
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}; {cures.get(error.errno or 0, 'check its name and place')}."
    return None
