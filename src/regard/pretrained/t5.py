"""T5, as first published and as its later, gated versions: public checkpoints of type t5."""

from __future__ import annotations

from typing import Any

from regard.errors import UserError
from regard.models import TransformerConfig
from regard.pretrained.names import Line, layered, line
from regard.pretrained.public import Given, Public, Table, their_settings

SETTINGS: Table = {  # of several that are one of theirs, the last is the one that is written
    "source_vocab": ("vocab_size", 32128),
    "target_vocab": ("vocab_size", 32128),
    "width": ("d_model", 512),
    "heads": ("num_heads", 8),
    "head_width": ("d_kv", 64),
    "layers": ("num_layers", 6),
    "decoder_layers": ("num_decoder_layers", None),
    "inner": ("d_ff", 2048),
    "epsilon": ("layer_norm_epsilon", 1e-6),
    "buckets": ("relative_attention_num_buckets", 32),
    "furthest": ("relative_attention_max_distance", 128),
    "attention_dropout": ("dropout_rate", 0.1),
    "feed_dropout": ("dropout_rate", 0.1),
    "dropout": ("dropout_rate", 0.1),
}
FEEDS = {  # their feed_forward_proj → our activation, gated or not
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
    "gated-relu": ("relu", True),
}


def _attention(theirs: str, ours: str) -> list[Line]:
    return [
        line(" ".join(f"{theirs}.{part}.weight" for part in "qkv"), f"{ours}.qkv.weight"),
        line(f"{theirs}.o.weight", f"{ours}.out.weight"),
    ]


def _feed(theirs: str, gated: bool) -> list[Line]:
    if not gated:
        ups = [line(f"{theirs}.DenseReluDense.wi.weight", "blocks.{}.feed.up.weight")]
    else:
        ups = [
            line(f"{theirs}.DenseReluDense.wi_0.weight", "blocks.{}.feed.gate.weight"),
            line(f"{theirs}.DenseReluDense.wi_1.weight", "blocks.{}.feed.up.weight"),
        ]
    down = line(f"{theirs}.DenseReluDense.wo.weight", "blocks.{}.feed.down.weight")
    return [*ups, down, line(f"{theirs}.layer_norm.weight", "blocks.{}.feed_norm.weight")]


def _stack(name: str, layers: int, gated: bool, reads_source: bool) -> list[Line]:
    block = [
        *_attention("block.{}.layer.0.SelfAttention", "blocks.{}.attention"),
        line("block.{}.layer.0.layer_norm.weight", "blocks.{}.attention_norm.weight"),
        *_feed("block.{}.layer.2" if reads_source else "block.{}.layer.1", gated),
    ]
    if reads_source:
        block += _attention("block.{}.layer.1.EncDecAttention", "blocks.{}.cross")
        block += [line("block.{}.layer.1.layer_norm.weight", "blocks.{}.cross_norm.weight")]
    lines = [
        *layered(block, layers),
        line("block.0.layer.0.SelfAttention.relative_attention_bias.weight", "bias.table.weight"),
        line("final_layer_norm.weight", "norm.weight"),
    ]
    return [one.under(f"{name}.", f"{name}.") for one in lines]


def lines(config: TransformerConfig) -> list[Line]:
    own_head = [line("lm_head.weight", "readout_.weight")] if config.shared == "sides" else []
    return [
        line("shared.weight", "embedding.tokens.weight"),
        *_stack("encoder", config.layers, config.gated, reads_source=False),
        *_stack("decoder", config.decoder_layers or config.layers, config.gated, reads_source=True),
        *own_head,
    ]


def read(given: Given, names: frozenset[str]) -> TransformerConfig:
    proj = given.get("feed_forward_proj", "relu")
    if proj not in FEEDS:
        raise UserError(f"{given.path}: feed_forward_proj={proj}: is not supported, only {', '.join(FEEDS)} are.")
    sides = {name.partition(".")[0] for name in names}
    if "encoder" in sides and "decoder" not in sides:
        raise UserError(f"{given.path}: is of an encoder alone (T5EncoderModel), which is not read; give a whole T5.")
    activation, gated = FEEDS[proj]
    found = given.those_of(SETTINGS)
    if found.get("decoder_layers") == found["layers"]:
        del found["decoder_layers"]
    tied = given.truth("tie_word_embeddings", True)
    return TransformerConfig(
        **found,
        activation=activation,
        gated=gated,
        norm="rms",
        attention_bias=False,
        feed_bias=False,
        score="dot",
        positions="t5",
        shared="sides" if "lm_head.weight" in names else "all",
        scaled=False,
        readout_scale=found["width"] ** -0.5 if given.truth("scale_decoder_outputs", tied) else 1.0,
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    scaled = config.readout_scale != 1.0
    proj = next((name for name, feed in FEEDS.items() if feed == (config.activation, config.gated)), "relu")
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **their_settings(config, SETTINGS),
        "d_kv": config.head,
        "num_decoder_layers": config.decoder.layers,
        "feed_forward_proj": proj,
        "tie_word_embeddings": config.shared == "all",
        "scale_decoder_outputs": scaled,
    }


T5 = Public(
    TransformerConfig,
    SETTINGS,
    read,
    write,
    lines,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    copies={"lm_head.weight": "shared.weight"},
    always={"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"},
)
