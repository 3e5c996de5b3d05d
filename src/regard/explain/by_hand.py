"""Attention computed by hand: six steps in one head, then all heads and the rest of the block.

The steps: (1) compute queries, keys and values; (2) the dot product of the query with every key; (3) divide by √width;
(4) softmax; (5) multiply every value by its weight; (6) sum (Vaswani et al. 2017, §3.2). The computation does not use
the library's fused kernels, and its result is compared with theirs.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Memory, MultiHead
from regard.layers.kv_cache import AttentionPlan
from regard.layers.transformer import Block
from regard.mask import EVERYTHING, Mask
from regard.scores import Additive, Dot, Relative, Score, XLRelative

TOLERANCE = 1e-6
DEFAULTS: tuple[Any, ...] = (None, None, EVERYTHING)  # of the arguments of a block after states and plan


@dataclass(frozen=True, eq=False)
class PositionTerm:
    """The term of a score that depends on the distance between query and key: a vector for each key times a query."""

    query: Tensor  # (D,)
    vectors: Tensor  # (T, D)

    @property
    def scores(self) -> Tensor:
        """(T,)"""
        return (self.query * self.vectors).sum(dim=1)


@dataclass(frozen=True, eq=False)
class AttentionSteps:
    """The six steps for one query in one head, with T keys of width D. Masked keys have a scaled score of -∞.

    In an additive score, step 2 multiplies v with tanh(query + key), not the query with the key.
    """

    query: Tensor  # (D,)                     step 1, as the score compares it
    keys: Tensor  # (T, D)                    step 1, as the score compares them
    values: Tensor  # (T, D)                  step 1
    scores: Tensor  # (T,) q·k                step 2
    scaled: Tensor  # (T,)                    step 3: (q·k + positions) · scale + bias
    weights: Tensor  # (T,)                   step 4
    weighted: Tensor  # (T, D)                step 5
    output: Tensor  # (D,)                    step 6
    scale: float
    bias: Tensor | None = None  # (T,) T5's bias for positions; 0 at masked keys
    positions: PositionTerm | None = None
    v: Tensor | None = None  # (D,) of an additive score

    @property
    def numbers(self) -> dict[str, Any]:
        """The results of steps 2 to 6."""
        names = ("scores", "scaled", "weights", "output", "scale")
        return {name: getattr(self, name) for name in names}


def factors(query: Tensor, keys: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor]:
    """The two factors of step 2, (D,) and (T, D): the query and the keys, or v and tanh(query + key)."""
    return (query, keys) if v is None else (v, torch.tanh(query + keys))


def attention_steps(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    bias: Tensor | None = None,
    positions: PositionTerm | None = None,
    v: Tensor | None = None,
) -> AttentionSteps:
    """Steps 2 to 6 for a query (D,), keys (T, D) and values (T, D); ``bias`` (T,) is -∞ at masked keys."""
    first, second = factors(query, keys, v)
    scores = (first * second).sum(dim=1)
    scaled = (scores if positions is None else scores + positions.scores) * scale
    if bias is not None:
        scaled = scaled + bias
        bias = bias.masked_fill(bias == -math.inf, 0.0)
    exponentials = torch.exp(scaled - scaled.max())
    weights = exponentials / exponentials.sum()
    weighted = weights[:, None] * values
    return AttentionSteps(
        *(query, keys, values, scores, scaled, weights, weighted, weighted.sum(dim=0), scale),
        bias if bias is not None and bias.any() else None,
        positions,
        v,
    )


def textbook_example() -> AttentionSteps:
    """A well-known example with two words: scores 112 and 96, divided by √64 = 8: 14 and 12, softmax: 0.88 and 0.12."""
    query = torch.tensor([2.0, 1.0]).repeat(32)
    keys = torch.stack([torch.tensor([1.0, 1.5]).repeat(32), torch.tensor([1.0, 1.0]).repeat(32)])
    values = torch.stack([torch.tensor([1.0, 0.0]).repeat(32), torch.tensor([0.0, 1.0]).repeat(32)])
    return attention_steps(query, keys, values, 1 / math.sqrt(64))


@dataclass(frozen=True, eq=False)
class BlockCall:
    """The inputs and the output of one call of a block."""

    name: str
    block: Block
    x: Tensor  # (B, T, width)
    plan: AttentionPlan
    past: Memory | None
    source: Memory | None
    source_mask: Mask
    output: Tensor  # (B, T, width)


@contextmanager
def record_block_calls(model: nn.Module) -> Iterator[list[BlockCall]]:
    """Records all calls of all blocks of a model inside the with-statement."""
    calls: list[BlockCall] = []

    def hook(block: nn.Module, inputs: tuple[Any, ...], outputs: tuple[Tensor, Memory | None]) -> None:
        assert isinstance(block, Block)
        x, plan, past, source, source_mask = (*inputs, *DEFAULTS[len(inputs) - 2 :])
        calls.append(BlockCall(names[block], block, x, plan, past, source, source_mask, outputs[0]))

    names = {part: name for name, part in model.named_modules() if isinstance(part, Block)}
    with ExitStack() as hooks:
        for block in names:
            hooks.enter_context(block.register_forward_hook(hook))
        yield calls


@dataclass(frozen=True, eq=False)
class BlockByHand:
    """A block computed by hand: its self-attention, head by head, and all that follows."""

    name: str
    block: Block
    heads: list[list[AttentionSteps]]  # [head][query], for the first text of the batch
    x: Tensor  # (T, width) the input of the block
    states: Tensor  # (T, width) what the queries, keys and values are computed from: x, of a pre-norm block normalised
    concatenated: Tensor  # (T, H·D) the outputs of all heads
    projected: Tensor  # (T, width) times W^O
    added: Tensor  # (T, width) plus the input of the block (residual connection)
    attended: Tensor  # (T, width) the output of attention: ``added``, of a post-norm block normalised
    feed_input: Tensor  # (T, width) the input of the feed-forward layer
    inner: Tensor  # (T, inner) inside the feed-forward layer, after its activation
    fed: Tensor  # (T, width) the output of the feed-forward layer
    summed: Tensor  # (T, width) plus the input of the feed-forward part (residual connection)
    output: Tensor  # (T, width) of the whole block, by hand
    expected: Tensor  # (T, width) of the whole block, by the model

    @property
    def difference(self) -> float:
        """The largest absolute difference between both outputs."""
        return (self.output - self.expected).abs().max().item()


def compute_by_hand(call: BlockCall) -> BlockByHand:
    """Computes a call again from the block's matrices, for the first text of the batch; use a model in float64.

    Raises AssertionError if the result differs from the block's own output by more than TOLERANCE.
    """
    block, x, plan = call.block, call.x[:1], call.plan
    states = block.attention_norm(x) if block.pre else x
    query, new = block.attention.project(states)
    memory, _ = plan.join(None if call.past is None else _first_row(call.past), new)
    q_at, k_at = plan.positions(x.shape[1], x.device)
    heads = _steps_of_heads(block.attention, query, memory, plan.mask, q_at, k_at)
    concatenated = _concatenate(heads)
    projected = block.attention.out(concatenated)
    added = x[0] + projected if block.residual else projected
    attended = added if block.pre else block.attention_norm(added)
    after = attended if block.cross is None else _cross_attention(block, attended, call)
    feed_input = block.feed_norm(after) if block.pre else after
    feed = block.feed
    inner = feed.activation(feed.up(feed_input) if feed.gate is None else feed.gate(feed_input))
    inner = inner if feed.gate is None else inner * feed.up(feed_input)
    fed = feed.down(inner)
    summed = after + fed if block.residual else fed
    output = summed if block.pre else block.feed_norm(summed)
    result = BlockByHand(
        *(call.name, block, heads, x[0], states[0], concatenated, projected, added, attended),
        *(feed_input, inner, fed, summed, output, call.output[0]),
    )
    assert result.difference < TOLERANCE, f"{call.name}: by hand and by the model differ by {result.difference:.1e}"
    return result


def _first_row(memory: Memory) -> Memory:
    return Memory(memory.keys[:1], memory.values[:1])


def _concatenate(heads: list[list[AttentionSteps]]) -> Tensor:
    """The outputs of all heads, side by side: (T, H·D)"""
    return torch.cat([torch.stack([steps.output for steps in head]) for head in heads], dim=-1)


def _steps_of_heads(
    attention: MultiHead, query: Tensor, memory: Memory, mask: Mask, q_at: Tensor, k_at: Tensor
) -> list[list[AttentionSteps]]:
    """The six steps of every query in every head: (1, H, Tq, D), (1, H, Tk, D) → [H][Tq]"""
    score, keys, values = attention.read.score, memory.keys[0], memory.values[0]
    table = memory.mask_padding(mask).table(q_at, k_at, 4)
    bias = None
    if table is not None:
        bias = torch.zeros(table.shape).masked_fill(~table, -math.inf) if table.dtype == torch.bool else table
        bias = bias.expand(1, len(keys), len(q_at), len(k_at))[0].to(query.dtype)  # (1, H or 1, Tq, Tk) → (H, Tq, Tk)
    scale = score.scale if isinstance(score, Dot) else 1.0
    queries = score.queries(query)[0] if isinstance(score, Dot) else query[0]
    v = None
    if isinstance(score, Additive):
        queries, v = score.query(query)[0], score.v
    return [
        [
            attention_steps(
                queries[h, t],
                keys[h],
                values[h],
                scale,
                None if bias is None else bias[h, t],
                _position_term(score, query[0, h, t], h, (q_at[t] - k_at).flatten()),
                v,
            )
            for t in range(len(q_at))
        ]
        for h in range(attention.heads)
    ]


def _position_term(score: Score, query: Tensor, head: int, distances: Tensor) -> PositionTerm | None:
    """The term for the distances (T,) of a relative score (Shaw et al. 2018; Dai et al. 2019); None for the others."""
    if isinstance(score, Relative):
        return PositionTerm(query, score.distance[distances.clamp(-score.furthest, score.furthest) + score.furthest])
    if isinstance(score, XLRelative):
        near = distances.clamp(0, score.furthest)
        width = score.relative.in_features
        angles = near[:, None] * 10_000.0 ** (-torch.arange(0, width, 2, dtype=query.dtype) / width)
        r = torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
        return PositionTerm(query + score.position[head], score.relative(r).unflatten(-1, (-1, len(query)))[:, head])
    return None


def _cross_attention(block: Block, x: Tensor, call: BlockCall) -> Tensor:
    """The cross-attention of a block, computed by hand: (T, width) → (T, width)"""
    assert block.cross is not None
    assert block.cross_norm is not None
    assert call.source is not None
    query = block.cross.queries((block.cross_norm(x) if block.pre else x)[None])
    memory = _first_row(call.source)
    q_at, k_at = torch.arange(query.shape[2]), torch.arange(memory.keys.shape[2])
    heads = _steps_of_heads(block.cross, query, memory, call.source_mask, q_at, k_at)
    projected = block.cross.out(_concatenate(heads))
    added = x + projected if block.residual else projected
    return added if block.pre else block.cross_norm(added)
