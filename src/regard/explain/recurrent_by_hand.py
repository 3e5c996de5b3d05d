"""The attention of a recurrent decoder computed by hand, as tables: every number follows from printed numbers.

The query is a state of the decoder. Bahdanau's decoder attends before its recurrence, so the query of step t is the
state s₍ₜ₋₁₎ (Bahdanau et al. 2015, eq. 6). Luong's decoder attends after it, so the query is s₍ₜ₎ (Luong et al. 2015,
§3.1). The keys and the values are the states h of the encoder.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Attention, Memory, MultiHead
from regard.errors import UserError
from regard.explain.by_hand import TOLERANCE, AttentionSteps, attention_steps
from regard.explain.worked import PRODUCT, Derivation, compared, steps_two_to_six
from regard.mask import Mask
from regard.report.sections import Table
from regard.scores import Additive, Dot, LocalMonotonic, Location, Score, Window

QUERIES = {  # the fact `query` of a model: the name of the query, and what it is
    "before": ("s₍ₜ₋₁₎", "the decoder's state before step t (Bahdanau et al. 2015); in GNMT, that of its first layer"),
    "state": ("s₍ₜ₎", "the decoder's state at step t (Luong et al. 2015)"),
}


@dataclass(frozen=True, eq=False)
class Read:
    """One read of the memory by one query: the inputs and the output of an attention module."""

    score: Score
    query: Tensor  # (D,) the state of the decoder
    keys: Tensor  # (T, D) as the score makes them of the states of the encoder
    values: Tensor  # (T, D) the states of the encoder
    at: int  # the position of the query in the target
    context: Tensor  # (D,) the output of the module


@contextmanager
def record_reads(model: nn.Module) -> Iterator[list[Read]]:
    """Records every read of the attention modules outside of multi-head attention, for the first text of a batch."""
    reads: list[Read] = []

    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        assert isinstance(module, Attention)
        (queries, memory), positions = inputs, named["q_at"]
        assert isinstance(memory, Memory)
        for t, query in enumerate(queries[0]):
            score = module.score
            reads.append(Read(score, query, memory.keys[0], memory.values[0], int(positions[t]), output[0, t]))

    inner = {id(part.read) for part in model.modules() if isinstance(part, MultiHead)}
    modules = [part for part in model.modules() if isinstance(part, Attention) and id(part) not in inner]
    handles = [part.register_forward_hook(hook, with_kwargs=True) for part in modules]
    try:
        yield reads
    finally:
        for handle in handles:
            handle.remove()


def compute_read(read: Read) -> AttentionSteps:
    """Computes a read again by hand; use a model in float64.

    Raises AssertionError if the context differs from that of the model by more than TOLERANCE.
    """
    score, keys, bias = read.score, read.keys, None
    if isinstance(score, LocalMonotonic):
        table = Mask(window=score.radius).table(torch.tensor([read.at]), torch.arange(len(keys)), 2)
        assert table is not None
        bias, score = torch.zeros(len(keys), dtype=keys.dtype).masked_fill(~table[0], -math.inf), score.score
    query, scale, v = read.query, 1.0, None
    match score:
        case Additive():
            query, v = score.query(query), score.v
        case Dot():
            query, scale = score.queries(query), score.scale
        case Location():
            keys = score.query.weight[: len(keys)]
        case Window():
            raise UserError("model.window=local-p: this window is not computed by hand; give a model without it.")
    steps = attention_steps(query, keys, read.values, scale, bias, v=v)
    difference = (steps.output - read.context).abs().max().item()
    assert difference < TOLERANCE, f"by hand and by the model differ by {difference:.1e}"
    return steps


def read_tables(read: Read, steps: AttentionSteps, query: str, title: str, words: Sequence[str]) -> list[Table]:
    """All lines of one read. Step 1 shows the key with the largest weight; ``query`` is the name of the query."""
    score = read.score.score if isinstance(read.score, Window) else read.score
    lines, key = Derivation(), int(steps.weights.argmax())
    lines.vector(f"q, the query {query}", read.query)
    if not isinstance(score, Location):
        lines.vector(f"k, the key h of {words[key]}", read.values[key])
    compared(lines, score, read.query, read.values[key], 0)
    notes = {
        True: "The logits are the numbers of Wq: location-based attention does not use the keys.",
        False: f"The keys and the values are the states h of the encoder; step 1 is shown for {words[key]}. {PRODUCT}",
    }
    step_one = Table(f"{title}, step 1", Derivation.columns, lines.rows, notes[isinstance(score, Location)])
    return [step_one, *steps_two_to_six(title, steps, words, score)]


def output_table(out: nn.Linear, parts: Sequence[tuple[str, Tensor]], output: Tensor, title: str) -> Table:
    """h̃ = tanh(W · parts): the layer after attention, which joins the context with other vectors."""
    lines, joined = Derivation(), torch.cat([values for _, values in parts])
    for name, values in parts:
        lines.vector(name, values)
    lines.vector("z, all of them joined", joined)
    lines.product("z · W", joined, out)
    lines.vector("u, z times W", out(joined))
    lines.vector("h̃ = tanh(u)", torch.tanh(out(joined)))
    lines.vector("the same, by the model", output)
    return Table(title, Derivation.columns, lines.rows, PRODUCT)
