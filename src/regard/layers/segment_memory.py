"""The memory of Transformer-XL: the last tokens of a text that is read segment by segment.

In decoding the memory has the keys and values of these tokens (``SegmentMemory``). In training it has their hidden
states (``SegmentStates``): the weights change between two segments, and the projections get a gradient from the memory.
With the same weights both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import UserError
from regard.layers.kv_cache import AttentionPlan, SlotTemplates, check_rows
from regard.mask import CAUSAL


@dataclass(frozen=True, eq=False)
class SegmentMemory:
    """The memory of Transformer-XL (Dai et al. 2019, §3.2): the last ``length`` tokens before this segment.

    No gradient flows into it. The tokens of one call of ``advance`` are a segment: each token sees the memory and the
    segment up to itself. The result depends on where segments end, unless the layers have a window as long as the
    memory (``windows=(length - 1,)``). The methods are those of ``KVCache``.
    """

    length: int
    layers: tuple[Memory, ...] = ()
    filled: int = 0  # how many tokens are in the memory

    def merge_beams(self, tokens: Tensor) -> Tensor:
        check_rows(tokens, len(self.layers[0].keys) if self.layers else len(tokens))
        return tokens

    def split_beams(self, features: Tensor) -> Tensor:
        return features

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        return torch.arange(tokens.shape[1], device=tokens.device)[None]

    def preallocate(self, slots: SlotTemplates, steps: int = 1) -> SegmentMemory:
        return self  # the memory grows until it is full; nothing is allocated in advance

    def reserve(self, x: Tensor, real: Tensor | None, slots: SlotTemplates) -> tuple[SegmentMemory, AttentionPlan]:
        check_no_padding(real)
        plan = segment_plan(x, self.filled, self.length)
        return replace(self, filled=min(self.filled + x.shape[1], self.length)), plan

    def with_layers(self, layers: Sequence[Memory | None]) -> SegmentMemory:
        return replace(self, layers=tuple(one for one in layers if one is not None))

    def select(self, rows: Tensor) -> SegmentMemory:
        return replace(self, layers=tuple(one.select(rows) for one in self.layers))


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
        return torch.cat([self.layers[number].to(x.dtype), x], 1)[:, -self.length :].detach()


@dataclass(frozen=True, eq=False)
class SegmentPlan(AttentionPlan):
    """Concatenates a segment with the memory before it, and keeps the last ``length`` tokens of both."""

    length: int = 0

    def join(self, cache: Memory | None, new: Memory) -> tuple[Memory, Memory | None]:
        if cache is not None:
            new = Memory(_after(cache.keys, new.keys), _after(cache.values, new.values))
        return new, Memory(self._last(new.keys), self._last(new.values))

    def _last(self, x: Tensor) -> Tensor:
        kept = x[..., max(x.shape[-2] - self.length, 0) :, :].detach()
        # Decoding continues from here, and a captured step needs inputs of one memory layout.
        return kept if torch.is_grad_enabled() else kept.contiguous()


def check_no_padding(real: Tensor | None) -> None:
    """Raise ``UserError`` if there is a mask of padding."""
    if real is not None:
        raise UserError("real: Transformer-XL's memory does not support padding; read texts of equal length together")


def segment_plan(x: Tensor, filled: int, length: int) -> SegmentPlan:
    """The plan of a segment x (B, T, width) after ``filled`` tokens in a memory of at most ``length`` tokens."""
    at = torch.arange(filled + x.shape[1], device=x.device)
    return SegmentPlan(CAUSAL, at[filled:], at, length=length)


def _after(cache: Tensor, new: Tensor) -> Tensor:
    return torch.cat([cache.to(new.dtype), new], -2)  # the cache may have been made outside autocast
