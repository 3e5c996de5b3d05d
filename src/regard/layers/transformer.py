"""The parts of every Transformer: feed-forward, block, stack (Vaswani et al. 2017, §3).

A block is attention, perhaps a second attention to a source, and a feed-forward layer, each added to what it was given.
The families differ in settings only: where the norm stands, which norm it is, what positions are, whether layers share
their weights. ``Shape`` has those settings; models add their vocabularies and heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attention, Memory, MultiHead
from regard.errors import UserError, nearest
from regard.layers.kv_cache import AttentionPlan, KVCache
from regard.layers.positions import Buckets
from regard.layers.segment_memory import SegmentMemory
from regard.mask import EVERYTHING, Mask
from regard.scores import UNFIT_FOR_ITSELF, Relative, Score, build_score, check_score

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu-sigmoid": lambda x: x * torch.sigmoid(1.702 * x),  # Hendrycks & Gimpel 2016, §2
    "silu": F.silu,
    "tanh": torch.tanh,
}
NORMS = ("layer", "rms")
PLACES = ("pre", "post")
POSITIONS = ("none", "sinusoidal", "sinusoidal-halves", "learned", "t5", "relative", "xl")


@dataclass(frozen=True)
class Shape:
    """What the settings of all Transformers have in common."""

    width: int = 256  # of the states
    heads: int = 4  # of each attention
    layers: int = 4  # blocks, one above the other
    inner: int = 1024  # width inside the feed-forward layers
    head_width: int = 0  # of a head's queries and keys; 0: width / heads
    activation: str = "gelu"  # relu, gelu, gelu-tanh, gelu-sigmoid, silu or tanh, in the feed-forward layers
    gated: bool = False  # feed-forward layers have a gate: activation(gate) ⊙ up
    norm: str = "layer"  # layer (Ba et al. 2016) or rms (Zhang & Sennrich 2019: neither mean nor bias)
    norm_place: str = "pre"  # pre: before each part, and after the last block; post: after each sum
    last_norm: bool = True  # pre-norm stacks end with one more norm
    epsilon: float = 1e-5  # added to variances
    attention_bias: bool = True  # biases in the projections of attention
    feed_bias: bool = True  # biases in the feed-forward layers
    residual: bool = True  # what a part makes is added to what it was given; false: replaces it
    score: str = "scaled_dot"  # dot, scaled_dot, general, additive or cosine
    positions: str = "learned"  # none, sinusoidal, sinusoidal-halves, learned, t5, relative or xl
    furthest: int = 128  # distances that t5 and relative positions tell apart
    buckets: int = 32  # of distances, for t5
    windows: tuple[int, ...] = ()  # how far layers see to either side, in turn; 0: all the way (0,128: every second)
    groups: int = 0  # layers share their weights within this many groups; 0: each has its own
    group_blocks: int = 1  # with groups: the blocks of each, which every layer of the group runs one after the other
    context: int = 512  # the most tokens a text may have, where positions have a table
    dropout: float = 0.1  # after embeddings, attention and feed-forward layers
    attention_dropout: float = 0.0  # of the weights of attention
    feed_dropout: float = 0.0  # inside the feed-forward layers

    def __post_init__(self) -> None:
        names: dict[str, Sequence[str]] = {
            "activation": tuple(ACTIVATIONS),
            "norm": NORMS,
            "norm_place": PLACES,
            "positions": POSITIONS,
        }
        for field, known in names.items():
            if (value := getattr(self, field)) not in known:
                raise UserError(f"model.{field}={value}: no such {field}.{nearest(value, known)}")
        for field in ("width", "heads", "layers", "inner", "furthest", "buckets", "context"):
            if (size := getattr(self, field)) < 1:
                raise UserError(f"model.{field}={size}: must be at least 1")
        for field in ("dropout", "attention_dropout", "feed_dropout"):
            if not 0 <= (part := getattr(self, field)) < 1:
                raise UserError(f"model.{field}={part}: must be at least 0 and below 1")
        if not self.head_width and self.width % self.heads:
            cure = "change one of them, or set model.head_width"
            raise UserError(f"model.heads={self.heads}: model.width={self.width} is not a multiple of it; {cure}")
        if self.groups and self.layers % self.groups:
            raise UserError(f"model.groups={self.groups}: must divide model.layers={self.layers}")
        if self.group_blocks < 1 or (self.group_blocks > 1 and not self.groups):
            raise UserError(f"model.group_blocks={self.group_blocks}: must be at least 1, and 1 without model.groups")
        if min(self.windows, default=0) < 0:
            raise UserError(f"model.windows={','.join(map(str, self.windows))}: must be at least 0")
        check_score(
            self.score, {**UNFIT_FOR_ITSELF, "relative": "is about positions; set model.positions=relative instead"}
        )
        if self.positions in ("relative", "xl") and self.score != "scaled_dot":
            raise UserError(f"model.positions={self.positions}: is a score of its own; leave model.score=scaled_dot")
        if self.positions == "t5" and self.buckets < 4:
            raise UserError(f"model.buckets={self.buckets}: near and far on two sides need at least 4")
        if self.positions == "t5" and self.furthest <= self.buckets // 2:
            cure = f"give more than half of model.buckets={self.buckets}"
            raise UserError(f"model.furthest={self.furthest}: leaves no distance for the far buckets; {cure}")

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads; distances, unlike positions, have no table that could end."""
        return self.context if self.positions in ("learned", "sinusoidal", "sinusoidal-halves") else None

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.head_width or self.width // self.heads

    def build_norm(self, width: int | None = None) -> nn.Module:
        kind = nn.LayerNorm if self.norm == "layer" else nn.RMSNorm
        return kind(width or self.width, eps=self.epsilon)

    def self_score(self) -> Score:
        """How the tokens of a text are compared with each other."""
        if self.positions == "relative":
            return Relative(self.head, self.furthest)
        return build_score(self.score, self.head, self.context)

    def attention(self, score: Score) -> MultiHead:
        return MultiHead(
            self.width, self.heads, score, self.head, dropout=self.attention_dropout, bias=self.attention_bias
        )


class FeedForward(nn.Module):
    """W₂ f(W₁ x) at every position (Vaswani et al. 2017, eq. 2), or W₂ (f(Gx) ⊙ W₁ x) (Shazeer 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.inner, bias=shape.feed_bias)
        self.gate = nn.Linear(shape.width, shape.inner, bias=shape.feed_bias) if shape.gated else None
        self.down = nn.Linear(shape.inner, shape.width, bias=shape.feed_bias)
        self.activation, self.dropout = ACTIVATIONS[shape.activation], shape.feed_dropout

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(F.dropout(inner, self.dropout, self.training))


class Block(nn.Module):
    """One layer: looks at its own text, at a source if there is one, then thinks about each position by itself.

    The unit that is compiled: all blocks of a stack are the same program.
    """

    def __init__(self, shape: Shape, reads_source: bool = False) -> None:
        super().__init__()
        self.attention, self.attention_norm = shape.attention(shape.self_score()), shape.build_norm()
        self.cross, self.cross_norm = None, None
        if reads_source:
            self.cross = shape.attention(build_score(shape.score, shape.head, shape.context))
            self.cross_norm = shape.build_norm()
        self.feed, self.feed_norm = FeedForward(shape), shape.build_norm()
        self.pre, self.residual, self.dropout = shape.norm_place == "pre", shape.residual, shape.dropout

    def forward(
        self,
        x: Tensor,
        plan: AttentionPlan,
        cache: Memory | None = None,
        source: Memory | None = None,
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, Memory | None]:
        """(B, T, width) → the same, and what the layer keeps of its text."""
        q, new = self.attention.project(self._before(x, self.attention_norm))
        read, kept = plan.join(cache, new)
        y = self.attention.answer(q, read, plan.mask, plan.q_at, plan.k_at)
        x = self._after(x, y, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert source is not None
            q = self.cross.queries(self._before(x, self.cross_norm))
            x = self._after(x, self.cross.answer(q, source, source_mask), self.cross_norm)
        x = self._after(x, self.feed(self._before(x, self.feed_norm)), self.feed_norm)
        return x, kept

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.pre else x

    def _after(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        y = F.dropout(y, self.dropout, self.training)
        x = x + y if self.residual else y
        return x if self.pre else norm(x)


class Stack(nn.Module):
    """Blocks one above the other. With ``groups`` a few are used several times (Lan et al. 2020, §3.1)."""

    def __init__(self, shape: Shape, causal: bool, reads_source: bool = False) -> None:
        super().__init__()
        groups = shape.groups or shape.layers
        self.repeats, self.group_blocks = shape.layers // groups, shape.group_blocks
        self.blocks = nn.ModuleList(Block(shape, reads_source) for _ in range(groups * shape.group_blocks))
        for read in (part for part in self.modules() if isinstance(part, Attention)):
            read.turns = self.repeats
        self.width, self.windows = shape.width, shape.windows or (0,)
        self.bias = Buckets(shape.heads, shape.buckets, shape.furthest, not causal) if shape.positions == "t5" else None
        self.norm = shape.build_norm() if shape.norm_place == "pre" and shape.last_norm else None

    @property
    def layers(self) -> list[Block]:
        """The block of every layer, from the bottom up."""
        blocks: list[Block] = list(self.blocks)  # type: ignore[arg-type]
        groups = [blocks[first : first + self.group_blocks] for first in range(0, len(blocks), self.group_blocks)]
        return [block for group in groups for _ in range(self.repeats) for block in group]

    def forward(self, x: Tensor, real: Tensor | None = None, mask: Mask = EVERYTHING) -> Tensor:
        """A text read in both directions. (B, T, width) → (B, T, width)"""
        sights = self._plans(AttentionPlan(mask if real is None else mask & Mask(keys=real)), x)
        for number, block in enumerate(self.layers):
            x, _ = block(x, sights[number % len(sights)])
        return x if self.norm is None else self.norm(x)

    def advance(
        self,
        x: Tensor,
        cache: KVCache | SegmentMemory,
        real: Tensor | None = None,
        sources: Sequence[Memory | None] = (),
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, KVCache | SegmentMemory]:
        """A text read from its cache on: x (B, K·T, width) → the same, and the cache with the text in it."""
        layers = self.layers
        nothing = [None] * len(layers)
        cache, plan = cache.room(x, real, self._slots)
        sights, kept = self._plans(plan, x), []
        for number, (block, memory, source) in enumerate(zip(layers, cache.layers or nothing, sources or nothing)):
            x, memory = block(x, sights[number % len(sights)], memory, source, source_mask)
            kept.append(memory)
        return x if self.norm is None else self.norm(x), cache.holding(kept)

    def remembering_zeros(self, rows: int, length: int) -> SegmentMemory:
        """The memory of a text whose states were all zeros: what the layers make of those need not be."""
        x = self._zeros()
        slots = [block.attention.memory(block._before(x, block.attention_norm)) for block in self.layers]
        memories = (Memory(*(x.expand(rows, -1, length, -1) for x in (one.keys, one.values))) for one in slots)
        return SegmentMemory(length, tuple(memories), held=length)

    def preallocate(self, cache: KVCache | SegmentMemory, steps: int = 1) -> KVCache | SegmentMemory:
        """The cache with its slots made, if it has one: none of the steps to come will change its shape."""
        return cache.preallocate(self._slots, steps)

    def read_source(self, states: Tensor) -> tuple[Memory, ...]:
        """What every layer's attention to the source will read, projected once."""
        memories = tuple(block.cross.memory(states) for block in self.layers if block.cross is not None)
        return memories if torch.is_grad_enabled() else tuple(one.packed() for one in memories)  # for a search's steps

    def _plans(self, plan: AttentionPlan, x: Tensor) -> list[AttentionPlan]:
        """What layers see, in turn, written out once for all of them."""
        bias = None if self.bias is None else self.bias(*plan.places(x.shape[1], x.device))
        if bias is not None and torch.is_autocast_enabled(x.device.type):  # or each layer would have to convert it
            bias = bias.to(torch.get_autocast_dtype(x.device.type))
        return [plan.through(window).resolved(x.shape[1], x.device, bias) for window in self.windows]

    def _slots(self) -> list[Memory]:
        """One slot of each layer's memory, to make room for more like it."""
        with torch.no_grad():
            slot = self.layers[0].attention.memory(self._zeros())
        return [slot] * len(self.layers)

    def _zeros(self) -> Tensor:
        """The state of one token, (1, 1, width), all zeros."""
        return next(self.parameters()).new_zeros(1, 1, self.width)
