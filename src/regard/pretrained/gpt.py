"""Settings and weight tables of GPT-2 (type gpt2) and of the first GPT (type openai-gpt; Radford et al. 2018)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from regard.errors import UserError
from regard.models import GptConfig
from regard.pretrained.checkpoint_type import (
    CheckpointType,
    ConfigReader,
    Settings,
    SettingTable,
    their_settings,
)
from regard.pretrained.public_heads import double_heads, text_heads, token_heads
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers, weight_and_bias

COMMON: SettingTable = {  # settings with the same names in files of GPT and of GPT-2
    "width": ("n_embd", 768),
    "heads": ("n_head", 12),
    "layers": ("n_layer", 12),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
}
SETTINGS: SettingTable = {
    **COMMON,
    "vocab": ("vocab_size", 50257),
    "inner": ("n_inner", None),
    "activation": ("activation_function", "gelu_new"),
    "context": ("n_positions", 1024),
}
SCALE_BY_LAYER = "scale_attn_by_inverse_layer_idx"
QKV_NAME = re.compile(r"transformer\.h\.(\d+)\.attn\.c_attn\.\w+")
BLOCK = [
    *weight_and_bias("transformer.h.{}.ln_1", "stack.blocks.{}.attention_norm"),
    *weight_and_bias("transformer.h.{}.attn.c_attn", "stack.blocks.{}.attention.qkv", transposed=True),
    *weight_and_bias("transformer.h.{}.attn.c_proj", "stack.blocks.{}.attention.out", transposed=True),
    *weight_and_bias("transformer.h.{}.ln_2", "stack.blocks.{}.feed_norm"),
    *weight_and_bias("transformer.h.{}.mlp.c_fc", "stack.blocks.{}.feed.up", transposed=True),
    *weight_and_bias("transformer.h.{}.mlp.c_proj", "stack.blocks.{}.feed.down", transposed=True),
]


def gpt2_weight_table(config: GptConfig) -> list[WeightEntry]:
    return [
        entry("transformer.wte.weight", "embedding.tokens.weight"),
        entry("transformer.wpe.weight", "embedding.positions.weight"),
        *for_all_layers(BLOCK, config.layers),
        *weight_and_bias("transformer.ln_f", "stack.norm"),
        *([] if config.tied else [entry("lm_head.weight", "readout_.weight")]),
    ]


def read_gpt2_config(reader: ConfigReader, names: frozenset[str]) -> GptConfig:
    reader.expect({"add_cross_attention": False})
    reader.boolean(SCALE_BY_LAYER, False)  # `normalized` has already applied it to the weights
    found = reader.read_table(SETTINGS)
    return GptConfig(
        **{"inner": 4 * found["width"]} | found,
        score="scaled_dot" if reader.boolean("scale_attn_weights", True) else "dot",
        tied="lm_head.weight" not in names and reader.boolean("tie_word_embeddings", True),
    )


def write_gpt2_config(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **their_settings(config, SETTINGS),
        "embd_pdrop": config.dropout,
        "scale_attn_weights": config.score == "scaled_dot",
        SCALE_BY_LAYER: False,
        "tie_word_embeddings": config.tied,
    }


@dataclass(frozen=True)
class Gpt2Type(CheckpointType):
    """GPT-2. Some files divide the scores of layer n by n; here its queries are divided, which is the same network."""

    scales_by_layer: bool = False

    def with_settings(self, settings: Settings) -> Self:
        return replace(super().with_settings(settings), scales_by_layer=settings.get(SCALE_BY_LAYER) is True)

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        for name in found if self.scales_by_layer else ():
            if (layer := QKV_NAME.fullmatch(name)) and found[name].ndim:
                # Queries, keys and values are concatenated along the last dimension.
                queries, others = found[name].tensor_split((found[name].shape[-1] // 3,), -1)
                found[name] = torch.cat([queries / (int(layer[1]) + 1), others], -1)
        return found


GPT2 = Gpt2Type(
    GptConfig,
    SETTINGS,
    read_gpt2_config,
    write_gpt2_config,
    gpt2_weight_table,
    prefix="transformer.",
    head_patterns=("lm_head.*", "score.*", "classifier.*", "qa_outputs.*", "multiple_choice_head.*"),
    ignored=("*.attn.bias", "*.attn.masked_bias"),
    tied_copies={"lm_head.weight": "transformer.wte.weight"},
    heads={
        **text_heads("GPT2", "", "score", "none", pool="last"),
        **token_heads("GPT2", "classifier_dropout", "hidden_dropout"),
        **double_heads("GPT2"),
    },
)

# -- The first GPT: post-norm, and another activation ------------------------------------------------------------------

OPENAI_GPT_SETTINGS: SettingTable = {**COMMON, "vocab": ("vocab_size", 40478), "context": ("n_positions", 512)}
OPENAI_GPT_ACTIVATIONS = {
    "gelu": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}  # their gelu is an approximation


def openai_gpt_weight_table(config: GptConfig) -> list[WeightEntry]:
    return [
        entry("transformer.tokens_embed.weight", "embedding.tokens.weight"),
        entry("transformer.positions_embed.weight", "embedding.positions.weight"),
        *for_all_layers(BLOCK, config.layers),
        *([] if config.tied else [entry("lm_head.weight", "readout_.weight")]),
    ]


def read_openai_gpt_config(reader: ConfigReader, names: frozenset[str]) -> GptConfig:
    reader.expect({"pruned_heads": {}})
    afn = reader.get("afn", "gelu")
    if not isinstance(afn, str) or afn not in OPENAI_GPT_ACTIVATIONS:
        raise UserError(f"{reader.path}: afn={afn}: is not supported, only {', '.join(OPENAI_GPT_ACTIVATIONS)} are.")
    found = reader.read_table(OPENAI_GPT_SETTINGS)
    return GptConfig(
        **found,
        inner=4 * found["width"],
        activation=OPENAI_GPT_ACTIVATIONS[afn],
        norm_place="post",
        tied="lm_head.weight" not in names and reader.boolean("tie_word_embeddings", True),
    )


def write_openai_gpt_config(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        **their_settings(config, OPENAI_GPT_SETTINGS),
        "embd_pdrop": config.dropout,
        "tie_word_embeddings": config.tied,
        "afn": next((theirs for theirs, ours in OPENAI_GPT_ACTIVATIONS.items() if ours == config.activation), "gelu"),
    }


@dataclass(frozen=True)
class OpenAIGptType(CheckpointType):
    """The first GPT. A file of its double heads has the embedding under the name of the tied language model alone."""

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        for copy, original in self.tied_copies.items():
            if copy in found and original not in found:
                found[original] = found.pop(copy)
        return found


OPENAI_GPT = OpenAIGptType(
    GptConfig,
    OPENAI_GPT_SETTINGS,
    read_openai_gpt_config,
    write_openai_gpt_config,
    openai_gpt_weight_table,
    prefix="transformer.",
    head_patterns=("lm_head.*", "score.*", "multiple_choice_head.*"),
    ignored=("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids"),
    tied_copies={"lm_head.weight": "transformer.tokens_embed.weight"},
    heads={**text_heads("OpenAIGPT", "", "score", "none", pool="last"), **double_heads("OpenAIGPT")},
)
