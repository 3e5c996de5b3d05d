"""Which part of a model each attention belongs to, and the names of its rows and columns.

The parts: encoder (a text or source that attends to itself), decoder (a target that attends to its past), cross (a
target that attends to its source).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.errors import UserError
from regard.layers.transformer import Block
from regard.models import Facts
from regard.recording import Axes, attentions
from regard.render.view_data import alignment_layer
from regard.verbs.loaded import IdPair, Loaded

PARTS = ("encoder", "decoder", "cross")


def parts(module: Any) -> dict[str, str]:
    """The part of a model that each attention module belongs to, by its path.

    In a model that reads a source, what is below `encoder` is the encoder. In the decoder, the first attention of a
    block reads the target; the second one, and an attention outside of any block, reads the source.
    """
    config: Facts = module.config
    own = {id(block.attention.read) for block in module.modules() if isinstance(block, Block)}
    found = {}
    for path, attention in attentions(module).items():
        if not config.causal or (config.reads_source and path.startswith("encoder.")):
            found[path] = "encoder"
        else:
            found[path] = "cross" if config.reads_source and id(attention) not in own else "decoder"
    return found


def path_of(name: str) -> str:
    """The path of the module that a name on a tape belongs to; a module that layers share has one name per layer."""
    return name.partition("[")[0]


def source_reads(module: Any) -> list[str]:
    """The names on a tape of all attentions to the source, from the lowest layer up."""
    turns = {path: attention.shared_by for path, attention in attentions(module).items()}
    paths = [path for path, part in parts(module).items() if part == "cross"]
    return [name for path in paths for name in _turns(path, turns[path])]


def _turns(path: str, turns: int) -> list[str]:
    return [path] if turns == 1 else [f"{path}[{turn}]" for turn in range(turns)]


def aligning(model: Loaded, layer: int | None = None) -> str | None:
    """The name of the attention that alignments are taken from; None: the model has no attention to a source.

    By default it is the one that aligns best (`alignment_layer`).
    """
    names = source_reads(model.module)
    if layer is None:
        return names[alignment_layer(len(names))] if names else None
    if not 0 <= layer < len(names):
        there = f"layers 0 to {len(names) - 1} look at the source" if names else "no layer looks at a source"
        raise UserError(f"layer={layer}: in {model.path} {there}.")
    return names[layer]


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
