"""A translator of ours as one that a public type has: another network by its settings, the same by what it says.

The order of the numbers in a state means nothing. Nothing but whole sums over the width ever looks at it (matrix
products, means and variances), so the entries of all states may change places, as long as every weight that writes to
them or reads from them changes places in the same way. Of what is added to the embeddings only sinusoids are fixed, and
that decides it: sin, cos, sin, cos … in new places is sin, sin, … cos, cos, the order that the public types have.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.init import SkipInit
from regard.models import Transformer, TransformerConfig

# Parts by the side on which they touch the states: what they read stands in their columns, what they write in rows.
READS = ("tokens.weight", "qkv.weight", "up.weight", "gate.weight", "readout_.weight")
WRITES = ("out.weight", "out.bias", "down.weight", "down.bias", "norm.weight", "norm.bias")
NEVER = -1e9  # the logit of a token that is not there


def as_public(model: Transformer) -> Transformer:
    """The same network with the settings of a public type, so far as there is one."""
    model = in_halves(model)
    config = model.config
    # No type shares one matrix between the sides alone; with norms before, all is one matrix or nothing is shared, and
    # the vocabularies are of one size.
    unequal = config.shared == "target" or config.source_vocab != config.target_vocab
    apart = config.shared == "sides" or (config.norm_place == "pre" and unequal)
    return own_matrices(model) if apart and config.positions == "sinusoidal-halves" else model


def in_halves(model: Transformer) -> Transformer:
    """A Transformer with interleaved sinusoids as one with all sines first: the same network, its width reordered."""
    if model.config.positions != "sinusoidal":
        return model
    places = torch.arange(model.config.width, device=model.embedding.tokens.weight.device)
    order = torch.cat([places[::2], places[1::2]])
    weights = {name: _ordered(name, tensor, order) for name, tensor in model.state_dict().items()}
    return _built(replace(model.config, positions="sinusoidal-halves"), weights)


def _ordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    if name.endswith(READS):
        return tensor[:, order]
    return tensor[order] if name.endswith(WRITES) else tensor


def own_matrices(model: Transformer) -> Transformer:
    """A Transformer with an embedding for each side and a readout, copies where it shared them, all of one height.

    Where the vocabularies differ, the smaller one is filled up: the source's with rows that nobody asks for, the
    target's with tokens that are never said.
    """
    config, weights = model.config, dict(model.state_dict())
    target = weights["embedding.tokens.weight"]
    source = weights.get("source_embedding.tokens.weight", target)
    head = weights.get("readout_.weight", target)
    size = max(config.source_vocab, config.target_vocab)
    bias = weights.get("readout_bias", target.new_zeros(config.target_vocab))
    weights |= {
        "source_embedding.tokens.weight": _filled(source, size),
        "embedding.tokens.weight": _filled(target, size),
        "readout_.weight": _filled(head, size),
    }
    biased = config.readout_bias or size > config.target_vocab
    if biased:
        weights["readout_bias"] = F.pad(bias, (0, size - config.target_vocab), value=NEVER)
    return _built(replace(config, source_vocab=size, target_vocab=size, shared="none", readout_bias=biased), weights)


def _filled(matrix: Tensor, rows: int) -> Tensor:
    return F.pad(matrix, (0, 0, 0, rows - len(matrix)))


def _built(config: TransformerConfig, weights: dict[str, Tensor]) -> Transformer:
    with SkipInit():
        model = config.build()
    model.load_state_dict(weights)
    return model.eval()
