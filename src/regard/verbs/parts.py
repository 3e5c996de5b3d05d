"""Which attention is which, and what stands beside it: a source that looks at itself, a target at its past or at the
source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from regard.data.batches import Pair
from regard.errors import UserError
from regard.layers.transformer import Block
from regard.models import Bert, Gpt, Seq2Seq, Structured
from regard.recording import Axes, attentions
from regard.render.view_data import alignment_layer
from regard.verbs.loaded import Loaded

PARTS = ("encoder", "decoder", "cross")


def parts(module: nn.Module) -> dict[str, str]:
    """The part that each attention module of a model is of, by its path.

    What reads a source is known by where it stands: the second attention of a block, or a recurrent decoder's only one.
    """
    blocks = (part for part in module.modules() if isinstance(part, Block))
    crossing = {id(block.cross.read) for block in blocks if block.cross is not None}
    found = {}
    for path, attention in attentions(module).items():
        if id(attention) in crossing or isinstance(module, Seq2Seq):
            found[path] = "cross"
        else:
            reads = path.startswith("encoder.") or isinstance(module, Bert | Structured)
            found[path] = "encoder" if reads else "decoder"
    return found


def path_of(name: str) -> str:
    """The module that a name on a tape is of; one that layers share has a name for each of them."""
    return name.partition("[")[0]


def source_reads(module: nn.Module) -> list[str]:
    """The names on a tape of all that reads the source, from the bottom up."""
    turns = {path: attention.turns for path, attention in attentions(module).items()}
    paths = [path for path, part in parts(module).items() if part == "cross"]
    return [name for path in paths for name in _turns(path, turns[path])]


def _turns(path: str, turns: int) -> list[str]:
    return [path] if turns == 1 else [f"{path}[{turn}]" for turn in range(turns)]


def aligning(model: Loaded, layer: int | None = None) -> str | None:
    """The name of the read that alignments are taken from; None where nothing reads a source.

    By default it is the one that aligns best (`alignment_layer`).
    """
    names = source_reads(model.module)
    if layer is None:
        return names[alignment_layer(len(names))] if names else None
    if not 0 <= layer < len(names):
        there = f"layers 0 to {len(names) - 1} look at the source" if names else "no layer looks at a source"
        raise UserError(f"layer={layer}: in {model.path} {there}.")
    return names[layer]


def axes(model: Loaded, pair: Pair) -> dict[str, Axes]:
    """Who looks, and what at, in every part of a model that is given this pair.

    A row is the piece that looks, which is the last one read; where a target looks at its source, the piece being said.
    """
    source, target = pair
    module, said = model.module, model.target_tokenizer
    if module.task == "fill":
        text = said.pieces(said.wrap_input(target))
        return {"encoder": Axes(text, text, "encoder")}
    read = model.source_tokenizer.pieces(model.source_tokenizer.wrap_input(source)) if model.source_tokenizer else []
    if isinstance(module, Structured):
        looks = [f"look {number}" for number in range(1, module.config.hops + 1)]
        return {"encoder": Axes(looks, read, "encoder")}
    told = said.special_tokens.wrap_target(target)
    says, past = said.pieces(told[1:]), said.pieces(told[:-1])
    # What Transformer-XL remembers before a text may be so many zeros.
    first = module.config.memory if isinstance(module, Gpt) and module.config.memory_zeros else 0
    found = {"decoder": Axes(past, past, "decoder", first)}
    if model.source_tokenizer:
        found |= {"encoder": Axes(read, read, "encoder"), "cross": Axes(says, read, "cross")}
    return found


def kept(axes: Axes, rows: Sequence[int] | None, most: int) -> Axes:
    """The axes where only these rows are recorded, of a batch in which a text has at most so many."""
    if rows is None:
        return axes
    there = [row for row in rows if 0 <= row < most]
    return replace(axes, rows=[axes.rows[row] if row < len(axes.rows) else "" for row in there])
