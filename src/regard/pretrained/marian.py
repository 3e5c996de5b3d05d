"""Encoder–decoders with sinusoids: public checkpoints of types marian (norms after) and pegasus (norms before)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.layers.positions import sinusoids
from regard.models import TransformerConfig
from regard.pretrained.names import Line, both, layered, line
from regard.pretrained.public import Given, Public, Table, their_heads, their_settings

COMMON: Table = {
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
MARIAN_SETTINGS: Table = {
    **COMMON,
    "source_vocab": ("vocab_size", 58101),
    "target_vocab": ("decoder_vocab_size", None),
}
PEGASUS_SETTINGS: Table = {**COMMON, "source_vocab": ("vocab_size", 50265)}
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def _stack(side: str, layers: int) -> list[Line]:
    theirs, ours = f"model.{side}.layers.{{}}", f"{side}.blocks.{{}}"

    def attention(name: str, here: str) -> list[Line]:
        inputs = " ".join(f"{theirs}.{name}.{part}_proj" for part in "qkv")
        return [
            *both(inputs, f"{ours}.{here}.qkv"),
            *both(f"{theirs}.{name}.out_proj", f"{ours}.{here}.out"),
            *both(f"{theirs}.{name}_layer_norm", f"{ours}.{here}_norm"),
        ]

    block = [
        *attention("self_attn", "attention"),
        *(attention("encoder_attn", "cross") if side == "decoder" else []),
        *both(f"{theirs}.fc1", f"{ours}.feed.up"),
        *both(f"{theirs}.fc2", f"{ours}.feed.down"),
        *both(f"{theirs}.final_layer_norm", f"{ours}.feed_norm"),
    ]
    return layered(block, layers)


def _embeddings(config: TransformerConfig) -> list[Line]:
    """Which matrices there are follows from which are one."""
    head = [line("lm_head.weight", "readout_.weight")] if config.shared in ("sides", "none") else []
    if config.shared in ("all", "sides"):
        return [line("model.shared.weight", "embedding.tokens.weight"), *head]
    return [
        line("model.encoder.embed_tokens.weight", "source_embedding.tokens.weight"),
        line("model.decoder.embed_tokens.weight", "embedding.tokens.weight"),
        *head,
    ]


def lines(config: TransformerConfig) -> list[Line]:
    last = [*both("model.encoder.layer_norm", "encoder.norm"), *both("model.decoder.layer_norm", "decoder.norm")]
    return [
        *_embeddings(config),
        *_stack("encoder", config.layers),
        *_stack("decoder", config.decoder_layers or config.layers),
        *(last if config.norm_place == "pre" else []),
        *([Line(("final_logits_bias",), "readout_bias", row=True)] if config.readout_bias else []),
    ]


def _read(given: Given, names: frozenset[str], norm_place: str) -> TransformerConfig:
    for name in ("normalize_embedding", "static_position_embeddings"):
        given.expect(name, name.startswith("static"), name.startswith("static"))
    given.expect("normalize_before", norm_place == "pre", norm_place == "pre")
    given.expect("add_final_layer_norm", norm_place == "pre", norm_place == "pre")
    found = given.those_of(PEGASUS_SETTINGS if norm_place == "pre" else MARIAN_SETTINGS)
    for name in ("layers", "heads", "inner"):
        if found[f"decoder_{name}"] == found[name]:
            del found[f"decoder_{name}"]
    one, own_head = "model.shared.weight" in names, "lm_head.weight" in names
    shared = {(True, False): "all", (True, True): "sides", (False, False): "target", (False, True): "none"}
    return TransformerConfig(
        **{"target_vocab": found["source_vocab"]} | found,
        norm_place=norm_place,
        epsilon=1e-5,
        positions="sinusoidal-halves",
        shared=shared[one, own_head],
        scaled=given.truth("scale_embedding", False),
        readout_bias="final_logits_bias" in names,
    )


def _write_marian(config: TransformerConfig) -> dict[str, Any]:
    return {
        **_write(config, MARIAN_SETTINGS),
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "share_encoder_decoder_embeddings": config.shared in ("all", "sides"),
    }


def _tables(config: TransformerConfig) -> dict[str, Tensor]:
    """The sinusoids, which are saved by most classes of the reference, and missed where they are not there."""
    table = sinusoids(torch.arange(config.context), config.width, interleaved=False)
    return {name: table.clone() for name in POSITIONS}


def _unread(config: TransformerConfig) -> dict[str, Tensor]:
    """What Pegasus saves though nothing is in it: sinusoids, and the embedding that its sides do not share."""
    own = config.shared == "none"
    unread = {"model.shared.weight": torch.zeros(config.source_vocab, config.width)} if own else {}
    return _tables(config) | unread


def _write_pegasus(config: TransformerConfig) -> dict[str, Any]:
    return {
        **_write(config, PEGASUS_SETTINGS),
        "model_type": "pegasus",
        "architectures": ["PegasusForConditionalGeneration"],
    }


def _write(config: TransformerConfig, table: Table) -> dict[str, Any]:
    decoder = config.decoder
    return {
        "is_encoder_decoder": True,
        **their_settings(config, table),
        "decoder_layers": decoder.layers,
        "decoder_attention_heads": their_heads(decoder),
        "decoder_ffn_dim": decoder.inner,
        "tie_word_embeddings": config.shared in ("all", "target"),
        "scale_embedding": config.scaled,
    }


COPIES = {
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "lm_head.weight": "model.shared.weight",
}
OWN = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
HEADS = ("lm_head.weight", "final_logits_bias")


@dataclass(frozen=True)
class Sided(Public):
    """A type whose sides may have embeddings of their own; the one that they would share then stands there unread."""

    def normal(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().normal(tensors)
        if found.keys() >= OWN:
            found.pop("model.shared.weight", None)
        return found


MARIAN = Sided(
    TransformerConfig,
    MARIAN_SETTINGS,
    lambda given, names: _read(given, names, "post"),
    _write_marian,
    lines,
    prefix="model.",
    heads=HEADS,
    ignored=POSITIONS,
    copies=COPIES,
    bodies={"MarianModel": _tables},
)
PEGASUS = Sided(
    TransformerConfig,
    PEGASUS_SETTINGS,
    lambda given, names: _read(given, names, "pre"),
    _write_pegasus,
    lines,
    prefix="model.",
    heads=HEADS,
    ignored=POSITIONS,
    copies=COPIES,
    constants=_unread,
)
