"""Converts a model of ours into an equivalent one that a public checkpoint type can hold.

The order of the features along the width is arbitrary: every operation sums over the whole width (matrix products,
means and variances). So the features may be permuted, as long as every weight that writes or reads them is permuted in
the same way. Our sinusoids are interleaved (sin, cos, sin, cos …); the permutation in this module gives the order of
the public types (sin, sin, … cos, cos).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import UserError
from regard.heads import NumberHead, PooledHeadConfig
from regard.layers.init import SkipInit
from regard.models import BertConfig, Headed, HeadedConfig, Model, Transformer

# Weights that read the features have them along their columns, weights that write them along their rows.
READS = ("tokens.weight", "qkv.weight", "up.weight", "gate.weight", "readout_.weight")
WRITES = ("out.weight", "out.bias", "down.weight", "down.bias", "norm.weight", "norm.bias")
PADDING_BIAS = -1e9  # the readout bias of the rows that pad a vocabulary


def to_public_form(model: Transformer) -> Transformer:
    """An equivalent Transformer whose settings fit a public type, if there is one."""
    model = deinterleave_sinusoids(model)
    config = model.config
    # No type shares a matrix between source and target without the readout. The pre-norm type (pegasus) shares all
    # matrices or none, and has vocabularies of one size.
    unequal = config.shared == "target" or config.source_vocab != config.target_vocab
    untie = config.shared == "sides" or (config.norm_place == "pre" and unequal)
    return untie_embeddings(model) if untie and config.positions == "sinusoidal-halves" else model


def deinterleave_sinusoids(model: Transformer) -> Transformer:
    """An equivalent Transformer whose sinusoids have all sines first: its features are permuted."""
    if model.config.positions != "sinusoidal":
        return model
    places = torch.arange(model.config.width, device=model.embedding.tokens.weight.device)
    order = torch.cat([places[::2], places[1::2]])
    weights = dict(model.state_dict())
    for name, tensor in weights.items():
        if name.endswith(READS):
            weights[name] = tensor[:, order]
        elif name.endswith(WRITES):
            weights[name] = tensor[order]
    return _build(replace(model.config, positions="sinusoidal-halves"), weights)


def untie_embeddings(model: Transformer) -> Transformer:
    """An equivalent Transformer with separate source embedding, target embedding and readout, of one vocabulary size.

    Shared matrices are copied. The smaller vocabulary is padded with rows of zeros; padded target tokens get a bias of
    PADDING_BIAS, so that they are never produced.
    """
    config, weights = model.config, dict(model.state_dict())
    target = weights["embedding.tokens.weight"]
    size = max(config.source_vocab, config.target_vocab)
    for name in ("source_embedding.tokens.weight", "embedding.tokens.weight", "readout_.weight"):
        matrix = weights.get(name, target)
        weights[name] = F.pad(matrix, (0, 0, 0, size - len(matrix)))
    bias = weights.get("readout_bias", target.new_zeros(config.target_vocab))
    biased = config.readout_bias or size > config.target_vocab
    if biased:
        weights["readout_bias"] = F.pad(bias, (0, size - config.target_vocab), value=PADDING_BIAS)
    return _build(replace(config, source_vocab=size, target_vocab=size, shared="none", readout_bias=biased), weights)


def add_segment(model: Headed) -> Headed:
    """An equivalent classifier whose BERT has one segment embedding, of zeros, if it has none.

    Of the public types, only DistilBERT has no segments, and the hidden layer of its classifier has another activation.
    """
    body, head = model.config.body, model.config.head
    fits = isinstance(body, BertConfig) and isinstance(head, PooledHeadConfig) and head.hidden == "tanh"
    if not fits or body.segments:
        return model
    weights = dict(model.state_dict())
    tokens = weights["body.embedding.tokens.weight"]
    weights["body.embedding.segments.weight"] = torch.zeros_like(tokens[:1])
    return _build(HeadedConfig(replace(body, segments=1), head), weights)


def move_positions(model: Model, pad: int | None) -> Model:
    """An equivalent RoBERTa whose positions start after the row of the padding token, as its public type has it.

    `pad` is the id of that token, if there is one. A public RoBERTa tells padding by its id and counts positions from
    the next row on; in a run the first position does not depend on the tokenizer.
    """
    body, head = model.config.split()
    if pad is None or not isinstance(body, BertConfig) or body.first_position in (0, pad + 1):
        return model
    weights = dict(model.state_dict())
    name = "body.embedding.positions.weight" if head is not None else "embedding.positions.weight"
    rows = weights[name][body.first_position :]
    weights[name] = torch.cat((rows.new_zeros(pad + 1, rows.shape[1]), rows))
    moved = replace(body, first_position=pad + 1)
    return cast(Model, _build(moved if head is None else HeadedConfig(moved, head), weights))


def fold_statistics(model: Headed) -> Headed:
    """An equivalent model of numbers whose last layer has the mean and the deviation of the training numbers in it.

    No public type has them. A model that does not predict numbers is returned as it is.
    """
    head = model.head
    if not isinstance(head, NumberHead):
        return model
    mean, deviation = head.mean_and_deviation()
    weights = dict(model.state_dict())
    if head.out.bias is None and mean != 0:
        raise UserError("head.bias=false: a public type has no mean of the training numbers; train with head.bias=true")
    weights["head.out.weight"] = deviation * head.out.weight.detach()
    if head.out.bias is not None:
        weights["head.out.bias"] = mean + deviation * head.out.bias.detach()
    return _build(model.config, weights | without_statistics(weights))


def without_statistics(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The statistics of a model of numbers, if it is one, as those of no numbers."""
    return {name: torch.zeros(tensor.shape) for name, tensor in weights.items() if name == "head.statistics"}


def _build(config: Any, weights: dict[str, Tensor]) -> Any:
    """The model of a config, with these weights."""
    with SkipInit():
        model = config.build()
    model.load_state_dict(weights)
    return model.eval()
