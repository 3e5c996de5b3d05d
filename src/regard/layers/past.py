"""What a stack of causal layers has read: who sees which of it, and where new tokens go.

``Past`` is a preallocated cache; where nothing can follow what is read (training) it keeps nothing and costs nothing.
Its slots belong to a *sentence*: the K hypotheses of a beam write side by side into the same slots, and a table of
lineage says which slots each of them descends from. When beams are reordered only that table moves; no key is ever
copied. ``Segments`` (regard.layers.segments), the memory of Transformer-XL, has the same interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import UserError
from regard.mask import CAUSAL, EVERYTHING, Mask

EMPTY = 2**30  # the position of a slot that holds nothing: after every query, so that no causal mask lets it be seen


@dataclass(frozen=True, eq=False)
class Sight:
    """Where queries and keys stand and who may look at whom: worked out once, the same for every layer."""

    mask: Mask = EVERYTHING
    q_at: Tensor | None = None  # (Tq,); None: as many queries as keys, in the same order
    k_at: Tensor | None = None  # (Tk,) of as many slots as are read; None: there is nothing but the new keys
    slots: Tensor | None = None  # (Tq,) where the new keys are kept; None: nowhere

    def join(self, past: Memory | None, new: Memory) -> tuple[Memory, Memory | None]:
        """What a layer reads, and what it keeps, of its past and of the new tokens."""
        if past is None or self.slots is None:
            return new, past
        kept = past.write_at(self.slots, new)
        return new if self.k_at is None else kept.first(len(self.k_at)), kept

    def through(self, window: int) -> Sight:
        """The same, seeing no further than a window (0: as far as ever)."""
        return self if window == 0 else replace(self, mask=self.mask & Mask(window=window))

    def resolved(self, queries: int, device: torch.device, bias: Tensor | None = None) -> Sight:
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
class Past:
    """The cache of a stack. A token's slot is where it is kept; its position is how many were read before it."""

    sentences: int  # B
    capacity: int  # tokens of each hypothesis
    beams: int = 1  # K hypotheses of each sentence
    layers: tuple[Memory, ...] = ()  # (B, H, S, D) each; none: nothing has been read
    read: Tensor | None = None  # 0-d: tokens read of each hypothesis
    used: Tensor | None = None  # 0-d: slots filled
    at: Tensor | None = None  # (S,) the position of each slot
    seen: Tensor | None = None  # (B, K, S) which slots each hypothesis descends from; None: one hypothesis sees all
    real: Tensor | None = None  # (B, S) False at padding
    padding: Tensor | None = None  # (B, 1) how much of what was read was padding
    fresh: bool = True  # nothing has been read

    def fold(self, tokens: Tensor) -> Tensor:
        """(B·K, T) → (B, K·T): the hypotheses of a sentence are more queries of its one past."""
        return tokens.reshape(self.sentences, -1)

    def unfold(self, features: Tensor) -> Tensor:
        """(B, K·T, W) → (B·K, T, W)"""
        return features.reshape(self.sentences * self.beams, -1, features.shape[-1])

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """Of tokens (B, K·T) about to be read: how many real ones stand before each. (1 or B, K·T)"""
        at = torch.arange(tokens.shape[1] // self.beams, device=tokens.device).repeat(self.beams)[None]
        if real is not None:
            at = (real.cumsum(1) - 1).clamp(min=0)
        if self.read is not None:
            at = at + self.read
        return at if self.padding is None else (at - self.padding).clamp(min=0)

    def wants_slots(self, count: int) -> bool:
        """Whether a cache is still to be made before ``count`` tokens of each sentence are read."""
        return self.fresh and not self.layers and (self.beams > 1 or count < self.capacity)

    def allocated(self, slot: Sequence[Memory]) -> Past:
        """A past with an empty cache, of slots like these, one for each layer."""
        slots, device = self.capacity * self.beams, slot[0].keys.device
        seen = torch.zeros(self.sentences, self.beams, slots, dtype=torch.bool, device=device)
        return replace(
            self,
            layers=tuple(one.like(self.sentences, slots) for one in slot),
            read=torch.zeros((), dtype=torch.long, device=device),
            used=torch.zeros((), dtype=torch.long, device=device),
            at=torch.full((slots,), EMPTY, device=device),
            seen=seen if self.beams > 1 else None,
        )

    def ready(self, slot: Sequence[Memory]) -> Past:
        """A past whose shape no longer changes, even by the first token: what a recorded step needs."""
        if not self.layers and not self.fresh:
            raise UserError(_full(self.capacity))
        return replace(self if self.layers else self.allocated(slot), fresh=False)

    def room(self, count: int, real: Tensor | None, device: torch.device) -> tuple[Past, Sight]:
        """Makes room for K·T = ``count`` more tokens of each sentence: the past that counts them, how they see it."""
        if not self.fresh or self.beams > 1:
            return self._on(count, real, device)
        # Nothing to see but each other: no cache is read, and where nothing can follow none is made.
        sight = Sight(CAUSAL if real is None else CAUSAL & Mask(keys=real))
        if not self.layers:
            return replace(self, fresh=False), sight
        past, on = self._on(count, real, device)
        return past, replace(sight, slots=on.slots)

    def _on(self, count: int, real: Tensor | None, device: torch.device) -> tuple[Past, Sight]:
        """Tokens that see a cache."""
        if self.read is None or self.used is None or self.at is None:
            raise UserError(_full(self.capacity))  # all of it was read at once, and no cache was made
        reach = self._reach(count)
        length = count // self.beams
        new = torch.arange(count, device=device)  # beam by beam
        slots, q_at = self.used + new, self.read + new % length
        at = self.at.index_copy(0, slots, q_at)
        # A single token that sees no more slots than are filled needs no mask: nothing stands after it.
        alone = length == 1 and device.type == "cpu"
        mask, seen, kept = EVERYTHING if alone else replace(CAUSAL, sighted=True), self.seen, self.real
        if seen is not None:
            mine = (torch.arange(seen.shape[2], device=device) - self.used).div(length, rounding_mode="floor")  # (S,)
            seen = seen | (mine == torch.arange(self.beams, device=device)[:, None])
            lineage = seen[:, :, :reach].repeat_interleave(length, dim=1)  # (B, K·T, reach)
            mask = mask & Mask(pairs=lineage, sighted=True)  # each has read itself
        if real is not None:
            assert self.beams == 1, "padding is read before a beam is made"
            everything = torch.ones(self.sentences, len(at), dtype=torch.bool, device=device)
            kept = (everything if kept is None else kept).index_copy(1, slots, real)
        if kept is not None:
            mask = mask & Mask(keys=kept[:, :reach])
        padding = self.padding
        if real is not None:
            more = (~real).sum(1, keepdim=True)
            padding = more if padding is None else padding + more
        counted = replace(self, read=self.read + length, used=self.used + count, at=at, fresh=False)
        past = replace(counted, seen=seen, real=kept, padding=padding)
        return past, Sight(mask, q_at, at[:reach], slots)

    def _reach(self, count: int) -> int:
        """How many slots are read where ``count`` more are filled.

        A GPU is not asked how many there are: it reads all of them, in steps of one shape that can be recorded. A CPU
        knows, and reads no more.
        """
        assert self.used is not None
        assert self.at is not None
        if self.used.device.type != "cpu":
            return len(self.at)
        if (reach := int(self.used) + count) > len(self.at):
            raise UserError(_full(self.capacity))
        return reach

    def holding(self, layers: Sequence[Memory | None]) -> Past:
        """The past with what each layer has kept."""
        kept = tuple(one for one in layers if one is not None)
        return replace(self, layers=kept) if kept else self

    def select(self, rows: Tensor) -> Past:
        """The past after hypotheses have moved within their sentences: only who sees what changes."""
        beams = len(rows) // self.sentences
        if beams == self.beams == 1:
            return self
        if not self.layers:
            return replace(self, beams=beams)
        assert self.at is not None
        wide = self if beams == self.beams else self._widened(beams)
        seen = self.seen
        if seen is None:
            seen = (self.at < EMPTY).expand(self.sentences, 1, -1)  # one hypothesis: it has read all there is
        seen = seen.flatten(0, 1)[rows].unflatten(0, (self.sentences, beams))  # (B, K', S)
        assert wide.at is not None
        return replace(wide, seen=torch.nn.functional.pad(seen, (0, len(wide.at) - seen.shape[2])))

    def _widened(self, beams: int) -> Past:
        """Slots for more hypotheses. Happens once, where a beam starts after a prompt."""
        assert self.at is not None
        slots = self.capacity * beams
        more = max(slots - len(self.at), 0)
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


def _full(capacity: int) -> str:
    return (
        f"capacity={capacity}: the model has no room for more tokens than it was started with; start with a larger one"
    )
