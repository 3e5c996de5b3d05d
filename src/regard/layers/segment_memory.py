"""The memory of Transformer-XL in training: the hidden states of the last tokens before a segment of text.

In decoding the memory has their keys and values (``KVCache.memory``). In training the weights change between two
segments, and the projections get a gradient from the memory. With the same weights both give the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import Memory
from regard.layers.kv_cache import AttentionPlan, check_rows
from regard.mask import Mask


@dataclass(frozen=True, eq=False)
class SegmentStates:
    """The memory of Transformer-XL in training (Dai et al. 2019, §3.2): the inputs of each layer at earlier tokens.

    Each segment projects them to keys and values anew. No gradient flows into them.
    """

    length: int  # the most tokens in the memory
    layers: tuple[Tensor, ...]  # (B, M, width) of each layer, with M up to ``length``

    def merge_beams(self, tokens: Tensor) -> Tensor:
        check_rows(tokens, len(self.layers[0]))
        return tokens

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        return torch.arange(tokens.shape[1], device=tokens.device)[None]

    def after(self, number: int, x: Tensor) -> Tensor:
        """The memory of a layer after a segment x (B, T, width), the layer's input."""
        states = torch.cat([self.layers[number].to(x.dtype), x], 1)
        return states[:, max(states.shape[1] - self.length, 0) :].detach()


@dataclass(frozen=True, eq=False)
class SegmentPlan(AttentionPlan):
    """The plan of a segment: each layer reads the memory before the segment, and the segment."""

    def join(self, cache: Memory | None, new: Memory) -> tuple[Memory, None]:
        if cache is None:
            return new, None
        keys, values = (torch.cat(pair, -2) for pair in ((cache.keys, new.keys), (cache.values, new.values)))
        return Memory(keys, values), None


def segment_plan(x: Tensor, filled: int) -> SegmentPlan:
    """The plan of a segment x (B, T, width) after ``filled`` tokens in the memory."""
    at = torch.arange(filled + x.shape[1], device=x.device)
    return SegmentPlan(Mask(causal=True, sees_self=True), at[filled:], at)
