"""Settings and weight table of checkpoints of the first GPT (type openai-gpt; Radford et al. 2018)."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.models import GptConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_settings
from regard.pretrained.gpt2 import BLOCK, COMMON
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers

SETTINGS: SettingTable = {**COMMON, "vocab": ("vocab_size", 40478), "context": ("n_positions", 512)}
ACTIVATIONS = {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # their gelu is an approximation


def openai_gpt_weight_table(config: GptConfig) -> list[WeightEntry]:
    return [
        entry("transformer.tokens_embed.weight", "embedding.tokens.weight"),
        entry("transformer.positions_embed.weight", "embedding.positions.weight"),
        *for_all_layers(BLOCK, config.layers),
        *([] if config.tied else [entry("lm_head.weight", "readout_.weight")]),
    ]


def read_openai_gpt_config(reader: ConfigReader, names: frozenset[str]) -> GptConfig:
    reader.expect("pruned_heads", {}, {})
    afn = reader.get("afn", "gelu")
    if afn not in ACTIVATIONS:
        raise UserError(f"{reader.path}: afn={afn}: is not supported, only {', '.join(ACTIVATIONS)} are.")
    found = reader.read_table(SETTINGS)
    return GptConfig(
        **found,
        inner=4 * found["width"],
        activation=ACTIVATIONS[afn],
        norm_place="post",
        tied="lm_head.weight" not in names and reader.boolean("tie_word_embeddings", True),
    )


def write_openai_gpt_config(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        **their_settings(config, SETTINGS),
        "embd_pdrop": config.dropout,
        "tie_word_embeddings": config.tied,
        "afn": next((theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation), "gelu"),
    }


OPENAI_GPT = CheckpointType(
    GptConfig,
    SETTINGS,
    read_openai_gpt_config,
    write_openai_gpt_config,
    openai_gpt_weight_table,
    prefix="transformer.",
    head_patterns=("lm_head.*",),
    ignored=("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids"),
    tied_copies={"lm_head.weight": "transformer.tokens_embed.weight"},
)
