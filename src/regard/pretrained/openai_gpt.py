"""GPT, the first: names and settings of public checkpoints of type openai-gpt (Radford et al. 2018)."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.models import GptConfig
from regard.pretrained.gpt2 import BLOCK, write_common
from regard.pretrained.names import Line, layered, line
from regard.pretrained.public import Given, Public

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
    width = given.whole("n_embd", 768)
    return GptConfig(
        vocab=given.whole("vocab_size", 40478),
        width=width,
        heads=given.heads("n_head", 12, width),
        layers=given.whole("n_layer", 12),
        inner=4 * width,
        activation=ACTIVATIONS[afn],
        norm_place="post",
        epsilon=given.number("layer_norm_epsilon", 1e-5),
        context=given.whole("n_positions", 512),
        dropout=given.number("resid_pdrop", 0.1),
        attention_dropout=given.number("attn_pdrop", 0.1),
        tied="lm_head.weight" not in names and given.truth("tie_word_embeddings", True),
    )


def write(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        **write_common(config),
        "afn": next((theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation), "gelu"),
    }


OPENAI_GPT = Public(
    GptConfig,
    read,
    write,
    lines,
    prefix="transformer.",
    heads=("lm_head.*",),
    ignored=("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids"),
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
)
