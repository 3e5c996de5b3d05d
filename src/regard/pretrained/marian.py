"""Settings and weight tables of encoder–decoders with sinusoids: marian (post-norm) and pegasus (pre-norm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.positions import sinusoids
from regard.models import TransformerConfig
from regard.pretrained.checkpoint_type import CheckpointType, ConfigReader, SettingTable, their_heads, their_settings
from regard.pretrained.weight_table import WeightEntry, entry, for_all_layers, weight_and_bias

COMMON: SettingTable = {
    "width": ("d_model", 1024),
    "layers": ("encoder_layers", 12),
    "heads": ("encoder_attention_heads", 16),
    "inner": ("encoder_ffn_dim", 4096),
    "decoder_layers": ("decoder_layers", 12),
    "decoder_heads": ("decoder_attention_heads", 16),
    "decoder_inner": ("decoder_ffn_dim", 4096),
    "activation": ("activation_function", "gelu"),
    "context": ("max_position_embeddings", 1024),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "feed_dropout": ("activation_dropout", 0.0),
}
MARIAN_SETTINGS: SettingTable = {
    **COMMON,
    "source_vocab": ("vocab_size", 58101),
    "target_vocab": ("decoder_vocab_size", None),
}
PEGASUS_SETTINGS: SettingTable = {**COMMON, "source_vocab": ("vocab_size", 50265)}
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def _stack_entries(side: str, layers: int) -> list[WeightEntry]:
    theirs, ours = f"model.{side}.layers.{{}}", f"{side}.blocks.{{}}"

    def attention(name: str, here: str) -> list[WeightEntry]:
        inputs = " ".join(f"{theirs}.{name}.{part}_proj" for part in "qkv")
        return [
            *weight_and_bias(inputs, f"{ours}.{here}.qkv"),
            *weight_and_bias(f"{theirs}.{name}.out_proj", f"{ours}.{here}.out"),
            *weight_and_bias(f"{theirs}.{name}_layer_norm", f"{ours}.{here}_norm"),
        ]

    block = [
        *attention("self_attn", "attention"),
        *(attention("encoder_attn", "cross") if side == "decoder" else []),
        *weight_and_bias(f"{theirs}.fc1", f"{ours}.feed.up"),
        *weight_and_bias(f"{theirs}.fc2", f"{ours}.feed.down"),
        *weight_and_bias(f"{theirs}.final_layer_norm", f"{ours}.feed_norm"),
    ]
    return for_all_layers(block, layers)


def marian_weight_table(config: TransformerConfig) -> list[WeightEntry]:
    """The weight table of both types. Embeddings and a readout that are shared are stored once."""
    if config.shared in ("all", "sides"):
        table = [entry("model.shared.weight", "embedding.tokens.weight")]
    else:
        sides = {"encoder": "source_embedding", "decoder": "embedding"}
        table = [entry(f"model.{side}.embed_tokens.weight", f"{sides[side]}.tokens.weight") for side in sides]
    table += [entry("lm_head.weight", "readout_.weight")] if config.shared in ("sides", "none") else []
    table += _stack_entries("encoder", config.layers)
    table += _stack_entries("decoder", config.decoder_layers or config.layers)
    for side in ("encoder", "decoder") if config.norm_place == "pre" else ():
        table += weight_and_bias(f"model.{side}.layer_norm", f"{side}.norm")
    table += [WeightEntry(("final_logits_bias",), "readout_bias", row_vector=True)] if config.readout_bias else []
    return table


def _read_config(reader: ConfigReader, names: frozenset[str], norm_place: str) -> TransformerConfig:
    pre = norm_place == "pre"
    if not any(name.startswith("model.encoder.") for name in names):
        raise UserError(f"{reader.path}: the weights are those of a decoder alone, which is not read; give both sides.")
    reader.expect({"normalize_embedding": False, "static_position_embeddings": True})
    reader.expect({"normalize_before": pre, "add_final_layer_norm": pre})
    found = reader.read_table(PEGASUS_SETTINGS if pre else MARIAN_SETTINGS)
    for name in ("layers", "heads", "inner"):
        if found[f"decoder_{name}"] == found[name]:
            del found[f"decoder_{name}"]
    shared_embedding, untied_head = "model.shared.weight" in names, "lm_head.weight" in names
    shared = {(True, False): "all", (True, True): "sides", (False, False): "target", (False, True): "none"}
    return TransformerConfig(
        **{"target_vocab": found["source_vocab"]} | found,
        norm_place=norm_place,
        epsilon=1e-5,
        positions="sinusoidal-halves",
        shared=shared[shared_embedding, untied_head],
        scaled=reader.boolean("scale_embedding", False),
        readout_bias="final_logits_bias" in names,
    )


def _sinusoid_tables(config: TransformerConfig) -> dict[str, Tensor]:
    """The sinusoids of both sides: constants that most classes of the reference save and require."""
    table = sinusoids(torch.arange(config.context), config.width, interleaved=False)
    return {name: table.clone() for name in POSITIONS}


def _marian_constants(config: TransformerConfig, classes: Sequence[str]) -> dict[str, Tensor]:
    return _sinusoid_tables(config) if "MarianModel" in classes else {}


def _pegasus_constants(config: TransformerConfig, classes: Sequence[str]) -> dict[str, Tensor]:
    """Tensors that Pegasus saves but does not use: sinusoids, and a shared embedding where none is shared."""
    untied = config.shared == "none"
    unused = {"model.shared.weight": torch.zeros(config.source_vocab, config.width)} if untied else {}
    return _sinusoid_tables(config) | unused


def _write_config(config: TransformerConfig, kind: str, architecture: str, table: SettingTable) -> dict[str, Any]:
    decoder = config.decoder
    return {
        "model_type": kind,
        "architectures": [architecture],
        "is_encoder_decoder": True,
        **their_settings(config, table),
        "decoder_layers": decoder.layers,
        "decoder_attention_heads": their_heads(decoder),
        "decoder_ffn_dim": decoder.inner,
        "tie_word_embeddings": config.shared in ("all", "target"),
        "scale_embedding": config.scaled,
        **({"share_encoder_decoder_embeddings": config.shared in ("all", "sides")} if kind == "marian" else {}),
    }


SIDE_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


@dataclass(frozen=True)
class MarianType(CheckpointType):
    """A type whose encoder and decoder may have separate embeddings; the file then holds an unused shared one too."""

    def normalized(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normalized(tensors)
        if found.keys() >= {*SIDE_EMBEDDINGS}:
            found.pop("model.shared.weight", None)
        return found


MARIAN = MarianType(
    TransformerConfig,
    MARIAN_SETTINGS,
    lambda reader, names: _read_config(reader, names, "post"),
    lambda config: _write_config(config, "marian", "MarianMTModel", MARIAN_SETTINGS),
    marian_weight_table,
    prefix="model.",
    head_patterns=("lm_head.weight", "final_logits_bias"),
    ignored=POSITIONS,
    tied_copies=dict.fromkeys((*SIDE_EMBEDDINGS, "lm_head.weight"), "model.shared.weight"),
    constants=_marian_constants,
)
PEGASUS = replace(
    MARIAN,
    settings=PEGASUS_SETTINGS,
    read_config=lambda reader, names: _read_config(reader, names, "pre"),
    write_config=lambda config: _write_config(config, "pegasus", "PegasusForConditionalGeneration", PEGASUS_SETTINGS),
    constants=_pegasus_constants,
)
