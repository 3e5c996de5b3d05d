"""`regard explain TOPIC`: a group of commands, one file per topic, each of which runs a small experiment."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from regard.cli.options import help_of
from regard.cli.topics import attention, gradients, heads, layers, masking, positions, residuals, scaling
from regard.errors import UserError, nearest

TOPICS: dict[str, dict[str, Callable[..., None]]] = {
    "Attention": {
        "attention": attention.command,
        "scaling": scaling.command,
        "masking": masking.command,
        "heads": heads.command,
    },
    "The Transformer": {"positions": positions.command, "residuals": residuals.command},
    "Comparison with other layers": {"layers": layers.command, "gradients": gradients.command},
}


class Topics(TyperGroup):
    """The topics as commands. Without a topic, it lists them; for an unknown one, it suggests the nearest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            raise UserError(f'"{args[0]}" is not a topic.{nearest(args[0], self.commands)}')
        return super().resolve_command(ctx, args)


explain = typer.Typer(
    cls=Topics,
    rich_markup_mode="rich",
    help="Explain an idea by a small experiment that runs now: numbers in the terminal and, with -o, a page.\n\n"
    "\b\nExamples:\n  regard explain scaling\n  regard explain masking -o masking.html\n  regard explain heads --help",
)
for panel, topics in TOPICS.items():
    for name, topic in topics.items():
        explain.command(name, rich_help_panel=panel, help=help_of(topic))(topic)
