"""Settings and weight table of ALBERT checkpoints (Lan et al. 2020): narrow embeddings, shared blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.models import BertConfig
from regard.pretrained.checkpoint_type import ConfigReader, SettingTable
from regard.pretrained.encoder import (
    OLD_NORMS,
    POSITION_BUFFERS,
    SETTINGS,
    EncoderType,
    block_entries,
    embedding_entries,
    read_encoder_config,
    with_outputs,
    write_encoder_config,
)
from regard.pretrained.weight_table import WeightEntry, entry, weight_and_bias

ALBERT_SETTINGS: SettingTable = {
    **SETTINGS,
    "vocab": ("vocab_size", 30000),
    "embed": ("embedding_size", 128),
    "width": ("hidden_size", 4096),
    "heads": ("num_attention_heads", 64),
    "inner": ("intermediate_size", 16384),
    "activation": ("hidden_act", "gelu_new"),
    "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
}
BLOCK = {
    "attention.qkv": "attention.query attention.key attention.value",
    "attention.out": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "feed.up": "ffn",
    "feed.down": "ffn_output",
    "feed_norm": "full_layer_layer_norm",
}
OUTPUT_PREFIXES = {"masked": "predictions.", "pooled": "albert.pooler.", "next": "sop_classifier."}


def albert_weight_table(config: BertConfig) -> list[WeightEntry]:
    table = embedding_entries("albert.embeddings", ("tokens", "positions", "segments"))
    table += weight_and_bias("albert.encoder.embedding_hidden_mapping_in", "embedding.project")
    for number in range(config.groups * config.group_blocks):
        group, place = divmod(number, config.group_blocks)
        table += block_entries(f"albert.encoder.albert_layer_groups.{group}.albert_layers.{place}", number, BLOCK)
    if "pooled" in config.outputs:
        table += weight_and_bias("albert.pooler", "pooled")
    if "next" in config.outputs:
        table += weight_and_bias("sop_classifier.classifier", "next")
    if "masked" in config.outputs:
        table += [
            *weight_and_bias("predictions.dense", "masked.dense"),
            *weight_and_bias("predictions.LayerNorm", "masked.norm"),
        ]
        table += [entry("predictions.bias", "masked.bias")]
        table += [] if config.tied else weight_and_bias("predictions.decoder", "masked")
    return table


def read_albert_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
    config = read_encoder_config(reader, ALBERT_SETTINGS)
    groups = reader.size("num_hidden_groups", 1)
    if config.layers % groups:
        raise reader.invalid("num_hidden_groups", f"a divisor of num_hidden_layers={config.layers}")
    config = replace(config, groups=groups, group_blocks=reader.size("inner_group_num", 1))
    return with_outputs(config, names, OUTPUT_PREFIXES, "predictions.decoder.weight", reader)


def write_albert_config(config: BertConfig) -> dict[str, Any]:
    name = "AlbertForMaskedLM" if "masked" in config.outputs else "AlbertModel"
    return {
        "model_type": "albert",
        "architectures": ["AlbertForPreTraining" if "next" in config.outputs else name],
        **write_encoder_config(config, ALBERT_SETTINGS),
        "embedding_size": config.embed or config.width,
        "num_hidden_groups": config.groups or config.layers,
        "inner_group_num": config.group_blocks,
    }


ALBERT = EncoderType(
    BertConfig,
    ALBERT_SETTINGS,
    read_albert_config,
    write_albert_config,
    albert_weight_table,
    prefix="albert.",
    head_patterns=("predictions.*", "sop_classifier.*", "classifier.*", "qa_outputs.*"),
    ignored=POSITION_BUFFERS,
    tied_copies={"predictions.decoder.weight": "albert.embeddings.word_embeddings.weight"},
    old_endings=OLD_NORMS,
    readout="predictions",
)
