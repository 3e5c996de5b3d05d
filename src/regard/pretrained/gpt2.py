"""GPT-2: names and settings of public checkpoints of type gpt2."""

from __future__ import annotations

from typing import Any

from regard.models import GptConfig
from regard.pretrained.names import Line, both, layered, line
from regard.pretrained.public import Given, Public, their_activation

BLOCK = [
    *both("transformer.h.{}.ln_1", "stack.blocks.{}.attention_norm"),
    *both("transformer.h.{}.attn.c_attn", "stack.blocks.{}.attention.qkv", turned=True),
    *both("transformer.h.{}.attn.c_proj", "stack.blocks.{}.attention.out", turned=True),
    *both("transformer.h.{}.ln_2", "stack.blocks.{}.feed_norm"),
    *both("transformer.h.{}.mlp.c_fc", "stack.blocks.{}.feed.up", turned=True),
    *both("transformer.h.{}.mlp.c_proj", "stack.blocks.{}.feed.down", turned=True),
]


def lines(config: GptConfig) -> list[Line]:
    return [
        line("transformer.wte.weight", "embedding.tokens.weight"),
        line("transformer.wpe.weight", "embedding.positions.weight"),
        *layered(BLOCK, config.layers),
        *both("transformer.ln_f", "stack.norm"),
        *([] if config.tied else [line("lm_head.weight", "readout_.weight")]),
    ]


def read(given: Given, names: frozenset[str]) -> GptConfig:
    given.expect("scale_attn_by_inverse_layer_idx", False, False)
    given.expect("add_cross_attention", False, False)
    width = given.whole("n_embd", 768)
    return GptConfig(
        vocab=given.whole("vocab_size", 50257),
        width=width,
        heads=given.heads("n_head", 12, width),
        layers=given.whole("n_layer", 12),
        inner=4 * width if given.get("n_inner") is None else given.whole("n_inner"),
        activation=given.activation("activation_function", "gelu_new"),
        epsilon=given.number("layer_norm_epsilon", 1e-5),
        context=given.whole("n_positions", 1024),
        dropout=given.number("resid_pdrop", 0.1),
        attention_dropout=given.number("attn_pdrop", 0.1),
        score="scaled_dot" if given.truth("scale_attn_weights", True) else "dot",
        tied="lm_head.weight" not in names and given.truth("tie_word_embeddings", True),
    )


def write_common(config: GptConfig) -> dict[str, Any]:
    """What the files of GPT and of GPT-2 call by the same names."""
    return {
        "vocab_size": config.vocab,
        "n_embd": config.width,
        "n_head": 1 if config.width % config.heads else config.heads,  # no other widths of heads: found on reading back
        "n_layer": config.layers,
        "layer_norm_epsilon": config.epsilon,
        "n_positions": config.context,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tied,
    }


def write(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **write_common(config),
        "n_inner": config.inner,
        "activation_function": their_activation(config.activation),
        "scale_attn_weights": config.score == "scaled_dot",
    }


GPT2 = Public(
    GptConfig,
    read,
    write,
    lines,
    prefix="transformer.",
    heads=("lm_head.*",),
    ignored=("*.attn.bias", "*.attn.masked_bias"),
    copies={"lm_head.weight": "transformer.wte.weight"},
)
