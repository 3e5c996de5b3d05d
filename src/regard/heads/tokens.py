"""The heads of BERT and ELECTRA that predict something at every token. They are parts of `regard.models.bert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.layers.transformer import ACTIVATIONS

if TYPE_CHECKING:
    from regard.models.bert import BertConfig


class MaskedHead(nn.Module):
    """Transforms a state to the width of the embeddings; logits are its product with the embedding matrix."""

    def __init__(self, config: BertConfig, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, width)
        self.activation = ACTIVATIONS[config.head_activation or config.activation]
        self.norm = nn.LayerNorm(width, eps=config.epsilon)
        self.weight = None if config.tied else nn.Parameter(torch.empty(config.vocab, width))
        self.bias = nn.Parameter(torch.zeros(config.vocab))
        if self.weight is not None:
            nn.init.normal_(self.weight, std=0.02)

    def forward(self, features: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(features)))


class ReplacedHead(nn.Module):
    """One logit for each position: whether its token was replaced."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.out = nn.Linear(config.width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(features))).squeeze(-1)
