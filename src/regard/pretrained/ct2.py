"""A Transformer as a directory that the `ctranslate2` engine opens: its weights, and the names of the tokens.

The engine's own description of a Transformer has a place for each of our parts; nothing is renamed twice. Sinusoids are
written out as a table, so that their order does not matter. What a search of ours never says (padding, begin) has a
bias that keeps the engine from saying it.
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
from regard.layers.transformer import Block, FeedForward, Shape, Stack
from regard.models import Model, Transformer, TransformerConfig

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "gelu-sigmoid": "GELUSigmoid",
    "silu": "SWISH",
    "tanh": "Tanh",
}
HAS: dict[str, tuple[object, ...]] = {  # what the engine has of each setting of which it does not have everything
    "positions": ("none", "sinusoidal", "sinusoidal-halves", "learned"),
    "score": ("scaled_dot", "dot"),
    "windows": ((),),
    "groups": (0,),
    "residual": (True,),
}
UNSAID = -1e4  # the bias of what is never said: small enough for a probability of zero, and a number in half precision


def write_ct2(model: Model, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """model.bin, config.json and the vocabularies, in a folder that is there."""
    if not isinstance(model, Transformer):
        raise UserError("--to ctranslate2: is for the translation Transformer, and this is another model.")
    check(model.config)
    spec = described(model, target.special_tokens.forbidden)
    read, said = (
        _names(source, model.config.source_vocab, "source"),
        _names(target, model.config.target_vocab, "target"),
    )
    spec.register_source_vocabulary(read)
    spec.register_target_vocabulary(said)
    _set_special_tokens(spec.config, source, target, (read, said))
    spec.config.layer_norm_epsilon = model.config.epsilon
    spec.validate()
    spec.optimize()  # matrices that are equal are stored once
    spec.save(str(folder))


def check(config: TransformerConfig) -> None:
    """Refuse by name what the engine does not have."""
    for name, known in HAS.items():
        if (value := getattr(config, name)) not in known:
            words = ", ".join(format_value(one) or "none" for one in known)
            raise UserError(f"model.{name}={format_value(value)}: ctranslate2 has only {words}; say --to transformers.")
    for shape in (config, config.decoder):
        if shape.heads * shape.head != shape.width:
            raise UserError(
                f"model.head_width={shape.head}: in ctranslate2 the heads share the width out evenly; "
                "say --to transformers."
            )


def described(model: Transformer, unsaid: tuple[int, ...]) -> Any:
    """The engine's description of a model, every weight in its place."""
    specs = _engine().specs
    config = model.config
    encoder = specs.TransformerEncoderSpec(config.layers, config.heads, **_kind(config, specs))
    decoder = specs.TransformerDecoderSpec(config.decoder.layers, config.decoder.heads, **_kind(config, specs))
    _stack(encoder, model.encoder, config)
    _stack(decoder, model.decoder, config)
    _embedding(encoder, encoder.embeddings[0], model.source_embedding or model.embedding, config)
    _embedding(decoder, decoder.embeddings, model.embedding, config)
    head = model.embedding.tokens.weight if model.readout_ is None else model.readout_.weight
    bias = head.new_zeros(len(head)) if model.readout_bias is None else model.readout_bias.detach().clone()
    bias[list(unsaid)] = UNSAID
    decoder.projection.weight, decoder.projection.bias = _array(head), _array(bias)
    if config.readout_scale != 1.0:
        decoder.scale_outputs = config.readout_scale
    return specs.TransformerSpec(encoder, decoder)


def _engine() -> Any:
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise UserError(
            "--to ctranslate2: takes the ctranslate2 package; install it: pip install 'regard[ctranslate2]'"
        ) from error


def _kind(config: TransformerConfig, specs: Any) -> dict[str, Any]:
    return {
        "pre_norm": config.norm_place == "pre",
        "no_final_norm": not config.last_norm,
        "activation": getattr(specs.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.gated,
        "rms_norm": config.norm == "rms",
    }


def _stack(spec: Any, stack: Stack, config: TransformerConfig) -> None:
    for layer, block in zip(spec.layer, stack.layers):
        _block(layer, block, config)
    if stack.norm is not None:
        _norm(spec.layer_norm, stack.norm)


def _block(spec: Any, block: Block, config: TransformerConfig) -> None:
    _attention(spec.self_attention, block.attention, config)
    _norm(spec.self_attention.layer_norm, block.attention_norm)
    if block.cross is not None and block.cross_norm is not None:
        _attention(spec.attention, block.cross, config, apart=True)
        _norm(spec.attention.layer_norm, block.cross_norm)
    _feed(spec.ffn, block.feed)
    _norm(spec.ffn.layer_norm, block.feed_norm)


def _attention(spec: Any, attention: MultiHead, config: TransformerConfig, apart: bool = False) -> None:
    """Queries, keys and values are one matrix; to a source the queries are apart from the other two."""
    weight, bias = attention.qkv.weight, attention.qkv.bias
    first = attention.inner if apart else len(weight)
    for part, rows in zip(spec.linear, (slice(first), slice(first, None)) if apart else (slice(None),)):
        part.weight = _array(weight[rows])
        if bias is not None:
            part.bias = _array(bias[rows])
    _linear(spec.linear[-1], attention.out)
    if config.score == "dot":
        spec.queries_scale = 1.0


def _feed(spec: Any, feed: FeedForward) -> None:
    if feed.gate is None:
        _linear(spec.linear_0, feed.up)
    else:
        _linear(spec.linear_0, feed.gate)
        _linear(spec.linear_0_noact, feed.up)
    _linear(spec.linear_1, feed.down)


def _embedding(side: Any, spec: Any, embedding: TokenEmbedding, config: TransformerConfig) -> None:
    spec.weight = _array(embedding.tokens.weight)
    side.scale_embeddings = sqrt(config.width) if config.scaled else 1.0
    side.position_encodings.encodings = _array(_table(embedding, config))


def _table(embedding: TokenEmbedding, config: Shape) -> Tensor:
    """What is added at every position, (context, width)."""
    match config.positions:
        case "learned":
            assert isinstance(embedding.positions, nn.Embedding)
            return embedding.positions.weight
        case "none":
            return torch.zeros(config.context, config.width)
        case _:
            return sinusoids(torch.arange(config.context), config.width, config.positions == "sinusoidal")


def _linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().cpu().contiguous().numpy()


# -- vocabularies -----------------------------------------------------------------------------------------------------


def _names(tokenizer: Tokenizer, size: int, side: str) -> list[str]:
    """What its own files call each token, by id; rows of the model past the last have made-up names."""
    files = tokenizer.files()
    if "tokenizer.json" in files and "vocab.json" not in files:
        vocab = rust.Tokenizer.from_str(files["tokenizer.json"].decode()).get_vocab(with_added_tokens=True)
    elif "vocab.json" in files:
        vocab = json.loads(files.get(f"{side}_vocab.json", files["vocab.json"]))
    else:
        raise UserError(f"--to ctranslate2: the {side} tokenizer has no vocabulary to write ({', '.join(files)}).")
    by_id = {number: name for name, number in vocab.items()}
    return [by_id.get(number, f"< {number} >") for number in range(size)]


def _set_special_tokens(config: Any, source: Tokenizer, target: Tokenizer, names: tuple[list[str], list[str]]) -> None:
    """Where a sentence begins and ends; a source is framed by the engine, as its tokenizer says."""
    special_tokens, around = target.special_tokens, source.special_tokens
    read, said = names
    assert special_tokens.bos is not None, "a translator says sentences"
    assert special_tokens.eos is not None
    config.decoder_start_token, config.eos_token = said[special_tokens.bos], said[special_tokens.eos]
    config.bos_token = said[special_tokens.bos] if around.prefix is None else read[around.prefix]
    config.unk_token = said[special_tokens.pad if special_tokens.unk is None else special_tokens.unk]
    config.add_source_bos = around.prefix is not None
    config.add_source_eos = around.suffix is not None
    assert around.suffix is None or read[around.suffix] == config.eos_token, "both sides end alike"
