"""GPT-2: names and settings of public checkpoints of type gpt2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from regard.models import GptConfig
from regard.pretrained.names import Line, both, layered, line
from regard.pretrained.public import Given, Public, Settings, Table, their_settings

COMMON: Table = {  # what the files of GPT and of GPT-2 call by the same names
    "width": ("n_embd", 768),
    "heads": ("n_head", 12),
    "layers": ("n_layer", 12),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
}
SETTINGS: Table = {
    **COMMON,
    "vocab": ("vocab_size", 50257),
    "inner": ("n_inner", None),
    "activation": ("activation_function", "gelu_new"),
    "context": ("n_positions", 1024),
}
BY_LAYER = "scale_attn_by_inverse_layer_idx"
INPUTS = re.compile(r"transformer\.h\.(\d+)\.attn\.c_attn\.\w+")
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
    given.expect("add_cross_attention", False, False)
    given.truth(BY_LAYER, False)  # is in the weights by now
    found = given.those_of(SETTINGS)
    return GptConfig(
        **{"inner": 4 * found["width"]} | found,
        score="scaled_dot" if given.truth("scale_attn_weights", True) else "dot",
        tied="lm_head.weight" not in names and given.truth("tie_word_embeddings", True),
    )


def write(config: GptConfig) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        **their_settings(config, SETTINGS),
        "embd_pdrop": config.dropout,
        "scale_attn_weights": config.score == "scaled_dot",
        BY_LAYER: False,
        "tie_word_embeddings": config.tied,
    }


@dataclass(frozen=True)
class ByLayer(Public):
    """A type some of whose files divide the scores of layer n by n. Here its queries are, which is the same network."""

    divides: bool = False

    def set_to(self, settings: Settings) -> Self:
        return replace(super().set_to(settings), divides=settings.get(BY_LAYER) is True)

    def normal(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normal(tensors)
        for name in found if self.divides else ():
            if (layer := INPUTS.fullmatch(name)) and found[name].ndim:
                # Queries, keys and values stand side by side in the last dimension.
                queries, others = found[name].tensor_split((found[name].shape[-1] // 3,), -1)
                found[name] = torch.cat([queries / (int(layer[1]) + 1), others], -1)
        return found


GPT2 = ByLayer(
    GptConfig,
    SETTINGS,
    read,
    write,
    lines,
    prefix="transformer.",
    heads=("lm_head.*",),
    ignored=("*.attn.bias", "*.attn.masked_bias"),
    copies={"lm_head.weight": "transformer.wte.weight"},
)
