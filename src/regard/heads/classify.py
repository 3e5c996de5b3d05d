"""The head that predicts one class per text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError
from regard.heads.head import HeadConfig
from regard.layers.init import init_weights
from regard.layers.transformer import ACTIVATIONS

if TYPE_CHECKING:
    from regard.models.facts import Facts


@dataclass(frozen=True)
class ClassHeadConfig(HeadConfig):
    """One class per text: the states are pooled to one vector, then a hidden layer (optional) and a linear layer.

    The automatic settings are those of the published classifiers: BERT's (Devlin et al. 2019) for a body that reads a
    text in both directions, GPT-2's for a causal body.
    """

    predicts: ClassVar[str] = "class"
    one_per_text: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, str]] = {"labels": "label"}
    init_from: ClassVar[Mapping[str, str]] = {"pooled": "hidden"}  # BERT's pooler

    labels: int = 0  # 0: taken from the data
    pool: Literal["auto", "first", "last", "mean"] = "auto"  # first or last state, or the mean; auto: last if causal
    hidden: Literal["auto", "none", "tanh", "relu"] = "auto"  # activation of a hidden layer; auto: none if causal
    bias: bool | None = None  # whether the last layer has a bias; none: not if the body is causal
    dropout: float = 0.1  # before the last layer

    def __post_init__(self) -> None:
        if self.labels < 0:
            raise UserError(f"head.labels={self.labels}: must be at least 0")
        if not 0 <= self.dropout < 1:
            raise UserError(f"head.dropout={self.dropout}: must be at least 0 and below 1")

    def for_body(self, body: Facts) -> Self:
        return replace(
            self,
            pool=("last" if body.causal else "first") if self.pool == "auto" else self.pool,
            hidden=("none" if body.causal else "tanh") if self.hidden == "auto" else self.hidden,
            bias=not body.causal if self.bias is None else self.bias,
        )

    def build(self, body: Facts) -> ClassHead:
        return ClassHead(self.for_body(body), body.width)


class ClassHead(nn.Module):
    """Pooling, a hidden layer (optional), and a linear layer."""

    def __init__(self, config: ClassHeadConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.hidden = None if config.hidden == "none" else nn.Linear(width, width)
        self.out = nn.Linear(width, config.labels, bias=bool(config.bias))
        init_weights(self, 0.02)

    def forward(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The states of texts (B, T, width) → logits (B, labels)"""
        x = pooled(features, real, self.config.pool)
        if self.hidden is not None:
            x = ACTIVATIONS[self.config.hidden](self.hidden(x))
        return self.out(F.dropout(x, self.config.dropout, self.training))


def pooled(features: Tensor, real: Tensor | None, pool: str) -> Tensor:
    """One vector (B, width) for each text (B, T, width): its first or last real state, or the mean of the real ones."""
    if real is None:
        real = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
    if pool == "mean":
        weights = real[..., None].to(features.dtype)
        return (features * weights).sum(1) / weights.sum(1).clamp(min=1)
    last = real.shape[1] - 1 - real.flip(1).int().argmax(1)
    places = real.int().argmax(1) if pool == "first" else last
    return features.take_along_dim(places[:, None, None], dim=1).squeeze(1)
