"""Checks that the configs of several models share."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from regard.errors import UserError, nearest
from regard.layers.adaptive import Clusters

C = TypeVar("C")  # a config
MOST_LAYERS = 1000  # a file may state any number, and building a billion layers does not end
SOFTMAXES = ("plain", "adaptive")


def check_config(
    config: Any, sizes: Iterable[str], names: Mapping[str, Iterable[str]], dropouts: Iterable[str] = ()
) -> None:
    """Raise ``UserError`` for sizes below 1, too many layers, unknown names, and parts outside 0 … 1.

    These parts are ``dropout`` and the settings ``dropouts``, which may be None.
    """
    for field, known in names.items():
        if (value := getattr(config, field)) not in known:
            raise UserError(f"model.{field}={value}: no such {field}.{nearest(value, known)}")
    for field in sizes:
        if (size := getattr(config, field)) < 1:
            raise UserError(f"model.{field}={size}: must be at least 1")
        if field in ("layers", "blocks") and size > MOST_LAYERS:
            raise UserError(f"model.{field}={size}: must be at most {MOST_LAYERS}")
    for field in ("dropout", *dropouts):
        if not 0 <= ((part := getattr(config, field)) or 0.0) < 1:
            raise UserError(f"model.{field}={part}: must be at least 0 and below 1")


def check_inputs(config: Any) -> None:
    """Raise ``UserError`` if a model is to read both tokens and numbers."""
    if config.numbers < 0 or (config.numbers and config.vocab):
        raise UserError(f"model.numbers={config.numbers}: follows from the data; leave it at 0.")


def check_softmax(config: Any, clusters: Clusters) -> None:
    """Raise ``UserError`` for an unknown softmax, and for clusters of an adaptive softmax that cannot be built."""
    if config.softmax not in SOFTMAXES:
        raise UserError(f"model.softmax={config.softmax}: no such softmax.{nearest(config.softmax, SOFTMAXES)}")
    if config.softmax == "plain":
        if config.cutoffs or config.divide != 1:
            raise UserError("model.cutoffs and model.divide need model.softmax=adaptive")
        return
    if config.embedding:
        raise UserError(f"model.embedding={config.embedding}: needs one table of vectors; set model.softmax=plain")
    if config.numbers:
        raise UserError("model.softmax=adaptive: needs tokens, but the model reads numbers; set model.softmax=plain")
    ends = (0, *config.cutoffs, *([config.vocab] if config.vocab else []))
    if any(start >= end for start, end in pairwise(ends)):
        cutoffs = ",".join(map(str, config.cutoffs))
        raise UserError(
            f"model.cutoffs={cutoffs}: must increase, from at least 1 to less than model.vocab={config.vocab}"
        )
    if config.divide < 1 or min(clusters.widths) < 1:
        narrowest = f"the last of {len(config.cutoffs) + 1} clusters must have a width of at least 1"
        raise UserError(f"model.divide={config.divide}: {narrowest}; change it, or model.embed")


def check_vocabulary(config: Any) -> None:
    """Raise ``UserError`` for settings of the first and the last layer that do not fit (`regard.layers.vocabulary`)."""
    check_inputs(config)
    narrower = min(config.width, config.embed)
    check_softmax(config, Clusters(config.vocab, config.width, narrower, config.cutoffs, config.divide))
    if config.tied and config.embed != config.width:
        raise UserError(f"model.tied=True: needs model.embed={config.embed} equal to model.width={config.width}")


def check_shared_width(width: int) -> None:
    """Raise ``UserError`` if the width is odd: each direction of an encoder has half of it."""
    if width % 2:
        raise UserError(f"model.width={width}: must be even, because each direction of the encoder has half of it")


def resized_embed(config: Any, width: int) -> int:
    """The width of the embeddings in a model of another width: the same, but not wider than the states."""
    embed: int = config.embed
    return embed if embed > config.width else min(embed, width)


def resized_directions(config: C, width: int) -> C:
    """The config of a model of about this width, of which each direction of an encoder has half."""
    changed: Any = config
    return replace(changed, width=(width + 1) // 2 * 2, embed=resized_embed(config, width))


def refuse(name: str, given: object) -> None:
    """Refuse an argument that a model does not take."""
    if given is not None:
        raise UserError(f"{name}: this model has none; leave them out.")
