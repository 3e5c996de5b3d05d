"""Writes a Transformer as a directory that CTranslate2 opens: its weights, and the names of the tokens.

CTranslate2's own model specification has an attribute for each of our parts. Sinusoids are written as a table, so that
their order does not matter. Tokens that our searches never produce (padding, begin) get a large negative bias, so that
CTranslate2 does not produce them either.
"""

from __future__ import annotations

import json
from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any

import tokenizers as rust
import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.config import format_value
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.layers.positions import sinusoids
from regard.layers.tokens import TokenEmbedding
from regard.layers.transformer import FeedForward, Stack
from regard.models import Model, Transformer, TransformerConfig

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "gelu-sigmoid": "GELUSigmoid",
    "silu": "SWISH",
    "tanh": "Tanh",
}
SUPPORTED: dict[str, tuple[object, ...]] = {  # the values that CTranslate2 supports of some settings
    "positions": ("none", "sinusoidal", "sinusoidal-halves", "learned"),
    "score": ("scaled_dot", "dot"),
    "windows": ((),),
    "groups": (0,),
    "residual": (True,),
}
FORBIDDEN_BIAS = -1e4  # the bias of forbidden tokens: their probability is zero, and half precision can hold it


def write_ct2(model: Model, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """Write model.bin, config.json and the vocabularies into an existing folder."""
    if not isinstance(model, Transformer):
        raise UserError("--to ctranslate2: only translation Transformers can be written, and this is another model.")
    check_supported(model.config)
    spec = build_spec(model, target.special_tokens.forbidden)
    source_names = _token_names(source, model.config.source_vocab, "source")
    target_names = _token_names(target, model.config.target_vocab, "target")
    spec.register_source_vocabulary(source_names)
    spec.register_target_vocabulary(target_names)
    special_tokens, prefix, suffix = target.special_tokens, source.special_tokens.prefix, source.special_tokens.suffix
    assert special_tokens.bos is not None, "a target tokenizer has bos"
    assert special_tokens.eos is not None
    config = spec.config
    config.decoder_start_token, config.eos_token = target_names[special_tokens.bos], target_names[special_tokens.eos]
    config.bos_token = target_names[special_tokens.bos] if prefix is None else source_names[prefix]
    config.unk_token = target_names[special_tokens.pad if special_tokens.unk is None else special_tokens.unk]
    config.add_source_bos = prefix is not None
    config.add_source_eos = suffix is not None
    assert suffix is None or source_names[suffix] == config.eos_token, "source and target have the same eos"
    config.layer_norm_epsilon = model.config.epsilon
    spec.validate()
    spec.optimize()  # matrices that are equal are stored once
    spec.save(str(folder))


def check_supported(config: TransformerConfig) -> None:
    """Raise a UserError that names a setting which CTranslate2 does not support."""
    for name, known in SUPPORTED.items():
        if (value := getattr(config, name)) not in known:
            words = ", ".join(format_value(one) or "none" for one in known)
            raise UserError(
                f"model.{name}={format_value(value)}: ctranslate2 has only {words}; give --to transformers."
            )
    for shape in (config, config.decoder):
        if shape.heads * shape.head != shape.width:
            raise UserError(
                f"model.head_width={shape.head}: ctranslate2 needs heads × head width = width; give --to transformers."
            )


def build_spec(model: Transformer, forbidden: tuple[int, ...]) -> Any:
    """CTranslate2's specification of a model, with all weights."""
    try:
        specs = import_module("ctranslate2").specs
    except ImportError as error:
        raise UserError(
            "--to ctranslate2: needs the ctranslate2 package; install it: pip install 'regard[ctranslate2]'"
        ) from error
    config = model.config
    options = {
        "pre_norm": config.norm_place == "pre",
        "no_final_norm": not config.last_norm,
        "activation": getattr(specs.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.gated,
        "rms_norm": config.norm == "rms",
    }
    encoder = specs.TransformerEncoderSpec(config.layers, config.heads, **options)
    decoder = specs.TransformerDecoderSpec(config.decoder.layers, config.decoder.heads, **options)
    _fill_stack(encoder, model.encoder, config)
    _fill_stack(decoder, model.decoder, config)
    _fill_embedding(encoder, encoder.embeddings[0], model.source_embedding or model.embedding, config)
    _fill_embedding(decoder, decoder.embeddings, model.embedding, config)
    head = model.embedding.tokens.weight if model.readout_ is None else model.readout_.weight
    bias = head.new_zeros(len(head)) if model.readout_bias is None else model.readout_bias.detach().clone()
    bias[list(forbidden)] = FORBIDDEN_BIAS
    decoder.projection.weight, decoder.projection.bias = _array(head), _array(bias)
    if config.readout_factor != 1.0:
        decoder.scale_outputs = config.readout_factor
    return specs.TransformerSpec(encoder, decoder)


def _fill_stack(spec: Any, stack: Stack, config: TransformerConfig) -> None:
    for layer, block in zip(spec.layer, stack.layers):
        _fill_attention(layer.self_attention, block.attention, config)
        _fill_norm(layer.self_attention.layer_norm, block.attention_norm)
        if block.cross is not None and block.cross_norm is not None:
            _fill_attention(layer.attention, block.cross, config, cross=True)
            _fill_norm(layer.attention.layer_norm, block.cross_norm)
        feed: FeedForward = block.feed
        if feed.gate is None:
            _fill_linear(layer.ffn.linear_0, feed.up)
        else:
            _fill_linear(layer.ffn.linear_0, feed.gate)
            _fill_linear(layer.ffn.linear_0_noact, feed.up)
        _fill_linear(layer.ffn.linear_1, feed.down)
        _fill_norm(layer.ffn.layer_norm, block.feed_norm)
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_attention(spec: Any, attention: MultiHead, config: TransformerConfig, cross: bool = False) -> None:
    """In self-attention queries, keys and values are one matrix; in cross-attention the queries have their own."""
    weight, bias = attention.qkv.weight, attention.qkv.bias
    first = attention.inner if cross else len(weight)
    for part, rows in zip(spec.linear, (slice(first), slice(first, None)) if cross else (slice(None),)):
        part.weight = _array(weight[rows])
        if bias is not None:
            part.bias = _array(bias[rows])
    _fill_linear(spec.linear[-1], attention.out)
    if config.score == "dot":
        spec.queries_scale = 1.0


def _fill_embedding(side: Any, spec: Any, embedding: TokenEmbedding, config: TransformerConfig) -> None:
    spec.weight = _array(embedding.tokens.weight)
    side.scale_embeddings = sqrt(config.width) if config.scaled else 1.0
    if isinstance(embedding.positions, nn.Embedding):
        positions: Tensor = embedding.positions.weight  # (context, width)
    elif config.positions == "none":
        positions = torch.zeros(config.context, config.width)
    else:
        positions = sinusoids(torch.arange(config.context), config.width, config.positions == "sinusoidal")
    side.position_encodings.encodings = _array(positions)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()


def _token_names(tokenizer: Tokenizer, size: int, side: str) -> list[str]:
    """The name of each token in the tokenizer's files, by id; ids of the model past the last get generated names."""
    files = tokenizer.files()
    if "tokenizer.json" in files and "vocab.json" not in files:
        vocab = rust.Tokenizer.from_str(files["tokenizer.json"].decode()).get_vocab(with_added_tokens=True)
    elif "vocab.json" in files:
        vocab = json.loads(files.get(f"{side}_vocab.json", files["vocab.json"]))
    else:
        raise UserError(f"--to ctranslate2: the {side} tokenizer has no vocabulary to write ({', '.join(files)}).")
    by_id = {number: name for name, number in vocab.items()}
    return [by_id.get(number, f"< {number} >") for number in range(size)]
