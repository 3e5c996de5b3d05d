"""What the public types that read in both directions have in common: settings, blocks, and the readout's two biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.models import BertConfig
from regard.models.bert import OUTPUTS
from regard.pretrained.names import Line, both
from regard.pretrained.public import Given, Public, Table, their_settings

SETTINGS: Table = {
    "vocab": ("vocab_size", 30522),
    "width": ("hidden_size", 768),
    "heads": ("num_attention_heads", 12),
    "layers": ("num_hidden_layers", 12),
    "inner": ("intermediate_size", 3072),
    "activation": ("hidden_act", "gelu"),
    "epsilon": ("layer_norm_eps", 1e-12),
    "context": ("max_position_embeddings", 512),
    "segments": ("type_vocab_size", 2),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
}
BLOCK = {  # our part of a block → theirs, as BERT has them
    "attention.qkv": "attention.self.query attention.self.key attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed.up": "intermediate.dense",
    "feed.down": "output.dense",
    "feed_norm": "output.LayerNorm",
}
OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
COUNTS = ("*.embeddings.position_ids", "*.embeddings.token_type_ids")  # 0, 1, 2, … and zeros: nothing to read
MASK, SPECIALS = "mask_token_id", "special_token_ids"  # ids that training needs to know; the network does not


@dataclass(frozen=True)
class Encoder(Public):
    """A type whose readout may have its bias under two names. Of the two, that of the product, ``decoder``, counts.

    A tied readout is saved with the other one alone, a readout of its own with both.
    """

    readout: str = "readout"  # the part that holds both: {readout}.bias and {readout}.decoder.bias

    def normal(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normal(tensors)
        plain, counting = f"{self.readout}.bias", f"{self.readout}.decoder.bias"
        bias = found.pop(counting, found.get(plain))
        if bias is not None:
            found[plain] = bias
            if f"{self.readout}.decoder.weight" in found:
                found[counting] = bias
        return found


def read_settings(given: Given, table: Table) -> BertConfig:
    """The settings that the table names; those that would make it another kind of model are refused."""
    given.expect("is_decoder", False, False)
    given.expect("add_cross_attention", False, False)
    given.expect("position_embedding_type", "absolute", "absolute")
    given.expect("pruned_heads", {}, {})
    mask = -1 if given.get(MASK) is None else given.whole(MASK)
    return BertConfig(**{"segments": 0} | given.those_of(table), outputs=(), mask=mask, specials=_specials(given))


def _specials(given: Given) -> tuple[int, ...]:
    ids = given.get(SPECIALS, [])
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise given.wrong(SPECIALS, "a list of whole numbers")
    return tuple(ids)


def write_settings(config: BertConfig, table: Table) -> dict[str, Any]:
    """The settings that the table names, in their words, and what training needs to know."""
    written = their_settings(config, table)
    if "segments" in table:
        written[table["segments"][0]] = max(config.segments, 1)
    written["tie_word_embeddings"] = config.tied
    written |= {MASK: config.mask} if config.mask >= 0 else {}
    return written | ({SPECIALS: list(config.specials)} if config.specials else {})


def with_outputs(
    config: BertConfig, names: frozenset[str], signs: Mapping[str, str], head: str, given: Given
) -> BertConfig:
    """The settings with the outputs that the tensors show.

    ``signs`` are how the names of each output begin: one tensor is enough, and the others are then missed. ``head`` is
    the tensor of a readout that is not the embedding.
    """
    shown = {output for output, sign in signs.items() if any(name.startswith(sign) for name in names)}
    shown |= {"pooled"} if "next" in shown else set()
    tied = "masked" not in shown or (head not in names and given.truth("tie_word_embeddings", True))
    return replace(config, outputs=tuple(output for output in OUTPUTS if output in shown), tied=tied)


def always_gelu(config: BertConfig) -> BertConfig:
    """The settings of a type whose masked output has gelu, whatever the feed-forward layers have."""
    plain = config.activation == "gelu" or "masked" not in config.outputs
    return replace(config, head_activation="" if plain else "gelu")


def block(theirs: str, number: int, parts: Mapping[str, str]) -> list[Line]:
    """The lines of one block: where it is with them, its number here, what its parts are called."""
    return [
        one
        for ours, names in parts.items()
        for one in both(" ".join(f"{theirs}.{name}" for name in names.split()), f"stack.blocks.{number}.{ours}")
    ]


def embeddings(prefix: str, kinds: Sequence[str]) -> list[Line]:
    """The lines of the tables of tokens, positions and segments, and of the norm of their sum."""
    theirs = {"tokens": "word", "positions": "position", "segments": "token_type"}
    return [
        *(Line((f"{prefix}.{theirs[kind]}_embeddings.weight",), f"embedding.{kind}.weight") for kind in kinds),
        *both(f"{prefix}.LayerNorm", "embedding.norm"),
    ]
