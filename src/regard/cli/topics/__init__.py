"""`regard explain TOPIC`: an idea, shown by a small experiment. One short file per topic, and the group they form."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from regard.cli.docstrings import help_of
from regard.cli.topics.attention import attention
from regard.cli.topics.gradients import gradients
from regard.cli.topics.heads import heads
from regard.cli.topics.layers import layers
from regard.cli.topics.masking import masking
from regard.cli.topics.positions import positions
from regard.cli.topics.residuals import residuals
from regard.cli.topics.scaling import scaling
from regard.errors import UserError, nearest

TOPICS: dict[str, dict[str, Callable[..., None]]] = {
    "Attention": {"attention": attention, "scaling": scaling, "masking": masking, "heads": heads},
    "The Transformer": {"positions": positions, "residuals": residuals},
    "Against other layers": {"layers": layers, "gradients": gradients},
}


class Topics(TyperGroup):
    """The topics by their names: none asked for lists them, a wrong one is answered with the nearest right one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            raise UserError(f'"{args[0]}" is no topic.{nearest(args[0], self.commands)}')
        return super().resolve_command(ctx, args)


explain = typer.Typer(
    cls=Topics,
    rich_markup_mode="rich",
    help="Make an idea visible: a small experiment, run here and now, in figures and, with -o, as a page.\n\n"
    "\b\nExamples:\n  regard explain scaling\n  regard explain masking -o masking.html\n  regard explain heads --help",
)
for panel, topics in TOPICS.items():
    for name, topic in topics.items():
        explain.command(name, rich_help_panel=panel, help=help_of(topic))(topic)
