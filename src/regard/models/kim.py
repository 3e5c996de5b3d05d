"""Kim's convolutional network for sentences (Kim 2014): filters over n-grams, each with its maximum over the text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError
from regard.heads import pooled
from regard.layers.checks import check_config
from regard.layers.recurrent import real_first
from regard.mask import zero_padding
from regard.models.facts import Classifies
from regard.models.layered import ReadsTokensAlone
from regard.taps import add_layer

INIT = 0.25  # initial embeddings are uniform in ±0.25, about as large as word2vec's (Kim 2014, §3.1)


@dataclass(frozen=True)
class KimConfig(Classifies):
    """A text classifier: convolutional filters over the n-grams of a text, with max-over-time pooling."""

    pooling: ClassVar[Literal["max"]] = "max"
    layer_groups: ClassVar[tuple[tuple[str, ...], ...]] = (("embedding", "change"), ("filters",), ("readout_",))

    vocab: int = 0  # size of the vocabulary; 0: taken from the tokenizer
    labels: int = 0  # number of classes; 0: taken from the data
    kernels: tuple[int, ...] = (3, 4, 5)  # numbers of tokens that a filter reads
    filters: int = 100  # number of filters of each kernel
    embed: int = 300  # width of the token embeddings
    # static: embeddings are not trained; non-static: they are; multichannel: filters read both
    vectors: Literal["static", "non-static", "multichannel"] = "non-static"
    dropout: float = 0.5  # dropout before the output layer
    max_norm: float = 3.0  # the largest norm of the weights of a class in the output layer; 0: no limit
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the embedding starts from

    def __post_init__(self) -> None:
        check_config(self, ("filters", "embed"), {})
        if not self.kernels or min(self.kernels) < 1 or len(set(self.kernels)) < len(self.kernels):
            stated = ",".join(map(str, self.kernels))
            raise UserError(f"model.kernels={stated}: give different numbers of tokens, at least 1, such as 3,4,5")
        if not 0 <= self.max_norm < float("inf"):
            raise UserError(f"model.max_norm={self.max_norm}: must be 0 (no limit) or more, such as 3")

    @property
    def width(self) -> int:
        """The number of all filters."""
        return self.filters * len(self.kernels)

    @property
    def filter_sizes(self) -> tuple[int, ...]:
        return tuple(size for size in self.kernels for _ in range(self.filters))

    def resized(self, width: int) -> Self:
        return replace(self, filters=max(1, width // len(self.kernels)))

    def build(self) -> Kim:
        return Kim(self)

    def build_body(self) -> Kim:
        return Kim(self, readout=False)


class MaxNormLinear(nn.Linear):
    """A linear layer; the weights of an output have at most the norm ``max_norm`` (Hinton et al. 2012; Kim 2014, §2.1).

    An update may make them longer. The next forward pass of training scales such a row of the matrix back to the
    largest norm, in place, before it uses the matrix, as ``nn.Embedding(max_norm=…)`` does. So the result is that of a
    projection after each update. In evaluation the product uses the scaled matrix, and no weight is changed.
    """

    def __init__(self, inputs: int, outputs: int, max_norm: float) -> None:
        super().__init__(inputs, outputs)
        self.max_norm = max_norm

    def forward(self, x: Tensor) -> Tensor:
        if not self.max_norm:
            return super().forward(x)
        with torch.no_grad():
            norms = torch.linalg.vector_norm(self.weight, dim=1, keepdim=True)
            scale = torch.where(norms > self.max_norm, self.max_norm / norms, 1.0).to(norms)
            if self.training:
                self.weight.mul_(scale)
        return F.linear(x, self.weight if self.training else self.weight * scale, self.bias)


class Kim(ReadsTokensAlone):
    """Embedding, filters, max over time, dropout, output layer. Without ``readout`` it is a body under another head.

    The feature of a filter at a token is ReLU(w · window + b), of the window around the token (eq. 2). The window of a
    filter of size n starts (n − 1) // 2 tokens before the token. Places outside of the text are zeros, so that each
    token has a window of each size, also in a text that is shorter than a filter. Kim pads texts with zeros, too.
    """

    def __init__(self, config: KimConfig, readout: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.embed)
        nn.init.uniform_(self.embedding.weight, -INIT, INIT)
        self.embedding.weight.requires_grad_(config.vectors == "non-static")
        # Of two channels, the trained vectors are those of the file and a trained difference, which starts at zero.
        self.change = nn.Embedding(config.vocab, config.embed) if config.vectors == "multichannel" else None
        if self.change is not None:
            nn.init.zeros_(self.change.weight)
        inputs = config.embed * (1 if self.change is None else 2)
        self.filters = nn.ModuleList(nn.Conv1d(inputs, config.filters, size) for size in config.kernels)
        if readout:
            self.readout_ = MaxNormLinear(config.width, config.labels, config.max_norm)

    def states(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The feature of each filter at each token: (B, T) → (B, T, width). Padding may be anywhere."""
        x = self.embedding(tokens)
        if self.change is not None:
            x = torch.cat([x, x + self.change(tokens)], dim=-1)
        add_layer(x)
        order = None if real is None else real_first(real)[..., None]
        if order is not None:
            x = zero_padding(x, real).take_along_dim(order, dim=1)
        x = x.transpose(1, 2)
        maps = [
            torch.relu(convolution(F.pad(x, ((size - 1) // 2, size // 2))))
            for size, convolution in zip(self.config.kernels, self.filters)
        ]
        features = torch.cat(maps, dim=1).transpose(1, 2)
        features = features if order is None else features.take_along_dim(order.argsort(1), dim=1)
        add_layer(features)
        return features

    def readout(self, features: Tensor, real: Tensor | None = None) -> Tensor:
        """The features of texts (B, T, width) → logits (B, labels)"""
        return self.readout_(self.drop(pooled(features, real, "max")))
