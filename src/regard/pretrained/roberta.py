"""RoBERTa and XLM-RoBERTa: names and settings of their public checkpoints (Liu et al. 2019; Conneau et al. 2020).

BERT's encoder; but its texts start below the padding: the first rows of the table of positions, up to that of the id of
padding, are never used by a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.models import BertConfig
from regard.pretrained.encoder import (
    BLOCK,
    COUNTS,
    OLD_NORMS,
    SETTINGS,
    Encoder,
    always_gelu,
    block,
    embeddings,
    read_settings,
    with_outputs,
    write_settings,
)
from regard.pretrained.names import Line, both, line
from regard.pretrained.public import Given, Table

ROBERTA_SETTINGS: Table = {**SETTINGS, "vocab": ("vocab_size", 50265)}
SIGNS = {"masked": "lm_head.", "pooled": "roberta.pooler."}


def lines(config: BertConfig) -> list[Line]:
    table = embeddings("roberta.embeddings", ("tokens", "positions", "segments"))
    for number in range(config.layers):
        table += block(f"roberta.encoder.layer.{number}", number, BLOCK)
    if "pooled" in config.outputs:
        table += both("roberta.pooler.dense", "pooled")
    if "masked" in config.outputs:
        table += [*both("lm_head.dense", "masked.dense"), *both("lm_head.layer_norm", "masked.norm")]
        table += [line("lm_head.bias", "masked.bias")]
        table += [] if config.tied else both("lm_head.decoder", "masked")
    return table


def reader(settings: Table) -> Callable[[Given, frozenset[str]], BertConfig]:
    """Reads the settings of one of the two types: what they leave out is not the same."""

    def read(given: Given, names: frozenset[str]) -> BertConfig:
        config = read_settings(given, settings)
        first = given.whole("pad_token_id", 1) + 1
        if config.context <= first:
            raise given.wrong("max_position_embeddings", f"more than {first}, as pad_token_id={first - 1}")
        config = replace(config, first_position=first, context=config.context - first)
        return always_gelu(with_outputs(config, names, SIGNS, "lm_head.decoder.weight", given))

    return read


def writer(kind: str, name: str) -> Callable[[BertConfig], dict[str, Any]]:
    """Writes the settings of one of the two types: its name in config.json, and that of its classes."""

    def write(config: BertConfig) -> dict[str, Any]:
        first = max(config.first_position, 1)
        return {
            "model_type": kind,
            "architectures": [name + ("ForMaskedLM" if "masked" in config.outputs else "Model")],
            **write_settings(config, ROBERTA_SETTINGS),
            "max_position_embeddings": config.context + first,
            "pad_token_id": first - 1,
        }

    return write


def _encoder(kind: str, name: str, settings: Table) -> Encoder:
    return Encoder(
        BertConfig,
        settings,
        reader(settings),
        writer(kind, name),
        lines,
        prefix="roberta.",
        heads=("lm_head.*", "classifier.*", "qa_outputs.*"),
        ignored=COUNTS,
        copies={"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"},
        renamed=OLD_NORMS,
        readout="lm_head",
    )


ROBERTA = _encoder("roberta", "Roberta", ROBERTA_SETTINGS)
XLM_ROBERTA = _encoder("xlm-roberta", "XLMRoberta", SETTINGS)
