"""Settings and weight table of T5 checkpoints (type t5): the first version and the later gated ones."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.models import TransformerConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers

SETTINGS: SettingTable = {  # of several of ours with one name of theirs, the last is written
    "source_vocab": ("vocab_size", 32128),
    "target_vocab": ("vocab_size", 32128),
    "width": ("d_model", 512),
    "heads": ("num_heads", 8),
    "head_width": ("d_kv", 64),
    "layers": ("num_layers", 6),
    "decoder_layers": ("num_decoder_layers", None),
    "inner": ("d_ff", 2048),
    "epsilon": ("layer_norm_epsilon", 1e-6),
    "buckets": ("relative_attention_num_buckets", 32),
    "furthest": ("relative_attention_max_distance", 128),
    "attention_dropout": ("dropout_rate", 0.1),
    "feed_dropout": ("dropout_rate", 0.1),
    "dropout": ("dropout_rate", 0.1),
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


def _stack_entries(name: str, layers: int, gated: bool, reads_source: bool) -> list[WeightEntry]:
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
    return [one.with_prefixes(f"{name}.", f"{name}.") for one in table]


def t5_weight_table(config: TransformerConfig) -> list[WeightEntry]:
    own_head = [entry("lm_head.weight", "readout_.weight")] if config.shared == "sides" else []
    return [
        entry("shared.weight", "embedding.tokens.weight"),
        *_stack_entries("encoder", config.layers, config.gated, reads_source=False),
        *_stack_entries("decoder", config.decoder_layers or config.layers, config.gated, reads_source=True),
        *own_head,
    ]


def read_t5_config(reader: ConfigReader, names: frozenset[str]) -> TransformerConfig:
    proj = reader.get("feed_forward_proj", "relu")
    if proj not in FEEDS:
        raise UserError(f"{reader.path}: feed_forward_proj={proj}: is not supported, only {', '.join(FEEDS)} are.")
    sides = {name.partition(".")[0] for name in names}
    if "encoder" in sides and "decoder" not in sides:
        raise UserError(f"{reader.path}: has only an encoder (T5EncoderModel), which cannot be read; give a whole T5.")
    activation, gated = FEEDS[proj]
    found = reader.read_table(SETTINGS)
    if found.get("decoder_layers") == found["layers"]:
        del found["decoder_layers"]
    tied = reader.boolean("tie_word_embeddings", True)
    return TransformerConfig(
        **found,
        activation=activation,
        gated=gated,
        norm="rms",
        attention_bias=False,
        feed_bias=False,
        score="dot",
        positions="t5",
        shared="sides" if "lm_head.weight" in names else "all",
        scaled=False,
        readout_scale=found["width"] ** -0.5 if reader.boolean("scale_decoder_outputs", tied) else 1.0,
    )


def write_t5_config(config: TransformerConfig) -> dict[str, Any]:
    scaled = config.readout_scale != 1.0
    proj = next((name for name, feed in FEEDS.items() if feed == (config.activation, config.gated)), "relu")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **their_settings(config, SETTINGS),
        "d_kv": config.head,
        "num_decoder_layers": config.decoder.layers,
        "feed_forward_proj": proj,
        "tie_word_embeddings": config.shared == "all",
        "scale_decoder_outputs": scaled,
    }


T5 = CheckpointType(
    TransformerConfig,
    SETTINGS,
    read_t5_config,
    write_t5_config,
    t5_weight_table,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    tied_copies={"lm_head.weight": "shared.weight"},
    always_tied={"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"},
)
