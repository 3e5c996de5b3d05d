"""The layers of every Transformer: feed-forward, block, stack (Vaswani et al. 2017, §3).

A block is self-attention, optionally attention to a source, and a feed-forward layer, each with a residual connection.
The model families differ only in settings: the kind and place of the norms, the kind of positions, whether layers share
weights. ``Shape`` has these settings; models add their vocabularies and output layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.attention import Attention, Memory, MultiHead
from regard.device import autocast_dtype
from regard.errors import UserError
from regard.layers.checks import check_config
from regard.layers.dropout import drop
from regard.layers.kv_cache import AttentionPlan, KVCache
from regard.layers.positions import Buckets
from regard.layers.segment_memory import SegmentStates, segment_plan
from regard.mask import EVERYTHING, Mask, zero_padding
from regard.scores import AT_ONCE, NOT_FOR_SELF_ATTENTION, Relative, Score, build_score, check_score
from regard.taps import INTERCEPTING, add_layer, recomputation

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
    """The settings that all Transformers have in common."""

    width: int = 256  # width of the states
    heads: int = 4  # number of heads of each attention
    layers: int = 4  # number of blocks
    inner: int = 1024  # width inside the feed-forward layers
    head_width: int = 0  # width of the queries and keys of a head; 0: width / heads
    activation: str = "gelu"  # function in the feed-forward layers: relu, gelu, gelu-tanh, gelu-sigmoid, silu or tanh
    gated: bool = False  # whether the feed-forward layers have a gate: activation(gate) ⊙ up
    norm: str = "layer"  # kind of norm: layer (Ba et al. 2016) or rms (Zhang & Sennrich 2019: neither mean nor bias)
    norm_place: str = "pre"  # place of the norms: pre (before each sublayer and at the end) or post (after each sum)
    last_norm: bool = True  # whether a pre-norm stack ends with one more norm
    epsilon: float = 1e-5  # number that the norms add to the variance
    attention_bias: bool = True  # whether the projections of attention have biases
    feed_bias: bool = True  # whether the feed-forward layers have biases
    residual: bool = True  # whether sublayers have residual connections
    # how query and key are compared: dot, scaled_dot, general (multiplicative), additive (concat) or cosine
    score: str = "scaled_dot"
    positions: str = "learned"  # kind of positions: none, sinusoidal, sinusoidal-halves, learned, t5, relative or xl
    furthest: int = 128  # t5 and relative positions: distances beyond this one are treated alike
    buckets: int = 32  # t5 positions: number of buckets of distances
    windows: tuple[int, ...] = ()  # window of each layer in turn, in tokens to each side; 0: none (0,128: every second)
    groups: int = 0  # number of groups of layers that share their weights; 0: no layers share weights
    group_blocks: int = 1  # with groups: blocks in a group; every layer of the group runs all of them in order
    context: int = 512  # the longest text in tokens, for positions that need a table
    dropout: float = 0.1  # dropout after embeddings, attention and feed-forward layers
    attention_dropout: float = 0.0  # dropout of the attention weights
    feed_dropout: float = 0.0  # dropout inside the feed-forward layers
    output_dropout: float = 0.0  # dropout of the last states
    variational: bool = False  # whether a dropout mask is the same at all tokens of a row (Gal & Ghahramani 2016)
    embedding: str = ""  # a file of word vectors (word2vec or GloVe) that the input embedding starts from

    def __post_init__(self) -> None:
        check_config(
            self,
            sizes=("width", "heads", "layers", "inner", "furthest", "buckets", "context"),
            names={"activation": ACTIVATIONS, "norm": NORMS, "norm_place": PLACES, "positions": POSITIONS},
            dropouts=("attention_dropout", "feed_dropout", "output_dropout"),
        )
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
            self.score,
            {**NOT_FOR_SELF_ATTENTION, "relative": "is a kind of positions here; set model.positions=relative instead"},
        )
        if self.positions in ("relative", "xl") and self.score != "scaled_dot":
            raise UserError(f"model.positions={self.positions}: has its own score; leave model.score=scaled_dot")
        if self.positions == "t5" and self.buckets < 4:
            raise UserError(f"model.buckets={self.buckets}: must be at least 4, for near and far on two sides")
        if self.positions == "t5" and self.furthest <= self.buckets // 2:
            cure = f"give more than half of model.buckets={self.buckets}"
            raise UserError(f"model.furthest={self.furthest}: leaves no distance for the far buckets; {cure}")

    @property
    def longest(self) -> int | None:
        """The most tokens that the model can read; None for relative positions, which need no table of positions."""
        return self.context if self.positions in ("learned", "sinusoidal", "sinusoidal-halves") else None

    @property
    def longest_target(self) -> int | None:
        """The most tokens of a target: the same table of positions serves both sides."""
        return self.longest

    @property
    def position_rows(self) -> int | None:
        """The number of rows of the position table; None: there is no table."""
        return self.longest

    def resized(self, width: int) -> Self:
        """The same shape in about this width."""
        near, share = resized_widths(self, width, self.heads, 1, self.inner)
        return replace(self, width=near, inner=scaled_inner(self.inner, share))

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.head_width or self.width // self.heads

    def stack_groups(self, stack: str) -> tuple[tuple[str, ...], ...]:
        """The layer groups of a stack (`Facts.layer_groups`): its blocks from first to last, with bias and norm."""
        count = (self.groups or self.layers) * self.group_blocks
        groups = [[f"{stack}.blocks.{number}"] for number in range(count)]
        groups[0].append(f"{stack}.bias")
        groups[-1].append(f"{stack}.norm")
        return tuple(map(tuple, groups))

    def build_norm(self) -> nn.Module:
        return (nn.LayerNorm if self.norm == "layer" else nn.RMSNorm)(self.width, eps=self.epsilon)

    def self_score(self) -> Score:
        """The score of self-attention."""
        if self.positions == "relative":
            return Relative(self.head, self.furthest)
        return build_score(self.score, self.head, self.context)

    def attention(self, score: Score) -> MultiHead:
        return MultiHead(
            self.width, self.heads, score, self.head, dropout=self.attention_dropout, bias=self.attention_bias
        )


def resized_widths(shape: Shape, width: int, heads: int, attentions: float, inner: float) -> tuple[int, float]:
    """The nearest width that is a multiple of the heads, and the factor by which the inner width changes.

    Widths are coarse steps, and the inner width makes up for the difference: a layer with this many attentions and this
    inner width has about as many parameters as if it had exactly ``width`` and the same proportions.
    """
    heads = 1 if shape.head_width else heads
    steps = [heads * grain for grain in (8, 2, 1)]  # a head width that is a multiple of 8 suits a GPU
    step = next((one for one in steps if shape.width % one == 0 and 8 * one <= shape.width), heads)
    near = max(round(width / step), 1) * step
    # An attention has 4·width² parameters, a feed-forward layer 2·width·inner; all of them grow with width².
    return near, near / shape.width * (width / near) ** (2 + 4 * attentions * shape.width / inner)


def scaled_inner(inner: int, share: float) -> int:
    """An inner width times a factor; a multiple of 8 stays one."""
    grain = 8 if inner % 8 == 0 else 1
    return max(round(share * inner / grain), 1) * grain


class FeedForward(nn.Module):
    """W₂ f(W₁ x) at every position (Vaswani et al. 2017, eq. 2), or W₂ (f(Gx) ⊙ W₁ x) (Shazeer 2020)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.inner, bias=shape.feed_bias)
        self.gate = nn.Linear(shape.width, shape.inner, bias=shape.feed_bias) if shape.gated else None
        self.down = nn.Linear(shape.inner, shape.width, bias=shape.feed_bias)
        self.activation = ACTIVATIONS[shape.activation]
        self.dropout, self.variational = shape.feed_dropout, shape.variational

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(drop(inner, self.dropout, self.training, self.variational))


class Block(nn.Module):
    """One layer: self-attention, attention to a source if there is one, and a feed-forward layer.

    torch.compile is applied to blocks: one compiled program serves all blocks of a stack.
    """

    recomputes = False  # gradient checkpointing: keep the inputs alone, and compute the rest again (Chen et al. 2016)

    def __init__(self, shape: Shape, reads_source: bool = False) -> None:
        super().__init__()
        self.attention, self.attention_norm = shape.attention(shape.self_score()), shape.build_norm()
        self.cross, self.cross_norm = None, None
        if reads_source:
            self.cross = shape.attention(build_score(shape.score, shape.head, shape.context))
            self.cross_norm = shape.build_norm()
        self.feed, self.feed_norm = FeedForward(shape), shape.build_norm()
        self.pre, self.residual = shape.norm_place == "pre", shape.residual
        self.dropout, self.variational = shape.dropout, shape.variational

    def forward(
        self,
        x: Tensor,
        plan: AttentionPlan,
        cache: Memory | None = None,
        source: Memory | None = None,
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, Memory | None]:
        """x (B, T, width) → output (B, T, width), and the layer's KV cache with the new tokens."""
        if not (self.recomputes and self.training and torch.is_grad_enabled()):
            return self._forward(x, plan, cache, source, source_mask)
        given, compiling = (x, plan, cache, source, source_mask), torch.compiler.is_dynamo_compiling()
        if compiling and INTERCEPTING.open:  # a compiled backward pass cannot repeat the edits of the forward pass
            return torch.compiler.disable(self.forward)(*given)
        repeated = partial(checkpoint, self._forward, *given, use_reentrant=False)
        found: tuple[Tensor, Memory | None]
        if compiling:  # the compiler takes no `context_fn`, and without edits none is needed
            found = repeated()
        else:
            reads = [part.read for part in (self.attention, self.cross) if part is not None]
            watched = [read.number for read in reads if read.watchers]
            found = repeated(context_fn=partial(recomputation, watched))
        return found

    def _forward(
        self, x: Tensor, plan: AttentionPlan, cache: Memory | None, source: Memory | None, source_mask: Mask
    ) -> tuple[Tensor, Memory | None]:
        q, new = self.attention.project(self._before(x, self.attention_norm))
        read, kept = plan.join(cache, new)
        y = self.attention.attend(q, read, plan.mask, plan.q_at, plan.k_at)
        x = self._after(x, y, self.attention_norm)
        if self.cross is not None and self.cross_norm is not None:
            assert source is not None
            q = self.cross.queries(self._before(x, self.cross_norm))
            x = self._after(x, self.cross.attend(q, source, source_mask), self.cross_norm)
        x = self._after(x, self.feed(self._before(x, self.feed_norm)), self.feed_norm)
        return x, kept

    def _before(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.pre else x

    def _after(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        y = drop(y, self.dropout, self.training, self.variational)
        x = x + y if self.residual else y
        return x if self.pre else norm(x)


class Stack(nn.Module):
    """A stack of blocks. With ``groups``, several layers use the same block (Lan et al. 2020, §3.1)."""

    def __init__(self, shape: Shape, causal: bool, reads_source: bool = False) -> None:
        super().__init__()
        groups = shape.groups or shape.layers
        self.repeats, self.group_blocks = shape.layers // groups, shape.group_blocks
        self.blocks = nn.ModuleList(Block(shape, reads_source) for _ in range(groups * shape.group_blocks))
        for attention in (module for module in self.modules() if isinstance(module, Attention)):
            attention.shared_by = self.repeats
        self.width, self.windows = shape.width, shape.windows or (0,)
        self.bias = Buckets(shape.heads, shape.buckets, shape.furthest, not causal) if shape.positions == "t5" else None
        self.norm = shape.build_norm() if shape.norm_place == "pre" and shape.last_norm else None
        self.dropout, self.variational = shape.output_dropout, shape.variational

    @property
    def layers(self) -> list[Block]:
        """The block of every layer, from the first to the last."""
        blocks: list[Block] = list(self.blocks)  # type: ignore[arg-type]
        groups = [blocks[first : first + self.group_blocks] for first in range(0, len(blocks), self.group_blocks)]
        return [block for group in groups for _ in range(self.repeats) for block in group]

    def forward(
        self,
        x: Tensor,
        real: Tensor | None = None,
        mask: Mask = EVERYTHING,
    ) -> Tensor:
        """Reads a whole text, in both directions unless the mask is causal. (B, T, width) → (B, T, width)"""
        x = zero_padding(x, real)
        plans = self._plans(AttentionPlan(mask if real is None else mask & Mask(keys=real)), x)
        for number, block in enumerate(self.layers):
            add_layer(x)
            x, _ = block(x, plans[number % len(plans)])
        return self._ended(x)

    def advance(
        self,
        x: Tensor,
        cache: KVCache,
        real: Tensor | None = None,
        sources: Sequence[Memory | None] = (),
        source_mask: Mask = EVERYTHING,
    ) -> tuple[Tensor, KVCache]:
        """Reads new tokens after those in the cache: x (B, K·T, width) → features and the cache with the new tokens."""
        x, blocks = zero_padding(x, real), self.layers
        nothing = [None] * len(blocks)
        cache, plan = cache.reserve(x, real, self._slots)
        plans, kept = self._plans(plan, x), []
        for number, (block, memory, source) in enumerate(zip(blocks, cache.layers or nothing, sources or nothing)):
            add_layer(x)
            x, memory = block(x, plans[number % len(plans)], memory, source, source_mask)
            kept.append(memory)
        return self._ended(x), cache.with_layers(kept)

    def advance_segment(self, x: Tensor, memory: SegmentStates) -> tuple[Tensor, SegmentStates]:
        """Reads a segment x (B, T, width) after the hidden states of earlier ones: features and the new memory."""
        filled, kept = memory.layers[0].shape[1], []
        plans = self._plans(segment_plan(x, filled), x)
        for number, (block, states) in enumerate(zip(self.layers, memory.layers)):
            kept.append(memory.after(number, x))
            earlier = block.attention.memory(block._before(states, block.attention_norm)) if filled else None
            x, _ = block(x, plans[number % len(plans)], earlier)
        return self._ended(x), SegmentStates(memory.length, tuple(kept))

    def preallocate(self, cache: KVCache, steps: int = 1) -> KVCache:
        """The cache with all its slots allocated, so that its shape does not change in the next ``steps`` steps."""
        return cache.preallocate(self._slots, steps)

    def source_memories(self, states: Tensor) -> tuple[Memory, ...]:
        """The memory of the source for the cross-attention of each layer, projected once."""
        memories = tuple(block.cross.memory(states) for block in self.layers if block.cross is not None)
        if torch.is_grad_enabled():
            return memories
        return tuple(one.contiguous() for one in memories)  # the steps of decoding read them many times

    def _ended(self, x: Tensor) -> Tensor:
        """The states of the last layer, after the last norm and dropout."""
        x = x if self.norm is None else self.norm(x)
        x = drop(x, self.dropout, self.training, self.variational)
        add_layer(x)
        return x

    def _plans(self, plan: AttentionPlan, x: Tensor) -> list[AttentionPlan]:
        """The attention plan of each window, with its mask computed once; layers use the plans in turn."""
        bias = None
        if self.bias is not None:
            q_at, k_at = plan.positions(x.shape[1], x.device)
            if torch.is_grad_enabled() or self.bias.heads * len(q_at) * k_at.numel() <= AT_ONCE:
                bias = Mask(bias=self._bias_at(q_at, k_at), sees_self=True)
            else:
                bias = Mask(bias_at=self._bias_at, sees_self=True)
        return [plan.with_window(window).resolved(x.shape[1], x.device, bias) for window in self.windows]

    def _bias_at(self, q_at: Tensor, k_at: Tensor) -> Tensor:
        """The bias of the positions, converted here, otherwise the kernel would convert it."""
        assert self.bias is not None
        bias: Tensor = self.bias(q_at, k_at)
        return bias.to(autocast_dtype(q_at.device) or bias.dtype)

    def _slots(self) -> list[Memory]:
        """One slot of each layer's memory, as a template for allocating the cache."""
        with torch.no_grad():
            slot = self.layers[0].attention.memory(self._zeros())
        return [slot] * len(self.layers)

    def _zeros(self) -> Tensor:
        """The state of one token, all zeros: (1, 1, width)."""
        return next(self.parameters()).new_zeros(1, 1, self.width)
