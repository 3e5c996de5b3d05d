"""A window by blocks reads what the definition reads, and its cost grows with the length, not with its square."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention import attend, weights
from regard.kernels import fused
from regard.mask import CAUSAL, EVERYTHING, Mask
from regard.scores import Dot, ScaledDot, Score

ROWS = 2
LEADING = {3: (ROWS,), 4: (ROWS, 3), 5: (ROWS, 2, 2)}
cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def draw(*leading: int, length: int, width: int = 4, device: str = "cpu") -> list[Tensor]:
    shapes = ((length, width), (length, width), (length, width + 1))
    return [torch.randn(*leading, *shape, dtype=torch.float64, device=device).requires_grad_() for shape in shapes]


def check(score: Score, inputs: list[Tensor], mask: Mask) -> None:
    """Context and gradients by the fast route and by the definition."""
    q, k, v = inputs
    fast, slow = attend(score, q, k, v, mask), weights(score, q, k, mask) @ v
    cotangent = torch.randn_like(slow)
    torch.testing.assert_close(fast, slow)
    for a, b in zip(*(torch.autograd.grad(out, inputs, cotangent) for out in (fast, slow)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("window", [0, 1, 7, 8, 17])
@pytest.mark.parametrize("causal", [CAUSAL, EVERYTHING], ids=["causal", "both ways"])
def test_blocks_are_the_definition(causal: Mask, window: int, padded: bool) -> None:
    torch.manual_seed(window)
    for length, dims in [(224, 4), (229, 3), (201, 5)]:  # whole blocks; one over; one short
        mask = causal & Mask(window=window)
        if padded:
            real = torch.rand(ROWS, length) < 0.8
            real[0, 40:90], real[1, -30:] = False, False  # wider than the window: queries that see nothing
            mask = mask & Mask(keys=real)
        assert mask.route(length) == "window"
        check(ScaledDot(4), draw(*LEADING[dims], length=length), mask)


def test_keys_may_be_shared_along_leading_dimensions() -> None:
    q, k, v = draw(ROWS, 3, length=150)
    mask = Mask(window=2)
    torch.testing.assert_close(attend(Dot(), q, k[:, :1], v[:, :1], mask), weights(Dot(), q, k[:, :1], mask) @ v[:, :1])


def test_where_positions_or_a_bias_are_given_the_window_is_a_table() -> None:
    q, k, v = draw(ROWS, 3, length=150)
    at = torch.randperm(150)
    moved = attend(Dot(), q, k, v, Mask(window=2), 0.0, at, at)
    torch.testing.assert_close(moved, weights(Dot(), q, k, Mask(window=2), at, at) @ v)
    check(Dot(), [q, k, v], Mask(window=2, bias=torch.randn(150, 150).double()))


def test_dropout_drops_whole_weights_in_blocks_too() -> None:
    torch.manual_seed(0)
    q, k, _ = draw(1, length=140)
    expected = weights(Dot(), q, k, CAUSAL & Mask(window=3))
    read = attend(Dot(), q, k, torch.eye(140, dtype=torch.float64)[None], CAUSAL & Mask(window=3), dropout=0.5)
    kept = read != 0
    torch.testing.assert_close(read[kept], 2 * expected[kept])
    assert 0.35 < (kept & (expected > 0)).sum() / (expected > 0).sum() < 0.65
    assert not (kept & (expected == 0)).any()


class Largest(TorchDispatchMode):
    """The most elements that any tensor made inside has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("causal", [CAUSAL, EVERYTHING], ids=["causal", "both ways"])
def test_nothing_grows_with_the_square_of_the_length(causal: Mask) -> None:
    largest = {}
    for length in (1024, 4096):
        q, k, v = (x.detach().float().requires_grad_() for x in draw(1, 2, length=length))
        with Largest() as seen:
            attend(Dot(), q, k, v, causal & Mask(window=16)).sum().backward()
        largest[length] = seen.elements
    assert largest[4096] <= 4.2 * largest[1024]
    assert largest[4096] < 4096 * 4096 / 16


def test_a_block_sees_just_its_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Tensor, ...]] = []
    run = fused.fused_attention
    monkeypatch.setattr(fused, "fused_attention", lambda *given, **more: (calls.append(given), run(*given, **more))[1])
    fused.window_attention(*draw(1, length=100), Mask(causal=True, window=9), 1.0, 0.0)
    ((q, k, _, table, *_),) = calls
    assert q.shape == (1, 4, 32, 4)
    assert k.shape == (1, 4, 48, 4)  # 16, the window in whole steps of 8, before each block
    assert table.shape == (1, 4, 32, 48)
    assert table[0, 1].sum(-1).tolist() == [10] * 32
    assert table[0, 0, :3].sum(-1).tolist() == [1, 2, 3]


def test_a_compiler_takes_blocks_whole() -> None:
    q, k, v = (x.detach() for x in draw(ROWS, 3, length=150))
    real = torch.rand(ROWS, 150) < 0.8

    def read(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        return attend(Dot(), q, k, v, CAUSAL & Mask(window=5) & Mask(keys=real))

    torch.testing.assert_close(torch.compile(read, fullgraph=True, backend="eager")(q, k, v, real), read(q, k, v, real))


@cuda_only
@pytest.mark.parametrize("causal", [CAUSAL, EVERYTHING], ids=["causal", "both ways"])
def test_blocks_on_a_gpu(causal: Mask) -> None:
    real = torch.rand(ROWS, 500) < 0.8
    real[0, 100:300] = False
    for mask in (causal & Mask(window=20), causal & Mask(window=20, keys=real.cuda())):
        inputs = [torch.randn(ROWS, 4, 500, 32, device="cuda").requires_grad_() for _ in range(3)]
        q, k, v = inputs
        fast, slow = attend(ScaledDot(32), q, k, v, mask), weights(ScaledDot(32), q, k, mask) @ v
        for a, b in zip(
            *([out, *torch.autograd.grad(out.square().sum(), inputs)] for out in (fast, slow)), strict=True
        ):
            torch.testing.assert_close(a, b, atol=1e-2, rtol=1e-2)
