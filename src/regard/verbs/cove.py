"""CoVe (McCann et al. 2017): the states of a translator's encoder as vectors of words in context."""

from typing import cast

import torch
from torch import Tensor, nn

from regard.models.facts import ReadsSource
from regard.verbs.loaded import Loaded


def cove_states(model: Loaded, tokens: Tensor, real: Tensor | None) -> Tensor:
    """[embedding(w); encoder(w)] of each token of a source (B, T): (B, T, embedding width + width) (eq. 3).

    The embedding is what the encoder reads, without positions: a Transformer multiplies the rows of its table by a
    scale. In the paper these are GloVe's vectors, which `model.embedding=FILE` gives a translator here. The states are
    those of the encoder's last layer.
    """
    config = model.module.config
    model.expect("embed --as cove", config.reads_source and not model.reads_images)
    embedding = model.module.get_submodule(config.input_embedding)
    assert isinstance(embedding, nn.Embedding)
    states = cast(ReadsSource, model.module).encode(tokens, real)
    embedded = embedding(tokens) * config.embedding_scale
    return torch.cat([embedded.to(states.dtype), states], dim=-1)
