"""ALBERT: names and settings of its public checkpoints (Lan et al. 2020): narrow embeddings, shared blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.models import BertConfig
from regard.pretrained.encoder import (
    COUNTS,
    OLD_NORMS,
    SETTINGS,
    Encoder,
    block,
    embeddings,
    read_settings,
    with_outputs,
    write_settings,
)
from regard.pretrained.names import Line, both, line
from regard.pretrained.public import Given, Table

ALBERT_SETTINGS: Table = {
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
SIGNS = {"masked": "predictions.", "pooled": "albert.pooler.", "next": "sop_classifier."}


def lines(config: BertConfig) -> list[Line]:
    table = embeddings("albert.embeddings", ("tokens", "positions", "segments"))
    table += both("albert.encoder.embedding_hidden_mapping_in", "embedding.project")
    for number in range(config.groups * config.group_blocks):
        group, place = divmod(number, config.group_blocks)
        table += block(f"albert.encoder.albert_layer_groups.{group}.albert_layers.{place}", number, BLOCK)
    if "pooled" in config.outputs:
        table += both("albert.pooler", "pooled")
    if "next" in config.outputs:
        table += both("sop_classifier.classifier", "next")
    if "masked" in config.outputs:
        table += [*both("predictions.dense", "masked.dense"), *both("predictions.LayerNorm", "masked.norm")]
        table += [line("predictions.bias", "masked.bias")]
        table += [] if config.tied else both("predictions.decoder", "masked")
    return table


def read(given: Given, names: frozenset[str]) -> BertConfig:
    config = read_settings(given, ALBERT_SETTINGS)
    groups = given.size("num_hidden_groups", 1)
    if config.layers % groups:
        raise given.wrong("num_hidden_groups", f"a divisor of num_hidden_layers={config.layers}")
    config = replace(config, groups=groups, group_blocks=given.size("inner_group_num", 1))
    return with_outputs(config, names, SIGNS, "predictions.decoder.weight", given)


def write(config: BertConfig) -> dict[str, Any]:
    name = "AlbertForMaskedLM" if "masked" in config.outputs else "AlbertModel"
    return {
        "model_type": "albert",
        "architectures": ["AlbertForPreTraining" if "next" in config.outputs else name],
        **write_settings(config, ALBERT_SETTINGS),
        "embedding_size": config.embed or config.width,
        "num_hidden_groups": config.groups or config.layers,
        "inner_group_num": config.group_blocks,
    }


ALBERT = Encoder(
    BertConfig,
    ALBERT_SETTINGS,
    read,
    write,
    lines,
    prefix="albert.",
    heads=("predictions.*", "sop_classifier.*", "classifier.*", "qa_outputs.*"),
    ignored=COUNTS,
    copies={"predictions.decoder.weight": "albert.embeddings.word_embeddings.weight"},
    renamed=OLD_NORMS,
    readout="predictions",
)
