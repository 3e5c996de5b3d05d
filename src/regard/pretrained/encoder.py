"""What BERT, RoBERTa, ALBERT and similar types have in common: settings, blocks, and the readout's two biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.models import BertConfig
from regard.models.bert import OUTPUTS
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.weight_table import WeightEntry, weight_and_bias

SETTINGS: SettingTable = {
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
BLOCK = {  # our part of a block → the names of BERT
    "attention.qkv": "attention.self.query attention.self.key attention.self.value",
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed.up": "intermediate.dense",
    "feed.down": "output.dense",
    "feed_norm": "output.LayerNorm",
}
OLD_NORMS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
POSITION_BUFFERS = ("*.embeddings.position_ids", "*.embeddings.token_type_ids")  # the constants 0, 1, 2, … and zeros
MASK_ID, SPECIAL_IDS = "mask_token_id", "special_token_ids"  # ids that training uses; the network does not


@dataclass(frozen=True)
class EncoderType(CheckpointType):
    """A type whose readout may store its bias under two names: {readout}.bias and {readout}.decoder.bias.

    If both are there, the second is the one that the model uses. A file with a tied readout has only the first, a file
    with an untied readout has both.
    """

    readout: str = "readout"

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        first, used = f"{self.readout}.bias", f"{self.readout}.decoder.bias"
        bias = found.pop(used, found.get(first))
        if bias is not None:
            found[first] = bias
            if f"{self.readout}.decoder.weight" in found:
                found[used] = bias
        return found


def read_encoder_config(reader: ConfigReader, table: SettingTable) -> BertConfig:
    """The config with the settings of the table. Settings of another kind of model raise a UserError."""
    reader.expect("is_decoder", False, False)
    reader.expect("add_cross_attention", False, False)
    reader.expect("position_embedding_type", "absolute", "absolute")
    reader.expect("pruned_heads", {}, {})
    mask = -1 if reader.get(MASK_ID) is None else reader.integer(MASK_ID)
    return BertConfig(
        **{"segments": 0} | reader.read_table(table), outputs=(), mask=mask, specials=_special_ids(reader)
    )


def _special_ids(reader: ConfigReader) -> tuple[int, ...]:
    ids = reader.get(SPECIAL_IDS, [])
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise reader.invalid(SPECIAL_IDS, "a list of whole numbers")
    return tuple(ids)


def write_encoder_config(config: BertConfig, table: SettingTable) -> dict[str, Any]:
    """The settings of the table under their names, and the ids that training uses."""
    written = their_settings(config, table)
    if "segments" in table:
        written[table["segments"][0]] = max(config.segments, 1)
    written["tie_word_embeddings"] = config.tied
    written |= {MASK_ID: config.mask} if config.mask >= 0 else {}
    return written | ({SPECIAL_IDS: list(config.specials)} if config.specials else {})


def with_outputs(
    config: BertConfig, names: frozenset[str], prefixes: Mapping[str, str], head: str, reader: ConfigReader
) -> BertConfig:
    """The config with the outputs whose tensors are in the file.

    An output is present if the name of any tensor begins with its prefix in ``prefixes``. ``head`` is the tensor of a
    readout that is not tied to the embedding.
    """
    shown = {output for output, prefix in prefixes.items() if any(name.startswith(prefix) for name in names)}
    shown |= {"pooled"} if "next" in shown else set()
    tied = "masked" not in shown or (head not in names and reader.boolean("tie_word_embeddings", True))
    return replace(config, outputs=tuple(output for output in OUTPUTS if output in shown), tied=tied)


def with_gelu_head(config: BertConfig) -> BertConfig:
    """The config of a type whose masked output always uses gelu, whatever the feed-forward layers use."""
    same = config.activation == "gelu" or "masked" not in config.outputs
    return replace(config, head_activation="" if same else "gelu")


def block_entries(theirs: str, number: int, parts: Mapping[str, str]) -> list[WeightEntry]:
    """The entries of one block: the prefix of their names, its number in our model, our parts and their names."""
    return [
        one
        for ours, names in parts.items()
        for one in weight_and_bias(
            " ".join(f"{theirs}.{name}" for name in names.split()), f"stack.blocks.{number}.{ours}"
        )
    ]


def embedding_entries(prefix: str, kinds: Sequence[str]) -> list[WeightEntry]:
    """The entries of the token, position and segment embeddings, and of the norm of their sum."""
    theirs = {"tokens": "word", "positions": "position", "segments": "token_type"}
    return [
        *(WeightEntry((f"{prefix}.{theirs[kind]}_embeddings.weight",), f"embedding.{kind}.weight") for kind in kinds),
        *weight_and_bias(f"{prefix}.LayerNorm", "embedding.norm"),
    ]
