"""How a query is compared with a key: every attention score as one small class.

Most are a dot product in disguise, ``logits = scale · queries(q) · keys(memory)ᵀ + bias``, and so run on torch's fused
kernel. The exceptions: the oldest puts a tanh between query and key, and location does not look at the keys at all.
In the relative scores r belongs to the distance between the two.

==============  ==========================  ==========================
score           logit of query q, key k     from
==============  ==========================  ==========================
``Dot``         qᵀk                         Luong et al. 2015
``ScaledDot``   qᵀk / √width                Vaswani et al. 2017
``General``     qᵀWk                        Luong et al. 2015
``Additive``    vᵀ tanh(Wq + Uk)            Bahdanau et al. 2015
``Cosine``      β cos(q, k)                 Graves et al. 2014
``Location``    (Wq) at the key's position  Luong et al. 2015
``Relative``    qᵀ(k + r) / √width          Shaw et al. 2018
``XLRelative``  (q+u)ᵀk + (q+v)ᵀWr, scaled  Dai et al. 2019
==============  ==========================  ==========================

``LocalMonotonic`` and ``LocalPredictive`` narrow any of them to Luong's windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError, nearest
from regard.kernels import additive_triton, documents
from regard.kernels.additive import additive_logits
from regard.kernels.fused import fused, windowed
from regard.mask import Mask, default_positions, preferred

WAVES = 256  # sinusoids are kept in multiples of this
FEW = 8  # queries: up to here the written-out products are faster on a CPU than its fused kernel


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
        return masked_softmax(self.logits(q, k, q_at, k_at), mask.table(q_at, k_at, q.dim()), mask.sighted)

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
        """Added to the logits; a function of positions, never of shapes: a cache is longer than what it holds.

        Finite everywhere: to forbid is the mask's business. A slot not yet filled may have any position, and is masked.
        """
        return None

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        logits = self.scale * (self.queries(q) @ k.mT)
        bias = self.bias(q, k, q_at, k_at)
        return logits if bias is None else logits + bias

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """Through a fused kernel: the weights never exist. Few queries have too few of them to be worth it."""
        if q.shape[-2] == 1 or (q.shape[-2] <= FEW and not q.is_cuda):
            return super().attend(q, k, v, mask, dropout, q_at, k_at)
        # What kernels know of positions lines up the first query with the first key: only right when they are as many.
        alike = q_at is None and k_at is None and q.shape[-2] == k.shape[-2]
        q_at, k_at = default_positions(q, k, q_at, k_at)
        asked, bias = self.queries(q), self.bias(q, k, q_at, k_at)
        match mask.route(q.shape[-2]) if alike and bias is None else "table":
            case "everything" | "causal":
                return fused(asked, k, v, None, self.scale, dropout, causal=mask.causal)
            case "window" if q.dim() > 2:
                return windowed(asked, k, v, mask, self.scale, dropout)
            case "documents" if documents.usable(asked, v, dropout):
                return documents.attend_packed(asked, k.to(asked.dtype), v.to(asked.dtype), mask.layout, self.scale)
        table = mask.table(q_at, k_at, q.dim())
        blind = mask.blinded(table) if table is not None and table.is_cuda else None
        return fused(asked, k, v, table if bias is None else preferred(bias, table), self.scale, dropout, blind=blind)


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
        if dropout or q.dim() < 3 or mask.bias is not None or not additive_triton.usable(q, k, v):
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


class Relative(Dot):
    """qᵀ(k + r) / √width, a learned r for every distance i - j (Shaw et al. 2018, eq. 4; Huang et al. 2018).

    Beyond ``furthest`` all distances are alike. Every r is compared with every query, and the products are then picked
    by distance: no tensor of queries × keys × width.
    """

    def __init__(self, width: int, furthest: int) -> None:
        super().__init__()
        self.scale = 1.0 / math.sqrt(width)
        self.furthest = furthest
        self.distance = nn.Parameter(torch.empty(2 * furthest + 1, width))  # -furthest … furthest
        nn.init.normal_(self.distance, std=1.0 / math.sqrt(width))

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        apart = (q_at[:, None] - k_at).clamp(-self.furthest, self.furthest) + self.furthest  # (Tq, Tk)
        products = (self.scale * q) @ self.distance.to(q.dtype).mT  # (..., Tq, 2 furthest + 1)
        return products.gather(-1, apart.expand(*q.shape[:-2], -1, -1))


class XLRelative(Dot):
    """((q + u)ᵀk + (q + v)ᵀWr) / √width, r the sinusoids of the distance i - j ≥ 0 (Dai et al. 2019, §3.3).

    ``content`` is u, what every query asks of any key; ``position`` is v, what it asks of any distance. Queries and
    keys are (B, H, T, D). Positions run on and nobody looks ahead: no key in sight is as far away as there are keys.
    Beyond ``furthest``, if there is one, all distances are alike.
    """

    def __init__(self, heads: int, width: int, model_width: int, furthest: int | None = None) -> None:
        super().__init__()
        self.scale, self.furthest = 1.0 / math.sqrt(width), furthest
        self.content = nn.Parameter(torch.zeros(heads, width))
        self.position = nn.Parameter(torch.zeros(heads, width))
        self.relative = nn.Linear(model_width, heads * width, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return q + self.content.to(q.dtype).unsqueeze(1)

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        asked = self.scale * (q + self.position.to(q.dtype).unsqueeze(1))  # (B, H, Tq, D)
        furthest, heads = max(k.shape[-2] - 1, 0), q.shape[1]
        if self.furthest is not None:
            furthest = min(furthest, self.furthest)
        r = _waves(furthest + 1, self.relative.in_features, self.relative.weight)
        if q.shape[0] * q.shape[-2] < q.shape[-1]:  # a step: taking its queries to r costs less than all of r to them
            weight = self.relative.weight.to(q.dtype).unflatten(0, (heads, -1))  # (H, D, model_width)
            products = asked @ weight @ r.to(q.dtype).mT
        else:
            products = asked @ self.relative(r).unflatten(-1, (heads, -1)).permute(1, 2, 0).to(q.dtype)
        apart = (q_at[:, None] - k_at).clamp(0, furthest)  # (Tq, Tk)
        return products.gather(-1, apart.expand(*q.shape[:-2], -1, -1))


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


# By name, each for queries and keys of one width and a memory of so many places.
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda width, capacity: Dot(),
    "scaled_dot": lambda width, capacity: ScaledDot(width),
    "general": lambda width, capacity: General(width, width),
    "additive": lambda width, capacity: Additive(width, width, width),
    "cosine": lambda width, capacity: Cosine(),
    "location": Location,
    "relative": lambda width, capacity: Relative(width, furthest=16),
}
# Two are about places, and do not fit wherever a text looks: at itself, or at a source.
UNFIT_FOR_ITSELF = {"location": "needs a source whose positions are fixed; a growing past has none"}
UNFIT_FOR_A_SOURCE = {"relative": "is about distances within one text; a source is another"}
WINDOWS: dict[str, Callable[[Score, int, int], Score]] = {
    "none": lambda score, width, radius: score,
    "local-m": lambda score, width, radius: LocalMonotonic(score, radius),
    "local-p": LocalPredictive,
}


def check_score(name: str, unfit: Mapping[str, str]) -> None:
    """Refuse a score that does not fit, for the reason given, or that there is not."""
    if name in unfit:
        raise UserError(f"model.score={name}: {unfit[name]}")
    if name not in SCORES:
        raise UserError(f"model.score={name}: no such score.{nearest(name, SCORES.keys() - unfit.keys())}")


def build_score(name: str, width: int, capacity: int, window: str = "none", radius: int = 10) -> Score:
    """The score called ``name`` for queries and keys of one width, narrowed to a window if asked."""
    check_score(name, {})
    if window not in WINDOWS:
        raise UserError(f"model.window={window}: no such window.{nearest(window, WINDOWS)}")
    return WINDOWS[window](SCORES[name](width, capacity), width, radius)


def _waves(length: int, width: int, like: Tensor) -> Tensor:
    """The sinusoids of distances 0 … length - 1, (length, width), made once for all layers of a model.

    Not kept where they are part of a program that somebody else keeps: one that is compiled, or captured on a GPU.
    """
    if torch.compiler.is_compiling() or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return _sinusoids(length, width, like.dtype, like.device)
    rounded = -(-length // WAVES) * WAVES  # a text that grows does not need new ones at every token
    return _kept_sinusoids(rounded, width, like.dtype, like.device)[:length]


@lru_cache(maxsize=4)
def _kept_sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # or training could not use them later
        return _sinusoids(length, width, dtype, device)


def _sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(length, width), position p as sin(p·ω) in the first half and cos(p·ω) in the second, ω from 1 to 1/10000."""
    exact = torch.promote_types(dtype, torch.float32)
    rates = 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=exact) / width)
    angles = torch.arange(length, device=device, dtype=exact)[:, None] * rates  # (length, width / 2)
    return torch.cat((angles.sin(), angles.cos()), -1)[:, :width].to(dtype)


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def masked_softmax(logits: Tensor, table: Tensor | None, sighted: bool = False) -> Tensor:
    """Softmax over the last dimension, in at least float32; a row with nothing to see is zeros, with zero gradient.

    ``table`` is boolean, True where a query may look, or numbers to be added to the logits, -∞ where it may not.
    ``sighted`` promises that there is no row with nothing to see.
    """
    logits = at_least_float32(logits)
    if table is None:
        return logits.softmax(-1)
    if table.dtype != torch.bool:
        logits, table = logits + table, table > -math.inf
    hidden = ~table
    if sighted:
        return logits.masked_fill(hidden, -math.inf).softmax(-1)
    # The lowest number, not -∞: a row with nothing to see is then even, not NaN, until its cells are hidden again.
    weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0)
