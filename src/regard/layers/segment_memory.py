"""The memory of Transformer-XL: the last so many tokens of a text, read segment by segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import UserError
from regard.layers.kv_cache import AttentionPlan, Slots, check_rows
from regard.mask import CAUSAL


@dataclass(frozen=True, eq=False)
class SegmentMemory:
    """The memory of Transformer-XL (Dai et al. 2019, §3.2): the last ``length`` tokens before this segment.

    No gradient goes into it. All tokens of one reading are a segment: each sees the memory, and the segment up to
    itself. Where a text is read in several segments, what is seen of it depends on where they end, unless the layers'
    window is the memory (``windows=(length - 1,)``).
    """

    length: int
    layers: tuple[Memory, ...] = ()
    held: int = 0  # how many tokens the memory has

    def fold(self, tokens: Tensor) -> Tensor:
        check_rows(tokens, len(self.layers[0].keys) if self.layers else len(tokens))
        return tokens

    def unfold(self, features: Tensor) -> Tensor:
        return features

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        return torch.arange(tokens.shape[1], device=tokens.device)[None]

    def preallocate(self, slots: Slots, steps: int = 1) -> SegmentMemory:
        return self  # it grows until it is full, and no slots are made beforehand

    def room(self, x: Tensor, real: Tensor | None, slots: Slots) -> tuple[SegmentMemory, AttentionPlan]:
        if real is not None:
            raise UserError("real: Transformer-XL's memory has no place for padding; read texts of one length together")
        at = torch.arange(self.held + x.shape[1], device=x.device)
        cache = replace(self, held=min(len(at), self.length))
        return cache, SegmentPlan(CAUSAL, at[self.held :], at, length=self.length)

    def holding(self, layers: Sequence[Memory | None]) -> SegmentMemory:
        return replace(self, layers=tuple(one for one in layers if one is not None))

    def select(self, rows: Tensor) -> SegmentMemory:
        return replace(self, layers=tuple(one.select(rows) for one in self.layers))


@dataclass(frozen=True, eq=False)
class SegmentPlan(AttentionPlan):
    """Joins a segment to the memory before it, and keeps the last ``length`` of both."""

    length: int = 0

    def join(self, cache: Memory | None, new: Memory) -> tuple[Memory, Memory | None]:
        if cache is not None:
            new = Memory(_after(cache.keys, new.keys), _after(cache.values, new.values))
        return new, Memory(self._last(new.keys), self._last(new.values))

    def _last(self, x: Tensor) -> Tensor:
        kept = x[..., max(x.shape[-2] - self.length, 0) :, :].detach()
        # A search steps on from here, and a step is captured for one layout of what it is given.
        return kept if torch.is_grad_enabled() else kept.contiguous()


def _after(cache: Tensor, new: Tensor) -> Tensor:
    return torch.cat([cache.to(new.dtype), new], -2)  # the cache may have been made before autocast began
