"""Attention scores: how a query is compared with a key. Each score is one small class.

Most scores are a form of the dot product, ``logits = scale · queries(q) · keys(memory)ᵀ + bias``, and so run on torch's
fused kernel. Two are not: ``Additive`` applies a tanh to the sum of query and key, and ``Location`` does not use the
keys at all. In the relative scores, r is a vector for the distance between query and key.

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

``LocalMonotonic`` and ``LocalPredictive`` restrict any of them to Luong's windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.device import autocast_dtype, is_traced
from regard.errors import UserError, check_sizes, nearest
from regard.kernels import additive_triton
from regard.kernels.additive import additive_logits
from regard.kernels.fused import fused_attention, window_attention
from regard.mask import Mask, default_positions, masked_bias

SINUSOIDS_STEP = 256  # the number of cached sinusoids is a multiple of this
AT_ONCE = 2**26  # the most numbers of a bias that are computed at once without gradients: 256 MiB
# A longer text has so many at a time, which the caches of a CPU hold, but at least so many rows: each part has a cost.
PART, FEWEST_ROWS = 2**22, 64
FEW_QUERIES = 8  # up to this many queries, plain matrix products are faster on a CPU than the fused kernel


class Score(nn.Module):
    """The base class of scores: how well each query matches each key. A subclass defines ``logits``.

    Queries are (..., Tq, D), keys (..., Tk, D), with any leading dimensions. ``keys`` is applied once per memory, by
    the code that builds the memory. A score stores nothing between calls.
    """

    def keys(self, memory: Tensor) -> Tensor:
        return memory

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        """(..., Tq, D), (..., Tk, D) and their positions (Tq,), (Tk,) → (..., Tq, Tk)"""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        """Softmax over the keys that the mask allows. A row without such keys is zeros, never NaN."""
        return masked_softmax(self.logits(q, k, q_at, k_at), mask.table(q_at, k_at, q.dim()), mask.sees_self)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """The attention output, ``dropout(weights) @ v``, computed by the definition; a subclass may be faster."""
        weights = self.weights(q, k, mask, *default_positions(q, k, q_at, k_at))
        return F.dropout(weights, dropout).to(v.dtype) @ v


class Dot(Score):
    """qᵀk (Luong et al. 2015, §3.1): no parameters, equal widths. Subclasses add a scale, a projection or a bias."""

    scale: float = 1.0

    def queries(self, q: Tensor) -> Tensor:
        return q

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor | None:
        """A tensor added to the logits. It depends on positions, never on shapes: a KV cache has unused slots.

        It must be finite everywhere; only the mask forbids. An unused slot may have any position, and is masked.
        """
        return None

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        _check_widths(q, k)
        return self._biased(precise_product(self.queries(q), k), q, k, q_at, k_at)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        """The attention output by a fused kernel, without stored weights; for few queries, by matrix products.

        In half precision all routes compute the logits in float32, except those of a single query on a GPU with
        gradients, which are rounded: a float32 copy of all keys would be stored at every step.
        """
        # Kernels align the first query with the first key, which is right only if there are as many queries as keys.
        aligned = q_at is None and k_at is None and q.shape[-2] == k.shape[-2]
        q_at, k_at = default_positions(q, k, q_at, k_at)
        if q.shape[-2] == 1 and q.is_cuda and torch.is_grad_enabled():
            logits = self._biased(self.queries(q) @ k.mT, q, k, q_at, k_at)
            weights = masked_softmax(logits, mask.table(q_at, k_at, q.dim()), mask.sees_self)
            return F.dropout(weights, dropout).to(v.dtype) @ v
        if q.shape[-2] == 1 or (q.shape[-2] <= FEW_QUERIES and not q.is_cuda):
            return super().attend(q, k, v, mask, dropout, q_at, k_at)
        if chunks := self._chunks(q, k, mask, q_at, k_at):
            read = v.new_empty(*torch.broadcast_shapes(q.shape[:-2], v.shape[:-2]), q.shape[-2], v.shape[-1])
            for some in chunks:  # into one tensor: results between the biases would scatter the memory
                part = q[..., some, :], k, v, mask.for_queries(some), dropout, q_at[some], k_at
                read[..., some, :] = self.attend(*part)
            return read
        queries, bias = self.queries(q), self.bias(q, k, q_at, k_at)
        match mask.route(q.shape[-2]) if aligned and bias is None else "table":
            case "everything" | "causal":
                return fused_attention(queries, k, v, None, self.scale, dropout, causal=mask.causal)
            case "window" if q.dim() > 2:
                return window_attention(queries, k, v, mask, self.scale, dropout)
        table = mask.table(q_at, k_at, q.dim())
        empty_rows = mask.find_empty_rows(table) if table is not None and table.is_cuda else None
        if bias is not None:
            table = masked_bias(bias, table)
        return fused_attention(queries, k, v, table, self.scale, dropout, empty_rows=empty_rows)

    def _chunks(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> list[slice]:
        """The queries in parts, if the biases of all of them would take too much memory; else empty.

        With gradients all biases are kept anyway, and a batch of training has a limit.
        """
        of_row = max(q.shape[:-2].numel() * k.shape[-2], 1)  # numbers
        rows = max(PART // of_row, FEWEST_ROWS)
        if torch.is_grad_enabled() or q.shape[-2] * of_row <= AT_ONCE or q.shape[-2] <= rows or is_traced(q):
            return []
        if mask.bias_at is None and self.bias(q[..., :1, :], k, q_at[:1], k_at) is None:
            return []
        return [slice(first, first + rows) for first in range(0, q.shape[-2], rows)]

    def _biased(self, products: Tensor, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        bias = self.bias(q, k, q_at, k_at)
        return self.scale * products if bias is None else self.scale * products + bias


class ScaledDot(Dot):
    """qᵀk / √width (Vaswani et al. 2017, eq. 1): the scale keeps a softmax over wide vectors from saturating."""

    def __init__(self, width: int) -> None:
        super().__init__()
        check_sizes(width=width)
        self.scale = 1.0 / math.sqrt(width)


class General(Dot):
    """qᵀWk (Luong et al. 2015, §3.1). W is applied to the keys once per memory, so a step costs the same as in Dot."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        check_sizes(query_width=query_width, key_width=key_width)
        self.key = nn.Linear(key_width, query_width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)


class Cosine(Dot):
    """β cos(q, k) (Graves et al. 2014, eq. 5-6): a cosine ignores the lengths of vectors, so the scale β is learned.

    In the paper the network computes a β for each query; here β is one parameter.
    """

    def __init__(self, sharpness: float = 10.0) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))

    def queries(self, q: Tensor) -> Tensor:
        return self.sharpness.to(q.dtype) * F.normalize(q, dim=-1)

    def keys(self, memory: Tensor) -> Tensor:
        return F.normalize(memory, dim=-1)


class Additive(Score):
    """vᵀ tanh(Wq + Uk) (Bahdanau et al. 2015, §A.1.2): a network with one hidden layer compares query and key.

    The plain formula needs a (..., Tq, Tk, D) tensor. No route here stores that tensor, forward or backward: a CPU
    computes the logits in blocks, a GPU runs one fused kernel.
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__()
        check_sizes(query_width=query_width, key_width=key_width, width=width)
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(key_width, width, bias=False)
        self.v = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.v, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        queries = self.query(q)
        _check_widths(queries, k)
        return additive_logits(queries, k, self.v)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        if (
            dropout
            or q.dim() < 3
            or mask.bias is not None
            or mask.bias_at is not None
            or not additive_triton.usable(q, k, v)
        ):
            return super().attend(q, k, v, mask, dropout, q_at, k_at)

        def rows(x: Tensor) -> Tensor:
            return x.expand(*q.shape[:-2], *x.shape[-2:]).flatten(0, -3)  # (..., T, D) → (N, T, D)

        table = mask.table(*default_positions(q, k, q_at, k_at), q.dim())
        read = additive_triton.additive_attend(
            rows(self.query(q)), rows(k), self.v, rows(v), None if table is None else rows(table)
        )
        return read.view(*q.shape[:-1], v.shape[-1])


class Location(Score):
    """Entry k_at of the vector Wq (Luong et al. 2015, §3.1): the logits depend on the query alone, not on the keys."""

    def __init__(self, query_width: int, capacity: int) -> None:
        super().__init__()
        check_sizes(query_width=query_width, capacity=capacity)
        self.capacity = capacity
        self.query = nn.Linear(query_width, capacity, bias=False)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        if k.shape[-2] > self.capacity:
            cure = f"give Location a capacity of at least {k.shape[-2]}"
            raise UserError(f"capacity={self.capacity}: location attention cannot address {k.shape[-2]} keys; {cure}.")
        return self.query(q).index_select(-1, k_at)


class Relative(Dot):
    """qᵀ(k + r) / √width with a learned r for every distance i - j (Shaw et al. 2018, eq. 4; Huang et al. 2018).

    The relative values of Shaw et al. (eq. 3) are left out. Distances beyond ``furthest`` share one r. Each query is
    multiplied with every r, and the products are then gathered by distance, so there is no tensor of queries × keys ×
    width.
    """

    def __init__(self, width: int, furthest: int) -> None:
        super().__init__()
        check_sizes(width=width)
        check_sizes(0, furthest=furthest)
        self.scale = 1.0 / math.sqrt(width)
        self.furthest = furthest
        self.distance = nn.Parameter(torch.empty(2 * furthest + 1, width))  # -furthest … furthest
        nn.init.normal_(self.distance, std=1.0 / math.sqrt(width))

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        index = (q_at[:, None] - k_at).clamp(-self.furthest, self.furthest) + self.furthest  # (Tq, Tk)
        products = (self.scale * q) @ self.distance.to(q.dtype).mT  # (..., Tq, 2 furthest + 1)
        return products.gather(-1, index.expand(*q.shape[:-2], -1, -1))


class XLRelative(Dot):
    """((q + u)ᵀk + (q + v)ᵀWr) / √width, where r are sinusoids of the distance i - j ≥ 0 (Dai et al. 2019, §3.3).

    ``content`` is u, which is added to the query in the product with the key; ``position`` is v, which is added to the
    query in the product with the distance. Queries and keys are (B, H, T, D). Positions must be consecutive and
    attention causal, so every distance is less than the number of keys. Distances beyond ``furthest`` (if given) share
    one r.
    """

    def __init__(self, heads: int, width: int, model_width: int, furthest: int | None = None) -> None:
        super().__init__()
        check_sizes(heads=heads, width=width, model_width=model_width)
        check_sizes(0, furthest=furthest or 0)
        self.scale, self.furthest = 1.0 / math.sqrt(width), furthest
        self.content = nn.Parameter(torch.zeros(heads, width))
        self.position = nn.Parameter(torch.zeros(heads, width))
        self.relative = nn.Linear(model_width, heads * width, bias=False)

    def queries(self, q: Tensor) -> Tensor:
        return q + self.content.to(q.dtype).unsqueeze(1)

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        queries = self.scale * (q + self.position.to(q.dtype).unsqueeze(1))  # (B, H, Tq, D)
        furthest, heads = max(k.shape[-2] - 1, 0), q.shape[1]
        if self.furthest is not None:
            furthest = min(furthest, self.furthest)
        r = _distance_sinusoids(furthest + 1, self.relative.in_features, self.relative.weight)
        # For few queries, projecting them by Wᵀ is cheaper than projecting every r by W.
        if q.shape[0] * q.shape[-2] < q.shape[-1]:
            weight = self.relative.weight.to(q.dtype).unflatten(0, (heads, -1))  # (H, D, model_width)
            products = queries @ weight @ r.to(q.dtype).mT
        else:
            products = queries @ self.relative(r).unflatten(-1, (heads, -1)).permute(1, 2, 0).to(q.dtype)
        distance = (q_at[:, None] - k_at).clamp(0, furthest)  # (Tq, Tk)
        return products.gather(-1, distance.expand(*q.shape[:-2], -1, -1))


class Window(Score):
    """The base class of scores that restrict another score to a window of ``radius`` positions on each side."""

    def __init__(self, score: Score, radius: int) -> None:
        super().__init__()
        check_sizes(0, radius=radius)
        self.score = score
        self.radius = radius

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def logits(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.logits(q, k, q_at, k_at)


class LocalMonotonic(Window):
    """The local-m window (Luong et al. 2015, §3.2): target position t sees source positions t - radius … t + radius.

    Pass t as ``q_at``: by default, as in self-attention, the queries are at the last positions of the keys.
    """

    def weights(self, q: Tensor, k: Tensor, mask: Mask, q_at: Tensor, k_at: Tensor) -> Tensor:
        return self.score.weights(q, k, mask & Mask(window=self.radius), q_at, k_at)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, q_at: Tensor | None, k_at: Tensor | None
    ) -> Tensor:
        return self.score.attend(q, k, v, mask & Mask(window=self.radius), dropout, q_at, k_at)


class LocalPredictive(Window):
    """The local-p window (Luong et al. 2015, eq. 9-10): the query predicts its centre, p = S σ(vᵀ tanh(Wq)).

    The softmax runs over the keys in the window; the weights are then multiplied by a Gaussian around p, so p has a
    gradient and a row sums to at most one. Because of this product after the softmax there is no fused route.
    """

    def __init__(self, score: Score, query_width: int, radius: int) -> None:
        super().__init__(score, radius)
        check_sizes(query_width=query_width, radius=radius)  # the Gaussian of a radius of 0 has no width
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


# Name → a function that builds the score from (width of queries and keys, capacity of the memory).
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda width, capacity: Dot(),
    "scaled_dot": lambda width, capacity: ScaledDot(width),
    "general": lambda width, capacity: General(width, width),
    "additive": lambda width, capacity: Additive(width, width, width),
    "cosine": lambda width, capacity: Cosine(),
    "location": Location,
    "relative": lambda width, capacity: Relative(width, furthest=16),
}
OTHER_NAMES = {  # names of scores in lectures and papers → the name here
    "dot-product": "dot",
    "scaled dot-product": "scaled_dot",
    "multiplicative": "general",
    "bilinear": "general",
    "concat": "additive",
    "bahdanau": "additive",
    "mlp": "additive",
    "content-based": "cosine",
    "location-based": "location",
    "shaw": "relative",
}
# Scores that cannot be used in self-attention, or in attention to a source, with the reason.
NOT_FOR_SELF_ATTENTION = {"location": "works only for attention to a source, which has a fixed length"}
NOT_FOR_A_SOURCE = {"relative": "works only within one text; a source and a target have no distances between them"}
WINDOWS: dict[str, Callable[[Score, int, int], Score]] = {
    "none": lambda score, width, radius: score,
    "local-m": lambda score, width, radius: LocalMonotonic(score, radius),
    "local-p": LocalPredictive,
}


def check_score(name: str, refused: Mapping[str, str]) -> None:
    """Raise ``UserError`` if the score is unknown, or if ``refused`` (name → reason) has it."""
    other = OTHER_NAMES.get(name.lower().replace("_", "-"))
    if other is not None:
        raise UserError(f"model.score={name}: this score is named {other} here; set model.score={other}")
    if name in refused:
        raise UserError(f"model.score={name}: {refused[name]}")
    if name not in SCORES:
        raise UserError(f"model.score={name}: no such score.{nearest(name, SCORES.keys() - refused.keys())}")


def build_score(name: str, width: int, capacity: int, window: str = "none", radius: int = 10) -> Score:
    """The score ``name`` for queries and keys of the same width, restricted to a window unless that is "none"."""
    check_score(name, {})
    if window not in WINDOWS:
        raise UserError(f"model.window={window}: no such window.{nearest(window, WINDOWS)}")
    return WINDOWS[window](SCORES[name](width, capacity), width, radius)


def _distance_sinusoids(length: int, width: int, like: Tensor) -> Tensor:
    """The sinusoids of distances 0 … length - 1, (length, width), cached for all layers of a model.

    They are not cached while torch.compile or torch.export traces, or a CUDA graph captures: each has its own tensors.
    """
    if is_traced(like) or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return _sinusoids(length, width, like.dtype, like.device)
    # The length is rounded up, so that a growing text does not need a new table at every token.
    rounded = -(-length // SINUSOIDS_STEP) * SINUSOIDS_STEP
    return _cached_sinusoids(rounded, width, like.dtype, like.device)[:length]


@lru_cache(maxsize=4)
def _cached_sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # otherwise training could not use the cached tensor later
        return _sinusoids(length, width, dtype, device)


def _sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(length, width): sin(p·ω) of position p in the first half, cos(p·ω) in the second, ω from 1 to 1/10000."""
    exact = torch.promote_types(dtype, torch.float32)
    rates = 10000.0 ** (-torch.arange(0, width, 2, device=device, dtype=exact) / width)
    angles = torch.arange(length, device=device, dtype=exact)[:, None] * rates  # (length, width / 2)
    return torch.cat((angles.sin(), angles.cos()), -1)[:, :width].to(dtype)


def _check_widths(queries: Tensor, k: Tensor) -> None:
    if queries.shape[-1] != k.shape[-1]:
        widths = f"the keys have the width {k.shape[-1]}, the queries {queries.shape[-1]}"
        raise UserError(f"{widths}; pass score.keys(memory) as the keys.")


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def precise_product(q: Tensor, k: Tensor) -> Tensor:
    """qkᵀ in at least float32, as fused kernels compute it: in half precision a large logit has few digits, or is ∞."""
    if autocast_dtype(q.device) is not None:
        with torch.autocast(q.device.type, enabled=False):
            return precise_product(q, k)
    if q.is_cuda and q.dtype == k.dtype and q.element_size() == 2 and not torch.is_grad_enabled():
        leading = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        q, k = (x.expand(*leading, *x.shape[-2:]) for x in (q, k))
        product = torch.bmm(q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:]).mT, out_dtype=torch.float32)
        return product.view(*leading, q.shape[-2], k.shape[-2])
    return at_least_float32(q) @ at_least_float32(k).mT


def masked_softmax(logits: Tensor, table: Tensor | None, no_empty_rows: bool = False) -> Tensor:
    """Softmax over the last dimension in at least float32; a fully masked row is zeros, with zero gradient.

    ``table`` is boolean, True where a query may look, or a float tensor to add to the logits, -∞ where it may not.
    ``no_empty_rows`` promises that no row is fully masked.
    """
    logits = at_least_float32(logits)
    if table is None:
        return logits.softmax(-1)
    if table.dtype != torch.bool:
        logits, table = logits + table, table > -math.inf
    hidden = ~table
    if no_empty_rows:
        return logits.masked_fill(hidden, -math.inf).softmax(-1)
    # Filling with the lowest number instead of -∞ makes a fully masked row uniform, not NaN; then it is set to zero.
    weights = logits.masked_fill(hidden, torch.finfo(logits.dtype).min).softmax(-1)
    return weights.masked_fill(hidden, 0.0)
