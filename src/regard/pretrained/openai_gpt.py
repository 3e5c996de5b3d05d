"""GPT, the first: names and settings of public checkpoints of type openai-gpt (Radford et al. 2018)."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.models import GptConfig
from regard.pretrained.gpt2 import BLOCK, COMMON
from regard.pretrained.names import Line, layered, line
from regard.pretrained.public import Given, Public, Table, their_settings

SETTINGS: Table = {**COMMON, "vocab": ("vocab_size", 40478), "context": ("n_positions", 512)}
ACTIVATIONS = {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # their gelu is an approximation


def lines(config: GptConfig) -> list[Line]:
    return [
        line("transformer.tokens_embed.weight", "embedding.tokens.weight"),
        line("transformer.positions_embed.weight", "embedding.positions.weight"),
        *layered(BLOCK, config.layers),
        *([] if config.tied else [line("lm_head.weight", "readout_.weight")]),
    ]


def read(given: Given, names: frozenset[str]) -> GptConfig:
    given.expect("pruned_heads", {}, {})
    afn = given.get("afn", "gelu")
    if afn not in ACTIVATIONS:
        raise UserError(f"{given.path}: afn={afn}: is not supported, only {', '.join(ACTIVATIONS)} are.")
    found = given.those_of(SETTINGS)
    return GptConfig(
        **found,
        inner=4 * found["width"],
        activation=ACTIVATIONS[afn],
        norm_place="post",
        tied="lm_head.weight" not in names and given.truth("tie_word_embeddings", True),
    )


def write(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        **their_settings(config, SETTINGS),
        "embd_pdrop": config.dropout,
        "tie_word_embeddings": config.tied,
        "afn": next((theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation), "gelu"),
    }


OPENAI_GPT = Public(
    GptConfig,
    SETTINGS,
    read,
    write,
    lines,
    prefix="transformer.",
    heads=("lm_head.*",),
    ignored=("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids"),
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
)
