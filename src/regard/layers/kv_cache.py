"""The KV cache of a stack of causal layers: the keys and values of earlier tokens, and which queries may see them.

``KVCache`` is preallocated. In training the whole text is read at once, so nothing is stored. The slots of a cache
belong to a *sentence*: the K hypotheses of a beam write to the same slots, and a table (``visible``) has the slots that
each hypothesis descends from. Reordering the beams changes only this table; no key is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import Memory
from regard.errors import UserError
from regard.mask import CAUSAL, EVERYTHING, Mask

pad = torch.nn.functional.pad
EMPTY = 2**30  # the position of an unused slot: after every query, so that a causal mask hides it


SlotTemplates = Callable[[], Sequence[Memory]]  # returns one slot of each layer's memory, from which more are allocated


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """The mask and the positions of one forward pass, computed once and shared by all layers."""

    mask: Mask = EVERYTHING
    q_at: Tensor | None = None  # (Tq,); None: as many queries as keys, in the same order
    k_at: Tensor | None = None  # (Tk,), or by row (B, 1, 1, Tk), of the slots that are read; None: no slots are read
    slots: Tensor | None = None  # (Tq,) the slots to which new keys are written; None: new keys are not stored
    single: bool = False  # one new token for each hypothesis: of the new keys, a query sees only its own

    def join(self, cache: Memory | None, new: Memory) -> tuple[Memory, Memory | None]:
        """The memory that a layer reads and its cache after this pass, given its cache and the new keys and values."""
        if cache is None or self.slots is None:
            return new, cache
        kept = cache.write_at(self.slots, new)
        return new if self.k_at is None else kept.first(self.k_at.shape[-1]), kept

    def with_window(self, window: int) -> AttentionPlan:
        """The plan with a window in its mask (0: none)."""
        return self if window == 0 else replace(self, mask=self.mask & Mask(window=window))

    def resolved(self, queries: int, device: torch.device, bias: Mask | None = None) -> AttentionPlan:
        """The plan with its mask computed for all layers, joined with a bias if there is one.

        A bias that is a function of positions (`Mask.bias_at`) is computed by each layer.
        """
        if bias is not None:
            mask = self.mask & bias
            if mask.bias_at is not None:
                return replace(self, mask=mask)
        elif self.mask is EVERYTHING or (self.mask.only_causal and self.q_at is None):
            return self
        else:
            mask = self.mask
        q_at, k_at = self.positions(queries, device)
        return replace(self, mask=mask.resolved(q_at, k_at, 4))

    def positions(self, queries: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The positions of queries and keys."""
        if self.q_at is not None and self.k_at is not None:
            return self.q_at, self.k_at
        at = torch.arange(queries, device=device)
        return at, at


@dataclass(frozen=True, eq=False)
class KVCache:
    """The KV cache of a stack. A token's slot is its place in the buffers; its position is its place in the text.

    With a ``memory`` it is that of Transformer-XL (Dai et al. 2019, §3.2): the tokens of one pass are a segment, and
    each sees the last ``memory`` tokens before the segment and the segment up to itself. The result depends on where
    segments end, unless the layers have a window as long as the memory (``windows=(memory - 1,)``). Slots that no later
    segment sees are dropped when the cache is full, so a text may be longer than the capacity.
    """

    sentences: int  # B
    capacity: int  # the most tokens of each hypothesis
    beams: int = 1  # K hypotheses of each sentence
    memory: int = 0  # the most tokens that a segment sees of those before it; 0: all of them
    layers: tuple[Memory, ...] = ()  # (B, H, S, D) for each layer; empty: not allocated
    read: Tensor | None = None  # 0-d: tokens of each hypothesis so far
    used: Tensor | None = None  # 0-d: slots in use
    host_used: int | None = 0  # the same number on the host; None: only the device has it, because steps are captured
    at: Tensor | None = None  # (S,) the position of each slot; by row (B, 1, 1, S) after a text with padding
    visible: Tensor | None = None  # (B, K, S) the slots that each hypothesis may see; None: one hypothesis sees all
    real: Tensor | None = None  # (B, S) False at padding
    fresh: bool = True  # no tokens were read yet

    @property
    def padding(self) -> Tensor | None:
        """(B, 1) how many of the tokens so far were padding."""
        return None if self.real is None else (~self.real).sum(1, keepdim=True)

    def merge_beams(self, tokens: Tensor) -> Tensor:
        """(B·K, T, …) → (B, K·T, …): the hypotheses of a sentence become more queries of its one cache."""
        check_rows(tokens, self.sentences * self.beams)
        return tokens.reshape(self.sentences, self.beams * tokens.shape[1], *tokens.shape[2:])

    def split_beams(self, features: Tensor) -> Tensor:
        """(B, K·T, W) → (B·K, T, W)"""
        return features.reshape(self.sentences * self.beams, -1, features.shape[-1])

    def positions(self, tokens: Tensor, real: Tensor | None) -> Tensor:
        """The positions (1 or B, K·T) of new tokens (B, K·T, …): the number of real tokens before each."""
        at = torch.arange(tokens.shape[1] // self.beams, device=tokens.device).repeat(self.beams)[None]
        if real is not None:
            at = (real.cumsum(1) - 1).clamp(min=0)
        if self.read is not None:
            at = at + self.read
        padding = self.padding
        return at if padding is None else (at - padding).clamp(min=0)

    def preallocate(self, slots: SlotTemplates, steps: int = 1) -> KVCache:
        """A cache whose shape does not change in the next ``steps`` steps, as needed to capture them in a CUDA graph.

        Raises ``UserError`` if the capacity is too small, which a captured step could not detect.
        """
        cache = self._allocated(slots()) if self.fresh else self
        if cache.at is None or cache.used is None:
            raise UserError(_full_message(self.capacity))
        return replace(cache._with_room(steps * cache.beams), fresh=False, host_used=None)

    def reserve(self, x: Tensor, real: Tensor | None, slots: SlotTemplates) -> tuple[KVCache, AttentionPlan]:
        """Reserves slots for new tokens x (B, K·T, W): the cache that counts them, and the plan for this pass."""
        cache = self
        more = x.shape[1] < self.capacity or (self.memory and not torch.is_grad_enabled())  # whether tokens may follow
        if self.fresh and (self.beams > 1 or more):
            cache = self._allocated(slots())
        if not self.fresh or self.beams > 1:
            capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
            if cache.used is not None and not capturing:  # ``preallocate`` made room for captured steps
                cache = cache._with_room(x.shape[1])
            return cache._extend(x, real)
        # The first tokens see only each other, so no slots are read. If no token can follow, none are allocated either.
        plan = AttentionPlan(CAUSAL if real is None else CAUSAL & Mask(keys=real))
        if not cache.layers:
            return replace(cache, fresh=False), plan
        cache, extended = cache._with_room(x.shape[1])._extend(x, real)
        return cache, replace(plan, slots=extended.slots)

    def _allocated(self, slots: Sequence[Memory]) -> KVCache:
        """The cache with unused slots, given one slot of each layer as a template."""
        size, device = self.capacity * self.beams, slots[0].keys.device
        visible = torch.zeros(self.sentences, self.beams, size, dtype=torch.bool, device=device)
        return replace(
            self,
            layers=tuple(one.new_zeros(self.sentences, size) for one in slots),
            read=torch.zeros((), dtype=torch.long, device=device),
            used=torch.zeros((), dtype=torch.long, device=device),
            at=torch.full((size,), EMPTY, device=device),
            visible=visible if self.beams > 1 else None,
        )

    def _extend(self, x: Tensor, real: Tensor | None) -> tuple[KVCache, AttentionPlan]:
        """The cache and the plan for new tokens that may see earlier ones."""
        if self.read is None or self.used is None or self.at is None:
            # The first pass used the whole capacity, and no slots were allocated.
            raise UserError(_full_message(self.capacity))
        count, device = x.shape[1], x.device
        # A CPU reads only the slots in use. A GPU reads all slots: their shape is then the same in every step, which
        # can be captured, and nothing waits for the number of slots in use.
        reach = int(self.used) + count if device.type == "cpu" else self.at.shape[-1]
        length = count // self.beams
        new = torch.arange(count, device=device)  # beam by beam
        slots, q_at = self.used + new, self.read + new % length
        # A single token needs no causal mask if it reads only slots in use (CPU), or only those in ``visible``.
        unmasked = length == 1 and (device.type == "cpu" or self.visible is not None)
        mask = EVERYTHING if unmasked else replace(CAUSAL, sees_self=True)
        visible, slots_real = self.visible, self.real
        if self.memory:
            recent = (self.at >= self.read - self.memory)[None, :reach]  # unused slots are hidden by the causal mask
            mask = mask & Mask(keys=recent, sees_self=True)
        if visible is not None:
            # (S,) the hypothesis that each new slot belongs to; other slots get a number outside 0 … K - 1
            owner = (torch.arange(visible.shape[2], device=device) - self.used).div(length, rounding_mode="floor")
            visible = visible | (owner == torch.arange(self.beams, device=device)[:, None])
            pairs = visible[:, :, :reach]
            if length > 1:
                pairs = pairs.repeat_interleave(length, dim=1)  # (B, K·T, reach)
            mask = mask & Mask(pairs=pairs, sees_self=True)  # each hypothesis sees its own new tokens
        if real is None and slots_real is None:
            at = k_at = self.at.index_copy(0, slots, q_at)
        else:
            at, k_at = self._row_positions(x, real, slots)
        if real is not None:
            assert self.beams == 1, "padding is read before the beams are made"
            if slots_real is None:
                slots_real = torch.ones(self.sentences, at.shape[-1], dtype=torch.bool, device=device)
            slots_real = slots_real.index_copy(1, slots, real)
        if slots_real is not None:
            mask = mask & Mask(keys=slots_real[:, :reach])
        cache = replace(
            self,
            read=self.read + length,
            used=self.used + count,
            host_used=None if self.host_used is None else self.host_used + count,
            at=at,
            visible=visible,
            real=slots_real,
            fresh=False,
        )
        return cache, AttentionPlan(mask, q_at, k_at[..., :reach], slots, length == 1)

    def _row_positions(self, x: Tensor, real: Tensor | None, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The positions (B, 1, 1, S) of slots after padding: those that the cache stores, and those for the mask.

        Padding has no position, so slots have different positions in different rows. But the positions of queries are
        the same in all rows and do count padding. So for the mask, a row's slots are shifted by its padding.
        """
        assert self.at is not None
        at = self.at.expand(self.sentences, 1, 1, -1).index_copy(-1, slots, self.positions(x, real)[:, None, None])
        before = self.padding
        if real is not None:
            first = real.long().argmax(1, keepdim=True)  # padding before the new text
            before = first if before is None else before + first
        assert before is not None
        return at, at + before[:, None, None]

    def _with_room(self, count: int) -> KVCache:
        """The cache with room for ``count`` tokens. If there is none, Transformer-XL drops slots that it needs no more.

        This waits for the GPU only if earlier steps were captured.
        """
        assert self.used is not None
        assert self.at is not None
        used, size = int(self.used) if self.host_used is None else self.host_used, self.at.shape[-1]
        if used + count <= size:
            return self
        if not self.memory:
            raise UserError(_full_message(self.capacity))
        kept = min(used, self.memory * self.beams)
        last, size = slice(used - kept, used), max(size, kept + count)
        layers = (Memory(one.keys[..., last, :], one.values[..., last, :]) for one in self.layers)
        return replace(
            self,
            layers=tuple(_padded(one, size - kept) for one in layers),
            used=torch.full_like(self.used, kept),
            host_used=kept,
            at=pad(self.at[last], (0, size - kept), value=EMPTY),
            visible=None if self.visible is None else pad(self.visible[..., last], (0, size - kept)),
        )

    def with_layers(self, layers: Sequence[Memory | None]) -> KVCache:
        """The cache with the new memories of the layers."""
        kept = tuple(one for one in layers if one is not None)
        return replace(self, layers=kept) if kept else self

    def select(self, rows: Tensor) -> KVCache:
        """The cache after the hypotheses were reordered within their sentences: only ``visible`` changes."""
        beams = len(rows) // self.sentences
        if beams == self.beams == 1:
            return self
        if not self.layers:
            return replace(self, beams=beams)
        assert self.at is not None
        wide = self if beams == self.beams else self._with_beams(beams)
        visible = self.visible
        if visible is None:
            used = self.at < EMPTY  # the one hypothesis sees all slots in use
            visible = used.view(-1, 1, self.at.shape[-1]).expand(self.sentences, -1, -1)
        visible = visible.flatten(0, 1)[rows].unflatten(0, (self.sentences, beams))  # (B, K', S)
        assert wide.at is not None
        return replace(wide, visible=pad(visible, (0, wide.at.shape[-1] - visible.shape[2])))

    def keep(self, sentences: Tensor, rows: Tensor) -> KVCache:
        """The cache of these sentences alone."""
        at, visible, real = self.at, self.visible, self.real
        return replace(
            self,
            sentences=len(sentences),
            layers=tuple(one.select(sentences) for one in self.layers),
            at=at if at is None or at.dim() == 1 else at[sentences],
            visible=None if visible is None else visible[sentences],
            real=None if real is None else real[sentences],
        )

    def _with_beams(self, beams: int) -> KVCache:
        """The cache with slots for more hypotheses. Needed once, when a beam search starts after a prompt."""
        assert self.at is not None
        more = self.at.shape[-1] * (beams - 1) if self.beams == 1 else max(self.capacity * beams - self.at.shape[-1], 0)
        return replace(
            self,
            beams=beams,
            layers=tuple(_padded(one, more) for one in self.layers),
            at=pad(self.at, (0, more), value=EMPTY),
            real=None if self.real is None else pad(self.real, (0, more), value=True),
        )


def _padded(memory: Memory, slots: int) -> Memory:
    """The memory with this many more slots."""
    return Memory(pad(memory.keys, (0, 0, 0, slots)), pad(memory.values, (0, 0, 0, slots)))


def check_rows(tokens: Tensor, rows: int) -> None:
    """Raise ``UserError`` if tokens (R, T) do not have as many rows as the state."""
    if len(tokens) != rows:
        cure = f"start it with rows={len(tokens)}, or with as many sources"
        raise UserError(f"tokens: they have {len(tokens)} rows, but the state has {rows}; {cure}")


def _full_message(capacity: int) -> str:
    return f"capacity={capacity}: the KV cache is full; start with a larger capacity"
