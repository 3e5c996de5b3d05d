"""Settings and weight tables of RoBERTa and XLM-RoBERTa checkpoints (Liu et al. 2019; Conneau et al. 2020).

The encoder is BERT's, but its positions start at pad_token_id + 1: no token uses the first rows of the position table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.heads import ClassHeadConfig
from regard.models import BertConfig
from regard.pretrained.checkpoint_type import ConfigReader, SettingTable
from regard.pretrained.encoder import (
    BLOCK,
    OLD_NORMS,
    POSITION_BUFFERS,
    SETTINGS,
    EncoderType,
    block_entries,
    embedding_entries,
    read_encoder_config,
    with_gelu_head,
    with_outputs,
    write_encoder_config,
)
from regard.pretrained.heads import PublicHead
from regard.pretrained.weight_table import WeightEntry, entry, weight_and_bias

ROBERTA_SETTINGS: SettingTable = {**SETTINGS, "vocab": ("vocab_size", 50265)}
OUTPUT_PREFIXES = {"masked": "lm_head.", "pooled": "roberta.pooler."}


def roberta_weight_table(config: BertConfig) -> list[WeightEntry]:
    table = embedding_entries("roberta.embeddings", ("tokens", "positions", "segments"))
    for number in range(config.layers):
        table += block_entries(f"roberta.encoder.layer.{number}", number, BLOCK)
    if "pooled" in config.outputs:
        table += weight_and_bias("roberta.pooler.dense", "pooled")
    if "masked" in config.outputs:
        table += [
            *weight_and_bias("lm_head.dense", "masked.dense"),
            *weight_and_bias("lm_head.layer_norm", "masked.norm"),
        ]
        table += [entry("lm_head.bias", "masked.bias")]
        table += [] if config.tied else weight_and_bias("lm_head.decoder", "masked")
    return table


def _read_config_with(settings: SettingTable) -> Callable[[ConfigReader, frozenset[str]], BertConfig]:
    """The `read_config` of one of the two types, whose defaults differ."""

    def read_config(reader: ConfigReader, names: frozenset[str]) -> BertConfig:
        config = read_encoder_config(reader, settings)
        first = reader.integer("pad_token_id", 1) + 1
        if config.context <= first:
            raise reader.invalid("max_position_embeddings", f"more than {first}, as pad_token_id={first - 1}")
        config = replace(config, first_position=first, context=config.context - first)
        return with_gelu_head(with_outputs(config, names, OUTPUT_PREFIXES, "lm_head.decoder.weight", reader))

    return read_config


def _write_config_as(kind: str, name: str) -> Callable[[BertConfig], dict[str, Any]]:
    """The `write_config` of one of the two types: its model_type, and the name of its classes."""

    def write_config(config: BertConfig) -> dict[str, Any]:
        first = max(config.first_position, 1)
        return {
            "model_type": kind,
            "architectures": [name + ("ForMaskedLM" if "masked" in config.outputs else "Model")],
            **write_encoder_config(config, ROBERTA_SETTINGS),
            "max_position_embeddings": config.context + first,
            "pad_token_id": first - 1,
        }

    return write_config


def _class_head(architecture: str) -> PublicHead:
    return PublicHead(
        architecture,
        ClassHeadConfig(pool="first", hidden="tanh", bias=True),
        (*weight_and_bias("classifier.dense", "hidden"), *weight_and_bias("classifier.out_proj", "out")),
        dropout=("classifier_dropout", "hidden_dropout_prob"),
    )


def _encoder(kind: str, name: str, settings: SettingTable) -> EncoderType:
    return EncoderType(
        BertConfig,
        settings,
        _read_config_with(settings),
        _write_config_as(kind, name),
        roberta_weight_table,
        prefix="roberta.",
        head_patterns=("lm_head.*", "classifier.*", "qa_outputs.*"),
        ignored=POSITION_BUFFERS,
        tied_copies={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"},
        old_endings=OLD_NORMS,
        readout="lm_head",
        heads={"class": _class_head(f"{name}ForSequenceClassification")},
    )


ROBERTA = _encoder("roberta", "Roberta", ROBERTA_SETTINGS)
XLM_ROBERTA = _encoder("xlm-roberta", "XLMRoberta", SETTINGS)
