"""How a query is compared with a key: every attention score as one small class.

All but one are a dot product in disguise, ``logits = scale · queries(q) · keys(memory)ᵀ + bias``, and so all but one
run on torch's fused kernel. The exception is the oldest: additive attention puts a tanh between query and key.

==============  ==========================  ==========================
score           logit of query q, key k     from
==============  ==========================  ==========================
``Dot``         qᵀk                         Luong et al. 2015
``ScaledDot``   qᵀk / √width                Vaswani et al. 2017
``General``     qᵀWk                        Luong et al. 2015
``Additive``    vᵀ tanh(Wq + Uk)            Bahdanau et al. 2015
``Cosine``      β cos(q, k)                 Graves et al. 2014
``Location``    (Wq) at the key's position  Luong et al. 2015
==============  ==========================  ==========================

``LocalMonotonic`` and ``LocalPredictive`` narrow any of them to Luong's windows.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from regard.errors import UserError, nearest
from regard.mask import Mask, positions


class Score(nn.Module):
    """logits = scale · queries(q) @ keys(memory)ᵀ + bias(q, k, q_at, k_at)

    Queries are (..., Tq, D), keys (..., Tk, D); the leading dimensions are free. ``keys`` is applied once per memory by
    whoever owns the memory and its result is passed around: a score keeps nothing between calls.
    """

    scale: float = 1.0

    def queries(self, q: Tensor) -> Tensor:
        return q

    def keys(self, memory: Tensor) -> Tensor:
        return memory

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor | None:
        """Added to the logits; a function of positions, never of shapes: a cache is longer than what it holds."""
        return None

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        """The definition. (..., Tq, D) and (..., Tk, D) → (..., Tq, Tk)"""
        logits = self.scale * (self.queries(q) @ k.mT)
        bias = self.bias(q, k, q_at, k_at)
        return logits if bias is None else logits + bias

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        """The definition: softmax over the keys that may be seen. A row that may see nothing is zeros, never NaN."""
        return masked_softmax(self.logits(q, k, q_at, k_at), mask.table(q_at, k_at, q.dim()))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """The fast route: equal to ``dropout(weights) @ v``, through the fused kernel."""
        # A kernel's is_causal lines up the first query with the first key: only right when they are as many.
        causal = mask.only_causal and q_at is None and k_at is None and q.shape[-2] == k.shape[-2]
        q_at, k_at = default_positions(q, k, q_at, k_at)
        bias = self.bias(q, k, q_at, k_at)
        if causal and bias is None:
            return fused(self.queries(q), k, v, None, self.scale, dropout, causal=True)
        table = mask.table(q_at, k_at, q.dim())
        if bias is not None:
            table = bias if table is None else bias.masked_fill(~table, -math.inf)
        return fused(self.queries(q), k, v, table, self.scale, dropout)


class Dot(Score):
    """qᵀk (Luong et al. 2015, eq. 8): no parameters, equal widths."""


class ScaledDot(Score):
    """qᵀk / √width (Vaswani et al. 2017, eq. 1): keeps the softmax out of saturation when the width is large."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(width)


class General(Score):
    """qᵀWk (Luong et al. 2015, eq. 8). W is applied to the keys, once per memory: a step costs what Dot costs."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.key = nn.Linear(key_width, query_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)


class Additive(Score):
    """vᵀ tanh(Wq + Uk) (Bahdanau et al. 2015, §A.1.2): a one-layer network compares query and key.

    Written out it needs a (..., Tq, Tk, D) tensor. ``attend`` never stores one: it walks over the queries in chunks and
    recomputes each chunk on the way back, so memory grows with Tq·Tk alone.
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(key_width, width, bias=False)
        self.v = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.v, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def queries(self, q: Tensor) -> Tensor:
        return self.query(q)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return additive_logits(self.queries(q), k, self.v)

    def logits_in_chunks(self, q: Tensor, k: Tensor) -> Tensor:
        if q.shape[-2] == 1:  # one step of a recurrent decoder: there is nothing to cut, so let autograd keep the tanh
            return additive_logits(q, k, self.v)
        logits: Tensor = AdditiveInChunks.apply(q, k, self.v)  # type: ignore[no-untyped-call]
        return logits

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        q_at, k_at = default_positions(q, k, q_at, k_at)
        logits = self.logits_in_chunks(self.queries(q), k)
        weights = masked_softmax(logits, mask.table(q_at, k_at, q.dim()))
        return F.dropout(weights, dropout).to(v.dtype) @ v


class Cosine(Score):
    """β cos(q, k) (Graves et al. 2014, eq. 5-6): compares directions; lengths do not count, so β must be learned."""

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))

    def queries(self, q: Tensor) -> Tensor:
        return self.sharpness.to(q.dtype) * F.normalize(q, dim=-1)

    def keys(self, memory: Tensor) -> Tensor:
        return F.normalize(memory, dim=-1)


class Location(Score):
    """(Wq) read at the key's position (Luong et al. 2015, eq. 9): where to look depends on the query alone.

    A dot product too: row j of the identity is the key of position j.
    """

    def __init__(self, query_width: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.query = nn.Linear(query_width, capacity, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return self.query(q)

    def keys(self, memory: Tensor) -> Tensor:
        length = memory.shape[-2]
        if length > self.capacity:
            raise UserError(f"location attention has room for {self.capacity} keys, not {length}: raise model.capacity")
        identity = torch.eye(length, self.capacity, dtype=memory.dtype, device=memory.device)
        return identity.expand(*memory.shape[:-2], -1, -1)


class LocalMonotonic(Score):
    """The local-m window (Luong et al. 2015, §3.2): target position t sees source positions t - radius … t + radius."""

    def __init__(self, score: Score, radius: int) -> None:
        super().__init__()
        self.score = score
        self.radius = radius

    def queries(self, q: Tensor) -> Tensor:
        return self.score.queries(q)

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.logits(q, k, q_at, k_at)

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.weights(q, k, mask & Mask(window=self.radius), q_at, k_at)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        return self.score.attend(q, k, v, mask & Mask(window=self.radius), dropout, q_at, k_at)


class LocalPredictive(Score):
    """The local-p window (Luong et al. 2015, eq. 9-10): the query predicts its centre, p = S σ(vᵀ tanh(Wq)).

    The softmax runs over the window; a Gaussian around p then multiplies the weights, so that p has a gradient and a
    row sums to at most one. That product after the softmax is why there is no fused route.
    """

    def __init__(self, score: Score, query_width: int, radius: int) -> None:
        super().__init__()
        self.score = score
        self.radius = radius
        self.hidden = nn.Linear(query_width, query_width, bias=False)
        self.centre = nn.Linear(query_width, 1, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return self.score.queries(q)

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.logits(q, k, q_at, k_at)

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        length: Tensor | int = k.shape[-2]
        if mask.keys is not None:
            length = mask.keys.sum(-1).reshape(-1, *[1] * (q.dim() - 1))
        centre = length * torch.sigmoid(self.centre(torch.tanh(self.hidden(q))))  # (..., Tq, 1)
        offset = (k_at - centre).float()
        near = Mask(pairs=offset.abs() <= self.radius)
        gaussian = torch.exp(-offset.square() / (2 * (self.radius / 2) ** 2))
        weights = self.score.weights(q, k, mask & near, q_at, k_at)
        return weights * gaussian.to(weights.dtype)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        q_at, k_at = default_positions(q, k, q_at, k_at)
        return F.dropout(self.weights(q, k, mask, q_at, k_at), dropout).to(v.dtype) @ v


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "cosine": Cosine,
    "location": Location,
}
WINDOWS = ("none", "local-m", "local-p")


def build_score(name: str, width: int, capacity: int, window: str = "none", radius: int = 10) -> Score:
    """The score called ``name`` for queries and keys of one width, narrowed to a window if asked."""
    score: Score
    match name:
        case "dot":
            score = Dot()
        case "scaled_dot":
            score = ScaledDot(width)
        case "general":
            score = General(width, width)
        case "additive":
            score = Additive(width, width, width)
        case "cosine":
            score = Cosine()
        case "location":
            score = Location(width, capacity)
        case _:
            raise UserError(f"model.score={name}: no such score.{nearest(name, SCORES)}")
    match window:
        case "none":
            return score
        case "local-m":
            return LocalMonotonic(score, radius)
        case "local-p":
            return LocalPredictive(score, width, radius)
        case _:
            raise UserError(f"model.window={window}: no such window.{nearest(window, WINDOWS)}")


def default_positions(q: Tensor, k: Tensor, q_at: Tensor | None, k_at: Tensor | None) -> tuple[Tensor, Tensor]:
    """The given positions, the missing ones filled in."""
    q_default, k_default = positions(q.shape[-2], k.shape[-2], q.device)
    return q_default if q_at is None else q_at, k_default if k_at is None else k_at


def masked_softmax(logits: Tensor, table: Tensor | None) -> Tensor:
    """Softmax over the last dimension, in at least float32; a row with nothing to see is zeros, with zero gradient."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if table is None:
        return logits.softmax(-1)
    weights = logits.masked_fill(~table, -math.inf).softmax(-1)  # NaN in rows with nothing to see …
    return weights.masked_fill(~table, 0.0)  # … which this removes, forwards and backwards


def fused(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, scale: float, dropout: float, causal: bool = False
) -> Tensor:
    """torch's fused attention; three dimensions are lifted to the four that kernels want."""
    if lift := q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        table = table.unsqueeze(1) if table is not None and table.dim() == 3 else table
    k, v = k.to(q.dtype), v.to(q.dtype)  # under autocast a projected query is half, an unprojected key is not
    out = F.scaled_dot_product_attention(q, k, v, table, dropout, is_causal=causal, scale=scale)
    return out.squeeze(1) if lift else out


def additive_logits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """vᵀ tanh(q + k) for every pair, written out: (..., Tq, D), (..., Tk, D), (D,) → (..., Tq, Tk)"""
    return torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ v


class AdditiveInChunks(torch.autograd.Function):
    """``additive_logits`` that never holds more than a chunk of the (..., Tq, Tk, D) tensor, forwards or backwards."""

    CHUNK: ClassVar = {
        "cpu": 2**19,
        "cuda": 2**27,
    }  # elements: a CPU chunk should stay in the cache, a GPU chunk fill the card

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return torch.cat([additive_logits(part, k, v) for part in AdditiveInChunks.parts(q, k)], dim=-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = ctx.saved_tensors
        parts = AdditiveInChunks.parts(q, k)
        dk, dv, dq = torch.zeros_like(k), torch.zeros_like(v), []
        for part, g in zip(parts, gradient.split([p.shape[-2] for p in parts], dim=-2)):
            activation = torch.tanh(part.unsqueeze(-2) + k.unsqueeze(-3))  # (..., chunk, Tk, D)
            dv += g.flatten() @ activation.flatten(0, -2)
            inner = activation.square_().neg_().add_(1).mul_(v).mul_(g.unsqueeze(-1))  # reuses the one large buffer
            dq.append(inner.sum(-2))
            dk += inner.sum(-3)
        return torch.cat(dq, dim=-2), dk, dv

    @staticmethod
    def parts(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        row = max(1, k.numel())  # what one query of every batch element and head costs: B · H · Tk · D
        return q.split(max(1, AdditiveInChunks.CHUNK[q.device.type] // row), dim=-2)
