"""The KV cache of a stack of causal layers: the keys and values of what was read, and who may look at which of them.

``KVCache`` is preallocated. In training nothing follows what is read, so it stores nothing and costs nothing. Its slots
belong to a *sentence*: the K hypotheses of a beam write into the same slots, and a table of lineage says which slots
each of them descends from. Reordering the beams changes that table only; no key is ever copied. ``SegmentMemory``
(regard.layers.segment_memory), the memory of Transformer-XL, has the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import UserError
from regard.mask import CAUSAL, EVERYTHING, Mask

EMPTY = 2**30  # the position of a slot that holds nothing: after every query, so that no causal mask lets it be seen


Slots = Callable[[], Sequence[Memory]]  # one slot of each layer's memory, to make room for more like it


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Where queries and keys stand and who may look at whom: worked out once, the same for every layer."""

    mask: Mask = EVERYTHING
    q_at: Tensor | None = None  # (Tq,); None: as many queries as keys, in the same order
    k_at: Tensor | None = None  # (Tk,), by row (B, 1, 1, Tk), of the slots that are read; None: only the new keys are
    slots: Tensor | None = None  # (Tq,) where the new keys are kept; None: nowhere
    single: bool = False  # of what is new, every query sees itself alone: it is one token of each hypothesis

    def join(self, cache: Memory | None, new: Memory) -> tuple[Memory, Memory | None]:
        """What a layer reads, and what it keeps, of its cache and of the new tokens."""
        if cache is None or self.slots is None:
            return new, cache
        kept = cache.write_at(self.slots, new)
        return new if self.k_at is None else kept.first(self.k_at.shape[-1]), kept

    def through(self, window: int) -> AttentionPlan:
        """The same, seeing no further than a window (0: as far as ever)."""
        return self if window == 0 else replace(self, mask=self.mask & Mask(window=window))

    def resolved(self, queries: int, device: torch.device, bias: Tensor | None = None) -> AttentionPlan:
        """The mask written out for all layers, with what they prefer."""
        if bias is not None:
            mask = self.mask & Mask(bias=bias, sighted=True)
        elif self.mask is EVERYTHING or (self.mask.only_causal and self.q_at is None):
            return self
        else:
            mask = self.mask
        q_at, k_at = self.places(queries, device)
        return replace(self, mask=mask.resolved(q_at, k_at, 4))

    def places(self, queries: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The positions of queries and keys."""
        if self.q_at is not None and self.k_at is not None:
            return self.q_at, self.k_at
        at = torch.arange(queries, device=device)
        return at, at


@dataclass(frozen=True, eq=False)
class KVCache:
    """The cache of a stack. A token's slot is where it is kept; its position is how many were read before it."""

    sentences: int  # B
    capacity: int  # tokens of each hypothesis
    beams: int = 1  # K hypotheses of each sentence
    layers: tuple[Memory, ...] = ()  # (B, H, S, D) each; none: nothing has been read
    read: Tensor | None = None  # 0-d: tokens read of each hypothesis
    used: Tensor | None = None  # 0-d: slots filled
    at: Tensor | None = None  # (S,) the position of each slot; by row (B, 1, 1, S) since padding was read
    seen: Tensor | None = None  # (B, K, S) which slots each hypothesis descends from; None: one hypothesis sees all
    real: Tensor | None = None  # (B, S) False at padding
    fresh: bool = True  # nothing has been read

    @property
    def padding(self) -> Tensor | None:
        """(B, 1) how much of what was read was padding."""
        return None if self.real is None else (~self.real).sum(1, keepdim=True)

    def fold(self, tokens: Tensor) -> Tensor:
        """(B·K, T) → (B, K·T): the hypotheses of a sentence are more queries of its one cache."""
        check_rows(tokens, self.sentences * self.beams)
        return tokens.reshape(self.sentences, -1)

    def unfold(self, features: Tensor) -> Tensor:
        """(B, K·T, W) → (B·K, T, W)"""
        return features.reshape(self.sentences * self.beams, -1, features.shape[-1])

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """Of tokens (B, K·T, …) about to be read: how many real ones stand before each. (1 or B, K·T)"""
        at = torch.arange(tokens.shape[1] // self.beams, device=tokens.device).repeat(self.beams)[None]
        if real is not None:
            at = (real.cumsum(1) - 1).clamp(min=0)
        if self.read is not None:
            at = at + self.read
        padding = self.padding
        return at if padding is None else (at - padding).clamp(min=0)

    def preallocate(self, slots: Slots, steps: int = 1) -> KVCache:
        """A cache whose shape no longer changes, even by the first token: what captured steps need.

        There must be room for all of them: no captured step can say that it is one too many.
        """
        cache = self._allocated(slots()) if self.fresh and not self.layers else self
        used = 0 if self.fresh or cache.used is None else int(cache.used)  # waits for a GPU, once
        if cache.at is None or used + steps * cache.beams > cache.at.shape[-1]:
            raise UserError(_full(self.capacity))
        return replace(cache, fresh=False)

    def room(self, x: Tensor, real: Tensor | None, slots: Slots) -> tuple[KVCache, AttentionPlan]:
        """Makes room for more tokens, x (B, K·T, W): the cache that counts them, and how they see it."""
        cache = self
        if self.fresh and not self.layers and (self.beams > 1 or x.shape[1] < self.capacity):
            cache = self._allocated(slots())
        if not self.fresh or self.beams > 1:
            return cache._on(x, real)
        # Nothing to see but each other: no cache is read, and where nothing can follow none is made.
        plan = AttentionPlan(CAUSAL if real is None else CAUSAL & Mask(keys=real))
        if not cache.layers:
            return replace(cache, fresh=False), plan
        cache, on = cache._on(x, real)
        return cache, replace(plan, slots=on.slots)

    def _allocated(self, slots: Sequence[Memory]) -> KVCache:
        """The cache with empty slots like these, one for each layer."""
        size, device = self.capacity * self.beams, slots[0].keys.device
        seen = torch.zeros(self.sentences, self.beams, size, dtype=torch.bool, device=device)
        return replace(
            self,
            layers=tuple(one.like(self.sentences, size) for one in slots),
            read=torch.zeros((), dtype=torch.long, device=device),
            used=torch.zeros((), dtype=torch.long, device=device),
            at=torch.full((size,), EMPTY, device=device),
            seen=seen if self.beams > 1 else None,
        )

    def _on(self, x: Tensor, real: Tensor | None) -> tuple[KVCache, AttentionPlan]:
        """Tokens that see a cache."""
        if self.read is None or self.used is None or self.at is None:
            raise UserError(_full(self.capacity))  # all of it was read at once, and no cache was made
        count, device = x.shape[1], x.device
        reach, length = self._reach(count), count // self.beams
        new = torch.arange(count, device=device)  # beam by beam
        slots, q_at = self.used + new, self.read + new % length
        # A single token that sees no more slots than are filled, or than it descends from: nothing stands after it.
        alone = length == 1 and (device.type == "cpu" or self.seen is not None)
        mask, seen, kept = EVERYTHING if alone else replace(CAUSAL, sighted=True), self.seen, self.real
        if seen is not None:
            mine = (torch.arange(seen.shape[2], device=device) - self.used).div(length, rounding_mode="floor")  # (S,)
            seen = seen | (mine == torch.arange(self.beams, device=device)[:, None])
            lineage = seen[:, :, :reach]
            if length > 1:
                lineage = lineage.repeat_interleave(length, dim=1)  # (B, K·T, reach)
            mask = mask & Mask(pairs=lineage, sighted=True)  # each has read itself
        if real is None and kept is None:
            at = k_at = self.at.index_copy(0, slots, q_at)
        else:
            at, k_at = self._by_row(x, real, slots)
        if real is not None:
            assert self.beams == 1, "padding is read before a beam is made"
            everything = torch.ones(self.sentences, at.shape[-1], dtype=torch.bool, device=device)
            kept = (everything if kept is None else kept).index_copy(1, slots, real)
        if kept is not None:
            mask = mask & Mask(keys=kept[:, :reach])
        counted = replace(self, read=self.read + length, used=self.used + count, at=at, fresh=False)
        cache = replace(counted, seen=seen, real=kept)
        return cache, AttentionPlan(mask, q_at, k_at[..., :reach], slots, length == 1)

    def _by_row(self, x: Tensor, real: Tensor | None, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The positions (B, 1, 1, S) of slots where padding was read: as they are kept, and as new queries see them.

        Padding has no position of its own, but queries, whose positions are the same in all rows, have counted it: to
        them, what stands before has moved up by as much.
        """
        assert self.at is not None
        at = self.at.expand(self.sentences, 1, 1, -1).index_copy(-1, slots, self.positions(x, real)[:, None, None])
        before = self.padding
        if real is not None:
            first = real.long().argmax(1, keepdim=True)  # of the new text, what stands before it
            before = first if before is None else before + first
        assert before is not None
        return at, at + before[:, None, None]

    def _reach(self, count: int) -> int:
        """How many slots are read where ``count`` more are filled.

        A GPU is not asked how many there are: it reads all of them, in steps of one shape that can be captured. A CPU
        knows, and reads no more.
        """
        assert self.used is not None
        assert self.at is not None
        if self.used.device.type != "cpu":
            return self.at.shape[-1]
        if (reach := int(self.used) + count) > self.at.shape[-1]:
            raise UserError(_full(self.capacity))
        return reach

    def holding(self, layers: Sequence[Memory | None]) -> KVCache:
        """The cache with what each layer has kept."""
        kept = tuple(one for one in layers if one is not None)
        return replace(self, layers=kept) if kept else self

    def select(self, rows: Tensor) -> KVCache:
        """The cache after hypotheses have moved within their sentences: only who sees what changes."""
        beams = len(rows) // self.sentences
        if beams == self.beams == 1:
            return self
        if not self.layers:
            return replace(self, beams=beams)
        assert self.at is not None
        wide = self if beams == self.beams else self._widened(beams)
        seen = self.seen
        if seen is None:
            seen = (self.at < EMPTY).view(-1, 1, self.at.shape[-1]).expand(self.sentences, -1, -1)  # it has read it all
        seen = seen.flatten(0, 1)[rows].unflatten(0, (self.sentences, beams))  # (B, K', S)
        assert wide.at is not None
        return replace(wide, seen=torch.nn.functional.pad(seen, (0, wide.at.shape[-1] - seen.shape[2])))

    def _widened(self, beams: int) -> KVCache:
        """Slots for more hypotheses. Happens once, where a beam starts after a prompt."""
        assert self.at is not None
        slots = self.capacity * beams
        more = max(slots - self.at.shape[-1], 0)
        pad = torch.nn.functional.pad
        return replace(
            self,
            beams=beams,
            layers=tuple(
                Memory(pad(one.keys, (0, 0, 0, more)), pad(one.values, (0, 0, 0, more))) for one in self.layers
            ),
            at=pad(self.at, (0, more), value=EMPTY),
            real=None if self.real is None else pad(self.real, (0, more), value=True),
        )


def check_rows(tokens: Tensor, rows: int) -> None:
    """Refuse tokens (R, T) that are not one row for each of a state's."""
    if len(tokens) != rows:
        cure = f"start it with rows={len(tokens)}, or with as many sources"
        raise UserError(f"tokens: {len(tokens)} rows of them, but the state has {rows}; {cure}")


def _full(capacity: int) -> str:
    return (
        f"capacity={capacity}: the model has no room for more tokens than it was started with; start with a larger one"
    )
