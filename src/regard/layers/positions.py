"""Where a token stands: sinusoids, and the preference for distances that T5 learns.

What is added to the embedding (sinusoids, or a learned table, which is a plain ``nn.Embedding``) is a function of a
token's own position. What is added to the logits (T5's bias) is one of the distance between two. Relative positions
that look at the query as well (Shaw et al. 2018; Dai et al. 2019) are scores: see ``regard.scores``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(positions: Tensor, width: int, interleaved: bool = True) -> Tensor:
    """sin and cos of a position at width/2 speeds, from 1 to 1/10000 (Vaswani et al. 2017, §3.5): (..., width).

    The paper has them take turns, sin, cos, sin, cos …; some public models have all sines first, then all cosines.
    """
    pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() * torch.exp(pairs * (-math.log(10_000.0) / width))  # (..., width / 2)
    waves = torch.stack([angles.sin(), angles.cos()], -1 if interleaved else -2)
    return waves.flatten(-2)[..., :width]


class Sinusoids(nn.Module):
    """The table of sinusoids: nothing in it is learnt, so it is not saved either."""

    table: Tensor

    def __init__(self, context: int, width: int, interleaved: bool = True) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(torch.arange(context), width, interleaved), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.table)


class Buckets(nn.Module):
    """How much each head prefers each distance (Raffel et al. 2020, §2.1): far ones share a bucket, in log steps."""

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, both_ways: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.buckets, self.furthest, self.both_ways = buckets, furthest, both_ways

    def forward(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """Positions (Tq,), (Tk,) or (B, 1, 1, Tk) → (1 or B, H, Tq, Tk), to be added to the logits of every layer."""
        behind = q_at[:, None] - k_at
        return self.table(self.bucket(behind.view(-1, *behind.shape[-2:]))).permute(0, 3, 1, 2)

    def bucket(self, behind: Tensor) -> Tensor:
        """Which bucket a key is in that stands so many places before its query (negative: after it)."""
        half = self.buckets // 2 if self.both_ways else self.buckets
        side = (behind < 0).long() * half if self.both_ways else 0
        distance = behind.abs() if self.both_ways else behind.clamp(min=0)
        exact = half // 2  # near distances have a bucket each
        steps = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.furthest / exact) * (half - exact)
        far = (exact + steps.long()).clamp(max=half - 1)
        return side + torch.where(distance < exact, distance, far)
