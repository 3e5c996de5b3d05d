"""Which part of a model each attention belongs to, and the names of its rows and columns.

The parts: encoder (a text or source that attends to itself), decoder (a target that attends to its past), cross (a
target that attends to its source).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.alignment import alignment_layer
from regard.errors import UserError
from regard.models import Facts
from regard.models.parts import parts, path_of, source_reads
from regard.objectives.guided import TrainsAlignment
from regard.recording import Axes
from regard.verbs.loaded import IdPair, Loaded

PARTS = ("encoder", "decoder", "cross")
__all__ = ["PARTS", "aligning", "aligning_heads", "axes", "kept", "parts", "path_of", "source_reads"]


def aligning(model: Loaded, layer: int | None = None) -> str | None:
    """The name of the attention that alignments are taken from; None: the model has no attention to a source.

    By default it is the one whose weights were trained to align, or else the one that aligns best (`alignment_layer`).
    """
    names = source_reads(model.module)
    if layer is None and (trained := _trained(model)):
        layer = trained.align_layer
    if layer is None:
        return names[alignment_layer(len(names))] if names else None
    if not 0 <= layer < len(names):
        there = f"layers 0 to {len(names) - 1} look at the source" if names else "no layer looks at a source"
        raise UserError(f"layer={layer}: in {model.path} {there}.")
    return names[layer]


def aligning_heads(model: Loaded, layer: int | None = None) -> tuple[int, ...] | None:
    """The heads whose mean alignments are taken from: those that were trained to align; None: all heads."""
    trained = _trained(model)
    return trained.align_heads or None if layer is None and trained else None


def _trained(model: Loaded) -> TrainsAlignment | None:
    """The objective of the model if it trained attention weights to align."""
    objective = None if model.recipe is None else model.recipe.objective
    return objective if isinstance(objective, TrainsAlignment) else None


def axes(model: Loaded, pair: IdPair) -> dict[str, Axes]:
    """The rows and columns of every part of a model that reads this pair.

    A row is the token that attends, which is the last one read; of cross, the token that is predicted.
    """
    config: Facts = model.module.config
    source, target = pair
    if not config.causal:
        text = model.tokenizer.pieces(model.tokenizer.wrap_input(target))
        return {"encoder": Axes(config.attention_rows or text, text, "encoder", config.keys_before)}
    ids, pieces = model.target_tokenizer.special_tokens.wrap_target(target), model.target_tokenizer.pieces
    past, predicted = pieces(ids[:-1]), pieces(ids[1:])
    found = {"decoder": Axes(past, past, "decoder", config.keys_before)}
    if model.source_tokenizer:
        read = model.source_tokenizer.pieces(model.source_tokenizer.wrap_input(source))
        found |= {"encoder": Axes(read, read, "encoder"), "cross": Axes(predicted, read, "cross")}
    return found


def kept(axes: Axes, rows: Sequence[int] | None, most: int) -> Axes:
    """The axes with only these rows, in a batch whose longest text has `most` of them."""
    if rows is None:
        return axes
    there = [row for row in rows if 0 <= row < most]
    return replace(axes, rows=[axes.rows[row] if row < len(axes.rows) else "" for row in there])
