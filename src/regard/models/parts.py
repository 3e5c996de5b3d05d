"""Which part of a model each attention module belongs to: encoder, decoder or cross."""

from __future__ import annotations

from typing import Any

from regard.layers.transformer import Block
from regard.models.facts import Facts
from regard.recording import attentions, tape_name


def parts(module: Any) -> dict[str, str]:
    """The part of a model that each attention module belongs to, by its path.

    In a model that reads a source, what is below `encoder` is the encoder. In the decoder, the first attention of a
    block reads the target; the second one, and an attention outside of any block, reads the source. The body under a
    head has the same parts as without it; if the head reads the encoder alone, the decoder is left out.
    """
    config: Facts = module.config
    body, head = config.split()
    encoder = "encoder." if head is None else "body.encoder."
    own = {id(block.attention.read) for block in module.modules() if isinstance(block, Block)}
    found = {}
    for path, attention in attentions(module).items():
        if not config.causal_attention or (body.reads_source and path.startswith(encoder)):
            found[path] = "encoder"
        elif not config.reads_encoder:
            found[path] = "cross" if body.reads_source and id(attention) not in own else "decoder"
    return found


def path_of(name: str) -> str:
    """The path of the module that a name on a tape belongs to; a module that layers share has one name per layer."""
    return name.partition("[")[0]


def source_reads(module: Any) -> list[str]:
    """The names on a tape of all attentions to the source, from the lowest layer up."""
    turns = {path: attention.shared_by for path, attention in attentions(module).items()}
    paths = [path for path, part in parts(module).items() if part == "cross"]
    return [tape_name(path, turns[path], turn) for path in paths for turn in range(turns[path])]
