"""Every score against its formula, and the fast route against the definition."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.attention import MultiHead, attend, weights
from regard.errors import UserError
from regard.layers.positions import Buckets
from regard.layers.recurrent import Recurrent
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.scores import (
    NOT_FOR_A_SOURCE,
    NOT_FOR_SELF_ATTENTION,
    OTHER_NAMES,
    SCORES,
    WINDOWS,
    Additive,
    Cosine,
    Dot,
    General,
    LocalMonotonic,
    LocalPredictive,
    Location,
    Relative,
    ScaledDot,
    Score,
    XLRelative,
    build_score,
    check_score,
    masked_softmax,
    precise_product,
)

WIDTH, CAPACITY, ROWS = 4, 12, 2
LEADING = {3: (ROWS,), 4: (ROWS, 3), 5: (ROWS, 3, 2)}
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
# absolute, against gradients and contexts of order one
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 8e-2}


def everything(queries: int, keys: int) -> Mask:
    return EVERYTHING


def causal(queries: int, keys: int) -> Mask:
    return CAUSAL


def padding(queries: int, keys: int) -> Mask:
    real = torch.rand(ROWS, keys) < 0.7
    real[0, 0], real[1] = True, False  # the second row has nothing to read
    return Mask(keys=real)


def pairs(queries: int, keys: int) -> Mask:
    table = torch.rand(ROWS, queries, keys) < 0.6
    table[0, 0] = False  # a query that may see nothing
    return Mask(pairs=table)


def window(queries: int, keys: int) -> Mask:
    return Mask(window=1)


def bias(queries: int, keys: int) -> Mask:
    bias = torch.randint(-8, 9, (ROWS, queries, keys)) / 4  # sums of such are exact in any dtype
    bias[torch.rand(ROWS, queries, keys) < 0.2] = -math.inf
    bias[1, 0] = -math.inf  # a query that may see nothing
    return Mask(bias=bias)


def joined(queries: int, keys: int) -> Mask:
    return CAUSAL & pairs(queries, keys) & padding(queries, keys) & Mask(window=2)


def nothing(queries: int, keys: int) -> Mask:
    return Mask(pairs=torch.zeros(queries, keys, dtype=torch.bool))


def joined_with_bias(queries: int, keys: int) -> Mask:
    return joined(queries, keys) & bias(queries, keys) & Mask(bias=torch.randn(queries, keys))


MASKS = [everything, causal, padding, pairs, window, bias, joined, joined_with_bias, nothing]


def both_routes(
    score: Score, inputs: tuple[Tensor, ...], mask: Mask, at: tuple[Tensor | None, Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """Context and gradients of the fast route, and of ``weights @ values``."""
    q, memory, v = inputs
    k = score.keys(memory)
    fast = attend(score, q, k, v, mask, 0.0, *at)
    slow = weights(score, q, k, mask, *at).to(v.dtype) @ v
    sources, cotangent = [*inputs, *score.parameters()], torch.randn_like(slow)
    return tuple(  # type: ignore[return-value]
        [
            out,
            *torch.autograd.grad(out, sources, cotangent, allow_unused=True, materialize_grads=True, retain_graph=True),
        ]
        for out in (fast, slow)
    )


def draw(dims: int, queries: int, keys: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, ...]:
    shapes = ((queries, WIDTH), (keys, WIDTH), (keys, WIDTH + 1))
    return tuple(
        torch.randn(*LEADING[dims], *shape, dtype=torch.float64).to(device, dtype).requires_grad_() for shape in shapes
    )


def on(device: str, mask: Mask) -> Mask:
    def moved(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device)

    moved_all = (moved(x) for x in (mask.keys, mask.pairs, mask.bias))
    return Mask(mask.causal, mask.window, *moved_all)


def places(queries: int, keys: int, device: str) -> tuple[Tensor | None, Tensor | None]:
    """Where queries outnumber keys they cannot be the last of them: give positions."""
    return (torch.arange(queries, device=device) % keys if queries > keys else None), None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("make_mask", MASKS)
@pytest.mark.parametrize("narrowed", WINDOWS)
@pytest.mark.parametrize("name", SCORES)
def test_attend_is_weights_at_values(
    name: str, narrowed: str, make_mask: Callable[[int, int], Mask], dtype: torch.dtype, device: str
) -> None:
    torch.manual_seed(1)
    score = build_score(name, WIDTH, CAPACITY, narrowed, radius=2).to(device, dtype)
    shapes = [(3, 5, 5), (3, 1, 4), (4, 3, 6), (4, 6, 4), (5, 4, 4)]
    for dims, queries, keys in shapes if dtype == torch.float64 else shapes[:2]:
        inputs = draw(dims, queries, keys, dtype, device)
        mask = on(device, make_mask(queries, keys))
        fast, slow = both_routes(score, inputs, mask, places(queries, keys, device))
        for a, b in zip(fast, slow, strict=True):
            assert a.dtype == dtype
            assert torch.isfinite(a).all()
            assert torch.isfinite(b).all()
            torch.testing.assert_close(a, b, atol=TOLERANCE[dtype] * max(1.0, float(b.detach().abs().max())), rtol=0)


@settings(max_examples=80)
@given(st.data())
def test_attend_is_weights_at_values_in_any_shape(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 9), label="seed"))
    name = data.draw(st.sampled_from(list(SCORES)), label="score")
    score = build_score(name, WIDTH, CAPACITY, data.draw(st.sampled_from(list(WINDOWS))), radius=2).double()
    queries, keys = data.draw(st.integers(1, 9), label="Tq"), data.draw(st.integers(1, 9), label="Tk")
    given_places = data.draw(st.booleans(), label="positions given")
    at = (torch.randint(keys, (queries,)), torch.randperm(keys)) if given_places else places(queries, keys, "cpu")
    mask = data.draw(st.sampled_from(MASKS))(queries, keys) & data.draw(st.sampled_from(MASKS[:6]))(queries, keys)
    inputs = draw(data.draw(st.sampled_from(list(LEADING)), label="dims"), queries, keys, torch.float64)
    fast, slow = both_routes(score, inputs, mask, at)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("narrowed", WINDOWS)
@pytest.mark.parametrize("name", SCORES)
def test_a_row_that_may_see_nothing_reads_zeros(name: str, narrowed: str) -> None:
    score = build_score(name, WIDTH, CAPACITY, narrowed, radius=2)
    table = torch.ones(ROWS, 3, 5, dtype=torch.bool)
    table[0, 1], table[1] = False, False
    q, memory, v = draw(3, 3, 5, torch.float32)
    with torch.autograd.detect_anomaly(check_nan=True):
        out = attend(score, q, score.keys(memory), v, Mask(pairs=table))
        seen = weights(score, q, score.keys(memory), Mask(pairs=table))
        (out.square().sum() + seen.square().sum()).backward()
    assert (out[0, 1] == 0).all()
    assert (out[1] == 0).all()
    assert (seen[~table] == 0).all()
    assert (out[0, 0] != 0).any()
    assert q.grad is not None
    assert (q.grad[1] == 0).all()
    assert all(torch.isfinite(p.grad).all() for p in [q, v, *score.parameters()] if p.grad is not None)


def test_weights_sum_to_one_where_something_is_seen() -> None:
    torch.manual_seed(1)
    mask = joined(6, 6)
    for name, narrowed in product(SCORES, WINDOWS):
        score = build_score(name, WIDTH, CAPACITY, narrowed, radius=2)
        q, memory, _ = draw(4, 6, 6, torch.float32)
        sums = weights(score, q, score.keys(memory), mask).sum(-1)
        if narrowed == "local-p":
            assert (sums <= 1 + 1e-6).all()
        else:
            torch.testing.assert_close(sums, sums.round(), atol=1e-6, rtol=0)
            assert set(sums.round().unique().tolist()) <= {0.0, 1.0}
            assert (sums.round() == 1).any()


# --- each score against its formula -------------------------------------------------------------------------------

Q_WIDTH, K_WIDTH, INNER = 3, 5, 6


def dot(a: Tensor, b: Tensor) -> Tensor:
    return sum((x * y for x, y in zip(a, b)), torch.zeros(()))


def additive_formula(score: Additive, q: Tensor, m: Tensor, i: int, j: int) -> Tensor:
    return dot(score.v, torch.tanh(score.query.weight @ q + score.query.bias + score.key.weight @ m))


Formula = Callable[..., Tensor]
FORMULAS: dict[str, tuple[Callable[[], Score], int, int, Formula]] = {
    "dot": (Dot, 4, 4, lambda score, q, m, i, j: dot(q, m)),
    "scaled_dot": (lambda: ScaledDot(4), 4, 4, lambda score, q, m, i, j: dot(q, m) / math.sqrt(4)),
    "general": (
        lambda: General(Q_WIDTH, K_WIDTH),
        Q_WIDTH,
        K_WIDTH,
        lambda score, q, m, i, j: dot(q, score.key.weight @ m),
    ),
    "additive": (lambda: Additive(Q_WIDTH, K_WIDTH, INNER), Q_WIDTH, K_WIDTH, additive_formula),
    "cosine": (
        lambda: Cosine(3.0),
        4,
        4,
        lambda score, q, m, i, j: 3.0 * dot(q, m) / (dot(q, q).sqrt() * dot(m, m).sqrt()),
    ),
    "location": (
        lambda: Location(Q_WIDTH, 9),
        Q_WIDTH,
        K_WIDTH,
        lambda score, q, m, i, j: (score.query.weight @ q)[j],
    ),
    "relative": (
        lambda: Relative(4, furthest=2),
        4,
        4,
        lambda score, q, m, i, j: dot(q, m + score.distance[min(max(i - j, -2), 2) + 2]) / math.sqrt(4),
    ),
}


def test_every_score_has_a_formula() -> None:
    assert FORMULAS.keys() == SCORES.keys()


@pytest.mark.parametrize("positions_given", [False, True])
@pytest.mark.parametrize("name", SCORES)
def test_logits_follow_the_formula(name: str, positions_given: bool) -> None:
    make, q_width, k_width, formula = FORMULAS[name]
    score = make().double()
    q, memory = torch.randn(2, 5, q_width).double(), torch.randn(2, 4, k_width).double()
    k_at = torch.tensor([8, 0, 3, 3]) if positions_given else torch.arange(4)
    logits = score.logits(q, score.keys(memory), torch.arange(5), k_at)
    for b, i, j in product(range(2), range(5), range(4)):
        torch.testing.assert_close(logits[b, i, j], formula(score, q[b, i], memory[b, j], i, int(k_at[j])).double())


def test_local_m_is_a_softmax_over_the_window() -> None:
    score = LocalMonotonic(Dot(), radius=1).double()
    q, k = torch.randn(1, 3, 4).double(), torch.randn(1, 6, 4).double()
    seen = weights(score, q, k, q_at=torch.tensor([0, 2, 9]))
    assert torch.allclose(seen[0, 0, :2], (k[0, :2] @ q[0, 0]).softmax(0))
    assert torch.allclose(seen[0, 1, 1:4], (k[0, 1:4] @ q[0, 1]).softmax(0))
    assert seen.count_nonzero() == 5  # two, three, and the third query's window lies beyond the source


@pytest.mark.parametrize("real", [7, 4])
def test_local_p_is_a_gaussian_around_a_predicted_centre(real: int) -> None:
    radius, score = 2, LocalPredictive(Dot(), 4, radius=2).double()
    q, k = torch.randn(2, 3, 4).double(), torch.randn(2, 7, 4).double()
    mask = Mask(keys=(torch.arange(7) < real).expand(2, -1)) if real < 7 else EVERYTHING
    seen = weights(score, q, k, mask)
    for b, i in product(range(2), range(3)):
        inner = torch.tanh(score.hidden.weight @ q[b, i])
        centre = (real * torch.sigmoid(score.centre.weight[0] @ inner)).item()
        inside = [j for j in range(real) if abs(j - centre) <= radius]
        total = sum(math.exp(float(q[b, i] @ k[b, j])) for j in inside)
        for j in range(7):
            sigma = radius / 2
            gaussian = math.exp(-((j - centre) ** 2) / (2 * sigma**2))
            expected = math.exp(float(q[b, i] @ k[b, j])) / total * gaussian if j in inside else 0.0
            assert seen[b, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_local_p_trains_its_centre_and_counts_far_positions_in_half_precision() -> None:
    score = LocalPredictive(Dot(), 4, radius=10).to(torch.bfloat16)
    nn.init.zeros_(score.centre.weight)  # σ(0) = ½: the centre is position 500.5
    q, k = torch.randn(1, 1, 4, dtype=torch.bfloat16), torch.zeros(1, 1001, 4, dtype=torch.bfloat16)
    seen = weights(score, q, k)
    assert seen.argmax().item() in (500, 501)
    assert torch.equal(seen[0, 0, 1:], seen[0, 0, 1:].flip(0))
    seen[0, 0, 505].backward()
    assert score.centre.weight.grad is not None
    assert score.centre.weight.grad.abs().sum() > 0


# --- scores that know how far apart two positions are --------------------------------------------------------------

HEADS = 2
EMPTY = 2**62  # the position of a slot that holds nothing yet


def xl() -> XLRelative:
    score = XLRelative(HEADS, 4, model_width=6)
    nn.init.normal_(score.content)
    nn.init.normal_(score.position)
    return score.double()


def xl_formula(score: XLRelative, q: Tensor, k: Tensor, h: int, apart: int) -> Tensor:
    """Dai et al. 2019, §3.3, for one query and one key of head h."""
    angles = [apart / 10000 ** (2 * m / 6) for m in range(3)]
    waves = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)
    r = score.relative.weight[h * 4 : h * 4 + 4] @ waves
    return (dot(q + score.content[h], k) + dot(q + score.position[h], r)) / math.sqrt(4)


@pytest.mark.parametrize("rows", [1, 3])  # few queries go one way, many the other
def test_xl_logits_follow_the_formula(rows: int) -> None:
    score, q, k = xl(), torch.randn(rows, HEADS, 3, 4).double(), torch.randn(rows, HEADS, 5, 4).double()
    logits = score.logits(q, k, torch.arange(2, 5), torch.arange(5))
    for b, h, i, j in product(range(rows), range(HEADS), range(3), range(5)):
        if i + 2 >= j:  # nobody looks ahead
            torch.testing.assert_close(logits[b, h, i, j], xl_formula(score, q[b, h, i], k[b, h, j], h, i + 2 - j))


@pytest.mark.parametrize("make", [lambda: Relative(4, furthest=2).double(), xl], ids=["shaw", "xl"])
def test_only_the_distance_counts(make: Callable[[], Score]) -> None:
    """Shifting queries and keys together changes nothing; moving one against the other does."""
    score, q, k = make(), torch.randn(3, HEADS, 4, 4).double(), torch.randn(3, HEADS, 6, 4).double()
    q_at, k_at = torch.arange(2, 6), torch.arange(6)
    here = weights(score, q, k, CAUSAL, q_at, k_at)
    torch.testing.assert_close(weights(score, q, k, CAUSAL, q_at + 1000, k_at + 1000), here)
    assert not torch.allclose(weights(score, q, k, CAUSAL, q_at, k_at - 1), here)


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("make", [lambda: Relative(4, furthest=2).double(), xl], ids=["shaw", "xl"])
def test_a_cache_with_room_is_read_like_the_text(make: Callable[[], Score], queries: int) -> None:
    """Slots not yet filled have absurd positions; they are masked and must not disturb, gradients included."""
    score, length, slots = make(), 5, 9
    q, k, v = torch.randn(3, 3, HEADS, length, 4).double()
    room = torch.randn(3, HEADS, slots - length, 4).double()
    k_at = torch.cat((torch.arange(length), torch.full((slots - length,), EMPTY)))
    q, q_at = q[:, :, -queries:].requires_grad_(), torch.arange(length - queries, length)
    text = attend(score, q, k, v, CAUSAL)
    cached = [torch.cat((x, room), 2) for x in (k, v)]
    for mask in (CAUSAL, CAUSAL.resolved(q_at, k_at, 4)):
        read = attend(score, q, *cached, mask, 0.0, q_at, k_at)
        torch.testing.assert_close(read, text)
        sources = [q, *score.parameters()]
        for a, b in zip(*(torch.autograd.grad(x.square().sum(), sources, retain_graph=True) for x in (read, text))):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("make_mask", MASKS)
def test_xl_attend_is_weights_at_values(make_mask: Callable[[int, int], Mask]) -> None:
    for queries, keys in [(5, 5), (1, 4), (3, 6)]:
        q, k = (torch.randn(ROWS, HEADS, n, 4).double().requires_grad_() for n in (queries, keys))
        v = torch.randn(ROWS, HEADS, keys, 3).double().requires_grad_()
        fast, slow = both_routes(xl(), (q, k, v), make_mask(queries, keys), (None, None))
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b)


# --- the rest -----------------------------------------------------------------------------------------------------


def test_dropout_drops_whole_weights_and_keeps_the_mean() -> None:
    q, k = torch.randn(1, 1, 4), torch.randn(1, 3, 4)
    for score in (Dot(), Additive(4, 4, 4), LocalPredictive(Dot(), 4, 3)):
        torch.manual_seed(0)
        keys = score.keys(k)
        expected = weights(score, q, keys)[0, 0]
        reads = torch.stack([attend(score, q, keys, torch.eye(3)[None], dropout=0.5)[0, 0] for _ in range(400)])
        kept = reads != 0
        torch.testing.assert_close(reads[kept], (2 * expected).expand(400, 3)[kept])
        assert 0.4 < kept.float().mean() < 0.6


class Nearer(Dot):
    """Prefers what is near, in float32 whatever the queries are."""

    def bias(self, q: Tensor, k: Tensor, q_at: Tensor, k_at: Tensor) -> Tensor:
        return -(q_at[:, None] - k_at).abs().float()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("make_mask", MASKS)
def test_a_bias_reaches_both_routes(make_mask: Callable[[int, int], Mask], dtype: torch.dtype, device: str) -> None:
    for dims in LEADING:
        inputs = draw(dims, 5, 5, dtype, device)
        fast, slow = both_routes(Nearer(), inputs, on(device, make_mask(5, 5)), (None, None))
        for a, b in zip(fast, slow, strict=True):
            assert torch.isfinite(a).all()
            torch.testing.assert_close(a, b, atol=TOLERANCE[dtype] * max(1.0, float(b.detach().abs().max())), rtol=0)


@pytest.mark.parametrize("name", SCORES)
def test_what_is_preferred_adds_to_the_logits_and_learns(name: str) -> None:
    score = build_score(name, WIDTH, CAPACITY).double()
    q, memory, v = draw(4, 5, 5, torch.float64)
    bias = torch.randn(1, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    k, at = score.keys(memory), torch.arange(5)
    mask = CAUSAL & Mask(bias=bias)
    logits = (score.logits(q, k, at, at) + bias).masked_fill(at[:, None] < at, -math.inf)
    torch.testing.assert_close(weights(score, q, k, mask), logits.softmax(-1))
    reads = attend(score, q, k, v, mask), logits.softmax(-1) @ v
    gradients = [torch.autograd.grad(read.square().sum(), (bias, q), retain_graph=True) for read in reads]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("make_mask", MASKS)
@pytest.mark.parametrize("name", SCORES)
def test_a_mask_written_once_says_the_same(name: str, make_mask: Callable[[int, int], Mask]) -> None:
    score = build_score(name, WIDTH, CAPACITY)
    for dims, queries, keys in [(3, 5, 5), (4, 5, 5), (4, 3, 6), (4, 1, 4)]:
        q, memory, v = draw(dims, queries, keys, torch.float32)
        mask, k = make_mask(queries, keys), score.keys(memory)
        once = mask.resolved(torch.arange(keys - queries, keys), torch.arange(keys), dims)
        torch.testing.assert_close(attend(score, q, k, v, once), attend(score, q, k, v, mask))
        torch.testing.assert_close(weights(score, q, k, once), weights(score, q, k, mask))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("queries", "keys"), [(3, 0), (1, 0), (0, 4), (0, 0)])
def test_where_there_is_nothing_to_read_or_nobody_to_read_it(name: str, queries: int, keys: int) -> None:
    score = build_score(name, WIDTH, CAPACITY)
    q, memory, v = draw(3, queries, keys, torch.float32)
    at = torch.arange(queries), torch.arange(keys)
    for mask in (EVERYTHING, Mask(keys=torch.ones(ROWS, keys, dtype=torch.bool))):
        assert weights(score, q, score.keys(memory), mask, *at).shape == (ROWS, queries, keys)
        read = attend(score, q, score.keys(memory), v, mask, 0.0, *at)
        assert torch.equal(read, torch.zeros(ROWS, queries, WIDTH + 1))
        read.sum().backward()
        assert (q.grad is None) or not q.grad.any()


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
@pytest.mark.parametrize("make_mask", [everything, causal, padding, pairs])
def test_additive_gives_its_kernel_rows_of_equal_number(
    dims: int, make_mask: Callable[[int, int], Mask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way to the GPU's kernel, which the formula plays here. Keys may be shared along leading dimensions."""
    score, leading = Additive(WIDTH, WIDTH, WIDTH).double(), LEADING.get(dims, ())
    mask, memories = (make_mask(5, 6) if leading else EVERYTHING), [leading, (1,) * len(leading), leading[1:]]
    q, calls = torch.randn(*leading, 5, WIDTH).double(), []

    def kernel(q: Tensor, k: Tensor, w: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
        assert q.dim() == k.dim() == v.dim() == 3
        assert len(q) == len(k) == len(v)
        calls.append(len(q))
        return masked_softmax(torch.tanh(q[:, :, None] + k[:, None]) @ w, table) @ v

    for shared in memories:
        k, v = score.keys(torch.randn(*shared, 6, WIDTH).double()), torch.randn(*shared, 6, WIDTH + 1).double()
        expected = attend(score, q, k, v, mask)
        with monkeypatch.context() as patch:
            patch.setattr("regard.kernels.additive_triton.usable", lambda q, k, v: True)
            patch.setattr("regard.kernels.additive_triton.additive_attend", kernel)
            torch.testing.assert_close(attend(score, q, k, v, mask), expected)
    assert calls == [math.prod(leading)] * len(memories) if leading else not calls  # two dimensions: by the definition


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_is_never_taken_in_half_precision(dtype: torch.dtype) -> None:
    assert masked_softmax(torch.randn(3, 4, dtype=dtype), None).dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SCORES)
def test_half_precision_is_finite_and_its_routes_agree_at_large_inputs(
    name: str, dtype: torch.dtype, device: str
) -> None:
    """qᵀk is above 65504, the largest float16; rounded to bfloat16, such logits differ by hundreds."""
    torch.manual_seed(3)
    score = build_score(name, 64, CAPACITY).to(device, dtype)
    with torch.no_grad():
        for scale, queries in product((1, 4, 16, 100), (1, 4, 12)):
            q, states, v = (torch.randn(2, n, 64, device=device).to(dtype) for n in (queries, 12, 12))
            k = score.keys(scale * states)
            found = weights(score, scale * q, k)
            assert torch.isfinite(found).all()
            read = attend(score, scale * q, k, v)
            torch.testing.assert_close(read, found.to(dtype) @ v, atol=2.0**-5, rtol=0)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_fits_a_head(name: str) -> None:
    """Inside multi-head attention, with everything a mask can say."""
    heads = MultiHead(8, 2, build_score(name, 4, 16)).double()
    x = torch.randn(ROWS, 6, 8).double()
    mask = joined(6, 6) & Mask(bias=torch.randn(1, 2, 6, 6).double())
    q, memory = heads.queries(x), heads.memory(x)
    seen = weights(heads.read.score, q, memory.keys, mask)
    expected = heads.out((seen @ memory.values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(heads(x, mask=mask), expected)
    assert (seen.sum(-1) == 0).any()  # a query that sees nothing, too
    assert torch.isfinite(expected).all()


def test_build_score_suggests() -> None:
    with pytest.raises(UserError, match=r'model\.score=aditive.*Did you mean "additive"'):
        build_score("aditive", 4, 4)
    with pytest.raises(UserError, match=r"model\.window=local"):
        build_score("dot", 4, 4, window="local")


def test_a_score_that_does_not_fit_is_refused_with_the_reason() -> None:
    for name in SCORES:
        for unfit in (NOT_FOR_SELF_ATTENTION, NOT_FOR_A_SOURCE):
            if name not in unfit:
                check_score(name, unfit)
    with pytest.raises(UserError, match=r"model\.score=location: works only for attention to a source"):
        check_score("location", NOT_FOR_SELF_ATTENTION)
    with pytest.raises(UserError, match=r"model\.score=relative: .*within one text"):
        check_score("relative", NOT_FOR_A_SOURCE)
    with pytest.raises(UserError, match=r"Known: additive, cosine, dot, general, location, scaled_dot\.$"):
        check_score("xyz", NOT_FOR_A_SOURCE)  # what does not fit is not offered


@pytest.mark.parametrize(("other", "ours"), [*OTHER_NAMES.items(), ("Content_Based", "cosine"), ("Concat", "additive")])
def test_a_name_from_a_lecture_is_refused_with_the_name_here(other: str, ours: str) -> None:
    assert ours in SCORES
    with pytest.raises(UserError, match=rf"named {ours} here; set model\.score={ours}$"):
        check_score(other, {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScaledDot(0), "width=0: must be at least 1"),
        (lambda: ScaledDot(-4), "width=-4: must be at least 1"),
        (lambda: General(4, 0), "key_width=0: must be at least 1"),
        (lambda: Additive(4, 4, 0), "width=0: must be at least 1"),
        (lambda: Location(4, -1), "capacity=-1: must be at least 1"),
        (lambda: Relative(0, 3), "width=0: must be at least 1"),
        (lambda: Relative(4, -1), "furthest=-1: must be at least 0"),
        (lambda: XLRelative(0, 4, 8), "heads=0: must be at least 1"),
        (lambda: XLRelative(2, 4, 8, -1), "furthest=-1: must be at least 0"),
        (lambda: LocalMonotonic(Dot(), -1), "radius=-1: must be at least 0"),
        (lambda: LocalPredictive(Dot(), 4, 0), "radius=0: must be at least 1"),
        (lambda: Buckets(2, 1), "buckets=1: must be at least 4"),
        (lambda: Buckets(2, 1, both_ways=False), "buckets=1: must be at least 2"),
        (lambda: Buckets(2, 32, 8), "furthest=8: must be at least 9"),
        (lambda: Recurrent("lstm", 4, 0), "width=0: must be at least 1"),
        (lambda: Recurrent("gru", 4, 4, directions=0), "directions=0: must be at least 1"),
    ],
)
def test_sizes_that_cannot_be_built_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        make()


def test_location_says_when_it_has_no_room() -> None:
    score = Location(4, capacity=3)
    with pytest.raises(UserError, match=r"^capacity=3: .*5 keys.*Location"):
        weights(score, torch.randn(1, 2, 4), score.keys(torch.randn(1, 5, 4)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_logits_of_halves_are_in_float32(device: str) -> None:
    """The tensors have shapes only, so this needs no GPU."""
    with FakeTensorMode(), torch.no_grad():
        q, k = (torch.empty(2, length, 4, dtype=torch.float16, device=device) for length in (3, 5))
        found = precise_product(q, k)
    assert (found.dtype, found.device.type, found.shape) == (torch.float32, device, (2, 3, 5))


@pytest.mark.parametrize("score", [General(4, 6), Additive(4, 6, 5)])
def test_a_memory_in_place_of_keys_is_named(score: Score) -> None:
    with pytest.raises(UserError, match=r"the keys have the width 6, .*; pass score\.keys\(memory\)"):
        weights(score, torch.randn(1, 2, 4), torch.randn(1, 3, 6))
