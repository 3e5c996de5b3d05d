"""The first and the last layer of recurrent and convolutional language models, plain or adaptive, tied or not.

`config` has the settings `vocab`, `numbers`, `embed`, `width`, `tied`, `softmax`, `cutoffs` and `divide`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from regard.layers.adaptive import AdaptiveEmbedding, AdaptiveSoftmax, Clustered, Clusters
from regard.layers.product import Product
from regard.layers.tokens import input_layer

INIT = 0.1  # initial embeddings that the output layer uses, too, are uniform in ±0.1, so that first logits are small


def embedding_layer(config: Any) -> nn.Embedding | nn.Linear | AdaptiveEmbedding:
    """The layer that reads tokens (B, T), or numbers (B, T, numbers): a vector of the width ``embed`` for each.

    Embeddings that are not tied have a deviation of 1: from small ones, the layers above learn slowly at first.
    """
    if config.softmax == "plain":
        layer: nn.Embedding | nn.Linear | AdaptiveEmbedding = input_layer(config.vocab, config.numbers, config.embed)
    else:
        layer = AdaptiveEmbedding(_clusters(config, config.embed))
    for table in layer.modules():
        if config.tied and isinstance(table, nn.Embedding):
            nn.init.uniform_(table.weight, -INIT, INIT)
    return layer


def output_layer(config: Any) -> nn.Linear | AdaptiveSoftmax | None:
    """The layer that gives the logits of the vocabulary; None: the embedding gives them, because it is tied."""
    if config.softmax == "adaptive":
        own = () if config.tied else tuple(range(len(config.cutoffs) + 1))
        return AdaptiveSoftmax(_clusters(config, config.width), config.tied, own)
    return None if config.tied else nn.Linear(config.width, config.vocab)


def output_product(x: Tensor, output: nn.Linear | AdaptiveSoftmax | None, embedding: Any) -> Product | Clustered:
    """The logits of states (…, width) as uncomputed matrix products."""
    if isinstance(output, AdaptiveSoftmax):
        return output(x, embedding)
    return Product(x, embedding.weight) if output is None else Product(x, output.weight, output.bias)


def _clusters(config: Any, width: int) -> Clusters:
    """The clusters of the vocabulary, whose vectors are projected to this width."""
    return Clusters(config.vocab, width, width, config.cutoffs, config.divide)
