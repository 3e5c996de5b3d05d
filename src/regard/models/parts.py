"""Which part of a model each attention module belongs to: encoder, decoder or cross."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from regard.attention import MultiHead
from regard.layers.transformer import Block, Stack
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


def reads_by_part(module: Any) -> dict[str, list[str]]:
    """The names on a tape of the attentions of each part, from the lowest layer up; first the part shown first."""
    shared, layers, found = attentions(module), _layers_of(module), dict[str, list[tuple[int, str]]]()
    for path, part in parts(module).items():
        turns, places = shared[path].shared_by, layers.get(id(shared[path]), [])
        reads = [(places[turn] if places else 0, tape_name(path, turns, turn)) for turn in range(turns)]
        found.setdefault(part, []).extend(reads)
    ordered = {part: [name for _, name in sorted(reads, key=itemgetter(0))] for part, reads in found.items()}
    return dict(sorted(ordered.items(), key=lambda item: item[0] != "cross"))


def _layers_of(module: Any) -> dict[int, list[int]]:
    """The layers of its stack that use each attention module, by its id: of a group of blocks, each in turn."""
    found = dict[int, list[int]]()
    for stack in (each for each in module.modules() if isinstance(each, Stack)):
        for number, block in enumerate(stack.layers):
            for one in (block.attention, block.cross):
                if one is not None:
                    found.setdefault(id(one.read), []).append(number)
    return found


def source_reads(module: Any) -> list[str]:
    """The names on a tape of all attentions to the source, from the lowest layer up."""
    return reads_by_part(module).get("cross", [])


def head_counts(module: Any) -> dict[str, int]:
    """How many heads each attention module has, by its path."""
    of_read = {id(each.read): each.heads for each in module.modules() if isinstance(each, MultiHead)}
    return {path: of_read.get(id(attention), 1) for path, attention in attentions(module).items()}
