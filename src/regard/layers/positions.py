"""Positions: sinusoids, and T5's learned bias for distances.

Absolute positions (sinusoids, or a learned ``nn.Embedding``) are added to the token embedding. T5's bias depends on the
distance between query and key and is added to the logits. Relative positions that also depend on the content of the
query (Shaw et al. 2018; Dai et al. 2019) are scores: see ``regard.scores``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import check_sizes


def sinusoids(positions: Tensor, width: int, interleaved: bool = True) -> Tensor:
    """sin and cos of positions at width/2 frequencies, from 1 to 1/10000 (Vaswani et al. 2017, §3.5): (..., width).

    In the paper they alternate: sin, cos, sin, cos …; some public models have all sines first, then all cosines.
    """
    pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() * torch.exp(pairs * (-math.log(10_000.0) / width))  # (..., width / 2)
    waves = torch.stack([angles.sin(), angles.cos()], -1 if interleaved else -2)
    return waves.flatten(-2)[..., :width]


class Sinusoids(nn.Module):
    """A table of sinusoids. It is not learned and not saved with the weights."""

    table: Tensor

    def __init__(self, context: int, width: int, interleaved: bool = True) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(torch.arange(context), width, interleaved), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.table)


class Buckets(nn.Module):
    """T5's position bias: one number per head and bucket of distances (Raffel et al. 2020, §2.1).

    Near distances have a bucket each; the sizes of far buckets grow exponentially.
    """

    def __init__(self, heads: int, buckets: int = 32, furthest: int = 128, both_ways: bool = True) -> None:
        super().__init__()
        check_sizes(heads=heads)
        check_sizes(4 if both_ways else 2, buckets=buckets)
        check_sizes(buckets // (4 if both_ways else 2) + 1, furthest=furthest)
        self.table = nn.Embedding(buckets, heads)
        self.heads, self.buckets, self.furthest, self.both_ways = heads, buckets, furthest, both_ways

    def forward(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """Positions (Tq,) and (Tk,) or (B, 1, 1, Tk) → the bias (1 or B, H, Tq, Tk), which all layers share."""
        behind = q_at[:, None] - k_at
        behind = behind.view(-1, *behind.shape[-2:])
        if behind.numel() <= 2 * self.furthest + 1:  # a step of decoding, or a short text
            return self.table(self.bucket(behind)).permute(0, 3, 1, 2)
        # There are fewer distances than pairs: those from `furthest` on share a bucket.
        of_distance = self.table(self.bucket(torch.arange(-self.furthest, self.furthest + 1, device=behind.device)))
        places = behind.clamp(-self.furthest, self.furthest) + self.furthest
        return F.embedding(places, of_distance).permute(0, 3, 1, 2)

    def bucket(self, behind: Tensor) -> Tensor:
        """The bucket of a key that is ``behind`` positions before its query (negative: after it)."""
        half = self.buckets // 2 if self.both_ways else self.buckets
        side = (behind < 0).long() * half if self.both_ways else 0
        distance = behind.abs() if self.both_ways else behind.clamp(min=0)
        exact = half // 2  # near distances have a bucket each
        steps = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.furthest / exact) * (half - exact)
        far = (exact + steps.long()).clamp(max=half - 1)
        return side + torch.where(distance < exact, distance, far)
