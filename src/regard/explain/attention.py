"""Attention by hand: six steps in one head, then all heads and the rest of the block, beside what the model gave.

The steps: (1) a query, keys and values from the input; (2) the query's dot product with every key; (3) divided by
√width; (4) softmax; (5) every value times its weight; (6) their sum (Vaswani et al. 2017, §3.2). Nothing here uses the
library's fused routes: they are what it is compared with.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Memory, MultiHead
from regard.layers.kv_cache import AttentionPlan
from regard.layers.transformer import Block
from regard.mask import EVERYTHING, Mask
from regard.scores import Dot, Score

TOLERANCE = 1e-6
DEFAULTS: tuple[Any, ...] = (None, None, EVERYTHING)  # of what a block is given beside states and sight


@dataclass(frozen=True, eq=False)
class Steps:
    """One query in one head. T keys, D numbers in each; what the mask forbids has a score of -∞ after the division."""

    query: Tensor  # (D,)                     1
    keys: Tensor  # (T, D)                    1
    values: Tensor  # (T, D)                  1
    scores: Tensor  # (T,) q·k                2
    scaled: Tensor  # (T,) q·k · scale        3, with what the mask or a bias adds
    weights: Tensor  # (T,)                   4
    weighted: Tensor  # (T, D)                5
    output: Tensor  # (D,)                    6
    scale: float


def six_steps(query: Tensor, keys: Tensor, values: Tensor, scale: float, added: Tensor | None = None) -> Steps:
    """Steps 2 to 6 for a query (D,), keys (T, D) and values (T, D); ``added`` (T,) goes to the scaled scores."""
    scores = torch.stack([sum_of_products(query, key) for key in keys])
    scaled = scores * scale if added is None else scores * scale + added
    powers = torch.exp(scaled - scaled.max())
    weights = powers / powers.sum()
    weighted = weights[:, None] * values
    return Steps(query, keys, values, scores, scaled, weights, weighted, weighted.sum(dim=0), scale)


def sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


def worked() -> Steps:
    """The textbook's two words: 112 and 96, divided by √64 = 8 are 14 and 12, and softmax gives 0.88 and 0.12."""
    query = torch.tensor([2.0, 1.0]).repeat(32)
    keys = torch.stack([torch.tensor([1.0, 1.5]).repeat(32), torch.tensor([1.0, 1.0]).repeat(32)])
    values = torch.stack([torch.tensor([1.0, 0.0]).repeat(32), torch.tensor([0.0, 1.0]).repeat(32)])
    return six_steps(query, keys, values, 1 / math.sqrt(64))


@dataclass(frozen=True, eq=False)
class Call:
    """What a block was given, and what it gave back."""

    name: str
    block: Block
    x: Tensor  # (B, T, width)
    plan: AttentionPlan
    past: Memory | None
    source: Memory | None
    source_mask: Mask
    output: Tensor  # (B, T, width)


@contextmanager
def watched(model: nn.Module) -> Iterator[list[Call]]:
    """Every call of every block while the with-statement lasts."""
    calls: list[Call] = []

    def seen(name: str, block: Block) -> torch.utils.hooks.RemovableHandle:
        def hook(_: nn.Module, given: tuple[Any, ...], gave: tuple[Tensor, Memory | None]) -> None:
            x, plan, past, source, source_mask = (*given, *DEFAULTS[len(given) - 2 :])
            calls.append(Call(name, block, x, plan, past, source, source_mask, gave[0]))

        return block.register_forward_hook(hook)

    handles = [seen(name, part) for name, part in model.named_modules() if isinstance(part, Block)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class Worked:
    """A block by hand: its self-attention head by head, and everything after it."""

    name: str
    heads: list[list[Steps]]  # [head][query]; of the first text of a batch
    joined: Tensor  # (T, H·D) the heads' outputs side by side
    projected: Tensor  # (T, width) … times W^O
    added: Tensor  # (T, width) … plus what came in
    normed: Tensor  # (T, width) … and normed, where the norm comes after
    output: Tensor  # (T, width) of the whole block, by hand
    expected: Tensor  # (T, width) what the block gave

    @property
    def difference(self) -> float:
        """The largest between the two."""
        return (self.output - self.expected).abs().max().item()


def by_hand(call: Call) -> Worked:
    """Works a call out again from the block's matrices, in double precision at best. Only the first text of a batch."""
    block, x, plan = call.block, call.x[:1], call.plan
    states = block.attention_norm(x) if block.pre else x
    query, new = block.attention.project(states)
    memory, _ = plan.join(_first(call.past), new)
    q_at, k_at = plan.positions(x.shape[1], x.device)
    heads = _heads(block.attention, query, memory, plan.mask, q_at, k_at)
    joined = torch.cat([torch.stack([one.output for one in head]) for head in heads], dim=-1)  # (T, H·D)
    projected = block.attention.out(joined)
    added = x[0] + projected if block.residual else projected
    normed = added if block.pre else block.attention_norm(added)
    after = normed if block.cross is None else _crossed(block, normed, call)
    thought = block.feed(block.feed_norm(after) if block.pre else after)
    output = after + thought if block.residual else thought
    output = output if block.pre else block.feed_norm(output)
    found = Worked(call.name, heads, joined, projected, added, normed, output, call.output[0])
    assert found.difference < TOLERANCE, f"{call.name}: by hand and by the model differ by {found.difference:.1e}"
    return found


def _first(memory: Memory | None) -> Memory | None:
    return None if memory is None else Memory(memory.keys[:1], memory.values[:1])


def _heads(
    attention: MultiHead, query: Tensor, memory: Memory, mask: Mask, q_at: Tensor, k_at: Tensor
) -> list[list[Steps]]:
    """The six steps of every query in every head: (1, H, Tq, D), (1, H, Tk, D) → [H][Tq]"""
    score, keys, values = attention.read.score, memory.keys[0], memory.values[0]
    table = memory.mask_padding(mask).table(q_at, k_at, 4)
    scale, added = _compared(score, query, memory.keys, q_at, k_at)
    if table is not None:
        told = torch.zeros(()).masked_fill(~table, -math.inf) if table.dtype == torch.bool else table
        added = added + told  # (1, H or 1, Tq, Tk)
    added = added.expand(1, len(keys), len(q_at), len(k_at))[0].to(query.dtype)
    asked = score.queries(query)[0] if isinstance(score, Dot) else query[0]
    return [
        [six_steps(asked[h, t], keys[h], values[h], scale, added[h, t]) for t in range(query.shape[2])]
        for h in range(attention.heads)
    ]


def _compared(score: Score, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> tuple[float, Tensor]:
    """The scale of a dot product and what is added to it. Of other scores (additive …) nothing is, and all is added."""
    if not isinstance(score, Dot):
        return 0.0, score.logits(q, k, q_at, k_at)
    bias = score.bias(q, k, q_at, k_at)
    return score.scale, q.new_zeros(1, 1, 1, 1) if bias is None else bias


def _crossed(block: Block, x: Tensor, call: Call) -> Tensor:
    """The attention to a source, by hand too."""
    assert block.cross is not None
    assert block.cross_norm is not None
    assert call.source is not None
    query = block.cross.queries((block.cross_norm(x) if block.pre else x)[None])
    at = torch.arange(max(query.shape[2], call.source.keys.shape[2]))
    memory, queries = _first(call.source), at[: query.shape[2]]
    assert memory is not None
    heads = _heads(block.cross, query, memory, call.source_mask, queries, at[: memory.keys.shape[2]])
    read = block.cross.out(torch.cat([torch.stack([one.output for one in head]) for head in heads], dim=-1))
    added = x + read if block.residual else read
    return added if block.pre else block.cross_norm(added)
