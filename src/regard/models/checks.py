"""Checks that the configs of several models share."""

from collections.abc import Iterable, Mapping
from typing import Any

from regard.errors import UserError, nearest


def check_config(config: Any, sizes: Iterable[str], names: Mapping[str, Iterable[str]]) -> None:
    """Raise ``UserError`` for sizes below 1, unknown names, and a dropout outside 0 … 1."""
    for field, known in names.items():
        if (value := getattr(config, field)) not in known:
            raise UserError(f"model.{field}={value}: no such {field}.{nearest(value, known)}")
    for field in sizes:
        if (size := getattr(config, field)) < 1:
            raise UserError(f"model.{field}={size}: must be at least 1")
    if not 0 <= config.dropout < 1:
        raise UserError(f"model.dropout={config.dropout}: must be at least 0 and below 1")


def check_inputs(config: Any) -> None:
    """Raise ``UserError`` if a model is to read both tokens and numbers."""
    if config.numbers < 0 or (config.numbers and config.vocab):
        raise UserError(f"model.numbers={config.numbers}: follows from the data; leave it at 0.")


def check_shared_width(width: int) -> None:
    """Raise ``UserError`` if the width is odd: each direction of an encoder has half of it."""
    if width % 2:
        raise UserError(f"model.width={width}: must be even, because each direction of the encoder has half of it")


def resized_embed(config: Any, width: int) -> int:
    """The width of the embeddings in a model of another width: the same, but not wider than the states."""
    embed: int = config.embed
    return embed if embed > config.width else min(embed, width)


def refuse(name: str, given: object) -> None:
    """Refuse an argument that a model does not take."""
    if given is not None:
        raise UserError(f"{name}: this model has none; leave them out.")
