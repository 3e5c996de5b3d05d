"""Settings and weight tables of T5 checkpoints (type t5): the first version and the later gated ones.

The classes of `transformers` differ in what they read. T5ForConditionalGeneration reads a source and a target. In
T5ForSequenceClassification and T5ForQuestionAnswering, both sides read one text (`Transformer.features`).
T5EncoderModel and T5ForTokenClassification have an encoder alone, which is a `BertConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.errors import UserError
from regard.models import BertConfig, TransformerConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.public_heads import text_heads, token_heads
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers

SIDE: SettingTable = {  # of one side; of several of ours with one name of theirs, the last is written
    "width": ("d_model", 512),
    "heads": ("num_heads", 8),
    "head_width": ("d_kv", 64),
    "layers": ("num_layers", 6),
    "inner": ("d_ff", 2048),
    "epsilon": ("layer_norm_epsilon", 1e-6),
    "buckets": ("relative_attention_num_buckets", 32),
    "furthest": ("relative_attention_max_distance", 128),
    "attention_dropout": ("dropout_rate", 0.1),
    "feed_dropout": ("dropout_rate", 0.1),
    "output_dropout": ("dropout_rate", 0.1),
    "dropout": ("dropout_rate", 0.1),
}
SETTINGS: SettingTable = {
    "source_vocab": ("vocab_size", 32128),
    "target_vocab": ("vocab_size", 32128),
    **SIDE,
    "decoder_layers": ("num_decoder_layers", None),
}
ENCODER_SETTINGS: SettingTable = {"vocab": ("vocab_size", 32128), **SIDE}
SHARED: Mapping[str, Any] = {  # our settings that all T5 have
    "norm": "rms",
    "attention_bias": False,
    "feed_bias": False,
    "score": "dot",
    "positions": "t5",
}
FEEDS = {  # their feed_forward_proj → our activation, gated or not
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
    "gated-relu": ("relu", True),
}


def _attention_entries(theirs: str, ours: str) -> list[WeightEntry]:
    return [
        entry(" ".join(f"{theirs}.{part}.weight" for part in "qkv"), f"{ours}.qkv.weight"),
        entry(f"{theirs}.o.weight", f"{ours}.out.weight"),
    ]


def _stack_entries(theirs: str, ours: str, layers: int, gated: bool, reads_source: bool = False) -> list[WeightEntry]:
    feed = "block.{}.layer.2" if reads_source else "block.{}.layer.1"
    parts = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if gated else {"wi": "up", "wo": "down"}
    block = [
        *_attention_entries("block.{}.layer.0.SelfAttention", "blocks.{}.attention"),
        entry("block.{}.layer.0.layer_norm.weight", "blocks.{}.attention_norm.weight"),
        *(entry(f"{feed}.DenseReluDense.{k}.weight", f"blocks.{{}}.feed.{parts[k]}.weight") for k in parts),
        entry(f"{feed}.layer_norm.weight", "blocks.{}.feed_norm.weight"),
    ]
    if reads_source:
        block += _attention_entries("block.{}.layer.1.EncDecAttention", "blocks.{}.cross")
        block += [entry("block.{}.layer.1.layer_norm.weight", "blocks.{}.cross_norm.weight")]
    table = [
        *for_all_layers(block, layers),
        entry("block.0.layer.0.SelfAttention.relative_attention_bias.weight", "bias.table.weight"),
        entry("final_layer_norm.weight", "norm.weight"),
    ]
    return [one.with_prefixes(f"{theirs}.", f"{ours}.") for one in table]


def t5_weight_table(config: TransformerConfig) -> list[WeightEntry]:
    own_head = [entry("lm_head.weight", "readout_.weight")] if config.shared == "sides" else []
    return [
        entry("shared.weight", "embedding.tokens.weight"),
        *_stack_entries("encoder", "encoder", config.layers, config.gated),
        *_stack_entries("decoder", "decoder", config.decoder.layers, config.gated, reads_source=True),
        *own_head,
    ]


def _read_feed(reader: ConfigReader) -> dict[str, Any]:
    proj = reader.get("feed_forward_proj", "relu")
    if not isinstance(proj, str) or proj not in FEEDS:
        raise UserError(f"{reader.path}: feed_forward_proj={proj}: is not supported, only {', '.join(FEEDS)} are.")
    return dict(zip(("activation", "gated"), FEEDS[proj]))


def _write_side(config: TransformerConfig | BertConfig, settings: SettingTable) -> dict[str, Any]:
    feed = (config.activation, config.gated)
    return {
        "model_type": "t5",
        **their_settings(config, settings),
        "d_kv": config.head,
        "feed_forward_proj": next((name for name, one in FEEDS.items() if one == feed), "relu"),
    }


def read_t5_config(reader: ConfigReader, names: frozenset[str]) -> TransformerConfig:
    sides = {name.partition(".")[0] for name in names}
    if "encoder" in sides and "decoder" not in sides:
        cure = 'if it is one, write "architectures": ["T5EncoderModel"] there'
        raise UserError(f"{reader.path}: the weights are those of an encoder alone; {cure}.")
    found = reader.read_table(SETTINGS)
    if found.get("decoder_layers") == found["layers"]:
        del found["decoder_layers"]
    tied = reader.boolean("tie_word_embeddings", True)
    return TransformerConfig(
        **found,
        **_read_feed(reader),
        **SHARED,
        shared="sides" if "lm_head.weight" in names else "all",
        scaled=False,
        readout_scale=0.0 if reader.boolean("scale_decoder_outputs", tied) else 1.0,
    )


def write_t5_config(config: TransformerConfig) -> dict[str, Any]:
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **_write_side(config, SETTINGS),
        "num_decoder_layers": config.decoder.layers,
        "tie_word_embeddings": config.shared == "all",
        "scale_decoder_outputs": config.readout_factor != 1.0,
    }


@dataclass(frozen=True)
class T5Type(CheckpointType):
    """T5. In files with some of its heads, the names of all other tensors begin with ``transformer.``."""

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().normalized({name.removeprefix(BODY): tensor for name, tensor in tensors.items()})


BODY = "transformer."
START = {"decoder_start_token_id": 0}
_CLASSES = text_heads(
    "T5", "classification_head.dense", "classification_head.out_proj", "tanh", "classifier_dropout", pool="last"
)
_PLACES = token_heads("T5", "classifier_dropout")


# -- The encoder alone -------------------------------------------------------------------------------------------------


def encoder_weight_table(config: BertConfig) -> list[WeightEntry]:
    return [
        entry("shared.weight", "embedding.tokens.weight"),
        *_stack_entries("encoder", "stack", config.layers, config.gated),
    ]


def read_encoder_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
    return BertConfig(
        **reader.read_table(ENCODER_SETTINGS),
        **_read_feed(reader),
        **SHARED,
        norm_place="pre",
        segments=0,
        embedding_norm=False,
        outputs=(),
    )


def write_encoder_config(config: BertConfig) -> dict[str, Any]:
    return {
        "architectures": ["T5EncoderModel"],
        "is_encoder_decoder": False,
        **_write_side(config, ENCODER_SETTINGS),
    }


T5_ENCODER = T5Type(
    BertConfig,
    ENCODER_SETTINGS,
    read_encoder_config,
    write_encoder_config,
    encoder_weight_table,
    always_tied={"encoder.embed_tokens.weight": "shared.weight"},
    heads={"tag": replace(_PLACES["tag"], prefix=BODY)},
)
T5 = T5Type(
    TransformerConfig,
    SETTINGS,
    read_t5_config,
    write_t5_config,
    t5_weight_table,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    tied_copies={"lm_head.weight": "shared.weight"},
    always_tied={"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"},
    heads={
        **{name: replace(head, prefix=BODY, expects=START, reads_eos=True) for name, head in _CLASSES.items()},
        "span": replace(_PLACES["span"], expects=START),
    },
    variants={"T5EncoderModel": T5_ENCODER, "T5ForTokenClassification": T5_ENCODER},
)
