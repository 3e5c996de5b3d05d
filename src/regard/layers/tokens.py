"""Input layers: embeddings of tokens, or a projection of numbers; in a Transformer, positions and segments too."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.errors import UserError
from regard.layers.dropout import drop
from regard.layers.positions import Sinusoids
from regard.layers.transformer import Shape


def input_layer(vocab: int, numbers: int, width: int) -> nn.Embedding | nn.Linear:
    """The layer that reads tokens (B, T), or ``numbers`` numbers at each step, (B, T, numbers): a vector for each."""
    return NumberProjection(numbers, width) if numbers else nn.Embedding(vocab, width)


class NumberProjection(nn.Linear):
    """A linear layer that reads numbers of any type: they are converted to the type of the weights.

    Before training, the size of the initial weights is fitted to the training numbers, so that the outputs have a mean
    square of about 1 for sparse numbers, such as the four of 88 keys that sound at a time, as for dense ones.
    """

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__(numbers, width)
        self._count, self._squares = 0, 0.0  # of the training numbers seen so far

    @torch.no_grad()
    def count_batch(self, batch: Batch) -> None:
        """Add the numbers of a batch that are no padding, and change the size of the weights by them."""
        numbers, before = batch["tokens"][batch.real["tokens"]], self._scale()
        self._count += numbers.numel()
        self._squares += float(numbers.double().square().sum())
        self.weight.mul_(self._scale() / before)

    def _scale(self) -> float:
        """What the weights of `nn.Linear` are multiplied by; their mean square is 1 / (3 · numbers of a step)."""
        return math.sqrt(3 * self._count / self._squares) if self._squares else 1.0

    def forward(self, numbers: Tensor) -> Tensor:
        return super().forward(numbers.to(self.weight.dtype))


class TokenEmbedding(nn.Module):
    """scale · token + position (+ segment), optionally with a norm (Vaswani 2017, §3.4-3.5; Devlin et al. 2019, §3).

    With ``embed`` the embeddings have that width and are projected to the width of the states (Lan et al. 2020, §3.1).
    ``tokens`` replaces the table of token embeddings by another module.
    """

    def __init__(
        self,
        shape: Shape,
        vocab: int,
        embed: int = 0,
        segments: int = 0,
        scale: float = 1.0,
        norm: bool = False,
        offset: int = 0,
        tokens: nn.Module | None = None,
    ) -> None:
        super().__init__()
        width = embed or shape.width
        self.tokens: Any = nn.Embedding(vocab, width) if tokens is None else tokens
        self.positions = _positions(shape, width, offset)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=shape.epsilon) if norm else None
        self.project = nn.Linear(embed, shape.width) if embed else None
        self.scale, self.dropout, self.variational = scale, shape.dropout, shape.variational

    def forward(self, tokens: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, T) each → (B, T, width). Positions are row numbers of the table; without segments, all are segment 0."""
        x = self.vectors(tokens, positions, segments)
        return x if self.project is None else self.project(x)

    def vectors(self, tokens: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        """The embeddings before they are projected, (B, T, embed)."""
        x = self.tokens(tokens)
        if self.scale != 1.0:
            x = x * self.scale
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        elif segments is not None:
            raise UserError("segments: this model has no segment embeddings; leave them out")
        if self.positions is not None:
            x = x + self.positions(positions)
        if self.norm is not None:
            x = self.norm(x)
        return drop(x, self.dropout, self.training, self.variational)


def _positions(shape: Shape, width: int, offset: int) -> nn.Module | None:
    """The table of absolute positions, or None for other kinds; its first ``offset`` rows are not used."""
    match shape.positions:
        case "learned":
            return nn.Embedding(shape.context + offset, width)
        case "sinusoidal" | "sinusoidal-halves":
            return Sinusoids(shape.context + offset, width, interleaved=shape.positions == "sinusoidal")
        case _:
            return None


def real_positions(tokens: Tensor, real: Tensor | None) -> Tensor:
    """The number of real tokens before each token, (1 or B, T): padding on either side does not count."""
    if real is None:
        return tokens.new_ones(1, tokens.shape[1]).cumsum(1) - 1
    return (real.cumsum(1) - 1).clamp(min=0)


def check_length(tokens: Tensor, longest: int | None) -> None:
    """Raise ``UserError`` if a text is longer than the model can read."""
    if longest is not None and tokens.shape[1] > longest:
        raise UserError(f"a text of {tokens.shape[1]} tokens is longer than the model's limit: model.context={longest}")


def check_capacity(capacity: int | None, context: int, longest: int | None) -> int:
    """The capacity of a cache in tokens, by default ``context``; raise ``UserError`` if it is above ``longest``."""
    if capacity is not None and longest is not None and capacity > longest:
        raise UserError(f"capacity={capacity}: is above the model's limit, model.context={longest}; give at most that")
    return context if capacity is None else capacity
