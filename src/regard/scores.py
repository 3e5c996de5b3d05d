"""How a query is compared with a key: every attention score as one small class.

Most are a dot product in disguise, ``logits = scale · queries(q) · keys(memory)ᵀ + bias``, and so run on torch's fused
kernel. The exceptions: the oldest puts a tanh between query and key, and location does not look at the keys at all.

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

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError, nearest
from regard.kernels import additive_triton
from regard.kernels.additive import additive_logits
from regard.mask import Mask, default_positions


class Score(nn.Module):
    """How well each query matches each key; a subclass brings ``logits``, the definition.

    Queries are (..., Tq, D), keys (..., Tk, D); the leading dimensions are free. ``keys`` is applied once per memory by
    whoever owns the memory and its result is passed around: a score keeps nothing between calls.
    """

    def keys(self, memory: Tensor) -> Tensor:
        return memory

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        """(..., Tq, D), (..., Tk, D) and their positions (Tq,), (Tk,) → (..., Tq, Tk)"""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        """Softmax over the keys that may be seen. A row that may see nothing is zeros, never NaN."""
        return masked_softmax(self.logits(q, k, q_at, k_at), mask.table(q_at, k_at, q.dim()))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """What is read, ``dropout(weights) @ v``: here by definition; a subclass may know a faster route."""
        weights = self.weights(q, k, mask, *default_positions(q, k, q_at, k_at))
        return F.dropout(weights, dropout).to(v.dtype) @ v


class Dot(Score):
    """qᵀk (Luong et al. 2015, §3.1): no parameters, equal widths. What its kin add: a scale, a projection, a bias."""

    scale: float = 1.0

    def queries(self, q: Tensor) -> Tensor:
        return q

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor | None:
        """Added to the logits; a function of positions, never of shapes: a cache is longer than what it holds."""
        return None

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        logits = self.scale * (self.queries(q) @ k.mT)
        bias = self.bias(q, k, q_at, k_at)
        return logits if bias is None else logits + bias

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """Through torch's fused kernel: the weights never exist. One query has too few of them to be worth it."""
        if q.shape[-2] == 1:
            return super().attend(q, k, v, mask, dropout, q_at, k_at)
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


class ScaledDot(Dot):
    """qᵀk / √width (Vaswani et al. 2017, eq. 1): keeps the softmax out of saturation when the width is large."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(width)


class General(Dot):
    """qᵀWk (Luong et al. 2015, §3.1). W is applied to the keys, once per memory: a step costs what Dot costs."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.key = nn.Linear(key_width, query_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)


class Cosine(Dot):
    """β cos(q, k) (Graves et al. 2014, eq. 5-6): compares directions; lengths do not count, so β must be learned."""

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))

    def queries(self, q: Tensor) -> Tensor:
        return self.sharpness.to(q.dtype) * F.normalize(q, dim=-1)

    def keys(self, memory: Tensor) -> Tensor:
        return F.normalize(memory, dim=-1)


class Additive(Score):
    """vᵀ tanh(Wq + Uk) (Bahdanau et al. 2015, §A.1.2): a one-layer network compares query and key.

    Written out it needs a (..., Tq, Tk, D) tensor; neither route here holds one, forwards or backwards: blocks of
    logits on a CPU, one fused kernel for all of it on a GPU.
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(key_width, width, bias=False)
        self.v = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.v, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return additive_logits(self.query(q), k, self.v)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        if dropout or q.dim() < 3 or not additive_triton.usable(q, k, v):
            return super().attend(q, k, v, mask, dropout, q_at, k_at)

        def rows(x: Tensor) -> Tensor:
            return x.expand(*q.shape[:-2], *x.shape[-2:]).flatten(0, -3)  # (..., T, D) → (N, T, D)

        table = mask.table(*default_positions(q, k, q_at, k_at), q.dim())
        read = additive_triton.additive_attend(
            rows(self.query(q)), rows(k), self.v, rows(v), None if table is None else rows(table)
        )
        return read.view(*q.shape[:-1], v.shape[-1])


class Location(Score):
    """(Wq) read at the key's position (Luong et al. 2015, §3.1): where to look depends on the query alone."""

    def __init__(self, query_width: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.query = nn.Linear(query_width, capacity, bias=False)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        if k.shape[-2] > self.capacity:
            raise UserError(
                f"model.capacity={self.capacity}: location attention cannot see {k.shape[-2]} keys; raise it"
            )
        return self.query(q).index_select(-1, k_at)


class Window(Score):
    """Another score, seen through a window of ``radius`` positions to either side."""

    def __init__(self, score: Score, radius: int) -> None:
        super().__init__()
        self.score = score
        self.radius = radius

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.logits(q, k, q_at, k_at)


class LocalMonotonic(Window):
    """The local-m window (Luong et al. 2015, §3.2): target position t sees source positions t - radius … t + radius."""

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.weights(q, k, mask & Mask(window=self.radius), q_at, k_at)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        return self.score.attend(q, k, v, mask & Mask(window=self.radius), dropout, q_at, k_at)


class LocalPredictive(Window):
    """The local-p window (Luong et al. 2015, eq. 9-10): the query predicts its centre, p = S σ(vᵀ tanh(Wq)).

    The softmax runs over the window; a Gaussian around p then multiplies the weights, so that p has a gradient and a
    row sums to at most one. That product after the softmax is why there is no fused route.
    """

    def __init__(self, score: Score, query_width: int, radius: int) -> None:
        super().__init__(score, radius)
        self.hidden = nn.Linear(query_width, query_width, bias=False)
        self.centre = nn.Linear(query_width, 1, bias=False)

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        length: Tensor | int = k.shape[-2]
        if mask.keys is not None:
            length = mask.keys.sum(-1).reshape(-1, *[1] * (q.dim() - 1))
        centre = length * torch.sigmoid(at_least_float32(self.centre(torch.tanh(self.hidden(q)))))  # (..., Tq, 1)
        offset = k_at - centre  # (..., Tq, Tk)
        weights = self.score.weights(q, k, mask & Mask(pairs=offset.abs() <= self.radius), q_at, k_at)
        sigma = self.radius / 2
        return weights * torch.exp(-offset.square() / (2 * sigma**2))


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


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def masked_softmax(logits: Tensor, table: Tensor | None) -> Tensor:
    """Softmax over the last dimension, in at least float32; a row with nothing to see is zeros, with zero gradient."""
    logits = at_least_float32(logits)
    if table is None:
        return logits.softmax(-1)
    hidden = ~table
    # The lowest number, not -∞: a row with nothing to see is then even, not NaN, until its cells are hidden again.
    weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0)


def fused(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, scale: float, dropout: float, causal: bool = False
) -> Tensor:
    """torch's fused attention; three dimensions are lifted to the four that kernels want.

    ``table`` is boolean, True where a query may look, or numbers to be added to the logits, -∞ where it may not.
    """
    if lift := q.dim() == 3:
        q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
        table = table.unsqueeze(1) if table is not None and table.dim() == 3 else table
    k, v = k.to(q.dtype), v.to(q.dtype)  # under autocast a projected query is half, an unprojected key is not
    if table is not None and table.dtype != torch.bool:
        table = table.to(q.dtype)
    out = F.scaled_dot_product_attention(q, k, v, table, dropout, is_causal=causal, scale=scale)
    if q.is_cuda and table is not None:  # some of its kernels read a row that may see nothing as an even one
        seen = table if table.dtype == torch.bool else table > -math.inf
        out = out.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    return out.squeeze(1) if lift else out
