"""The fused GPU route against the formula in float64: on a GPU if there is one, else in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from regard.kernels.additive_triton import additive_attend, usable
from regard.scores import masked_softmax
from tritons import DEVICE, GPU, interpret, runs, starts_interpreter


def formula(q: Tensor, k: Tensor, w: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
    return masked_softmax(torch.tanh(q[:, :, None] + k[:, None]) @ w, table) @ v


def made(rows: int, queries: int, keys: int, width: int, depth: int, size: float = 1.0) -> list[Tensor]:
    """q, k, w, v; a large size makes large pre-activations whose sums are often small, where tanh still matters."""
    torch.manual_seed(queries * keys + width)
    q = (size * torch.randn(rows, queries, width)).clamp(-50, 50)
    k = torch.randn(rows, keys, width) - (0 if size == 1 else q[:, :1])
    return [x.to(DEVICE) for x in (q, k, torch.randn(width), torch.randn(rows, keys, depth))]


def tables(rows: int, queries: int, keys: int) -> dict[str, Tensor]:
    return {
        "keys": torch.rand(rows, 1, keys) > 0.4,
        "causal": torch.ones(queries, keys).tril(-1).bool(),  # the first query sees nothing
        "pairs": torch.rand(rows, queries, keys) > 0.5,
        "nothing": torch.zeros(1, 1, 1, dtype=torch.bool),
    }


def both(inputs: list[Tensor], table: Tensor | None, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """What is read and its four gradients: fused in ``dtype``, and by the formula in float64 from the same numbers."""
    table = None if table is None else table.to(DEVICE)
    ours = [x.to(dtype).requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in ours]
    read, expected = additive_attend(*ours, table), formula(*exact, table)
    upstream = torch.randn_like(read)
    return (
        [read, *torch.autograd.grad(read, ours, upstream)],
        [expected, *torch.autograd.grad(expected, exact, upstream.double())],
    )


def distance(a: Tensor, b: Tensor) -> float:
    """How far a is from b, relative to b; absolute where b is zero."""
    return ((a.double() - b).norm() / (b.norm() if b.norm() > 0 else 1.0)).item()


SHAPES = [  # rows, queries, keys, width, depth: steps, whole blocks, ragged ones, wide and deep ones
    (3, 1, 40, 33, 70), (2, 1, 5, 16, 16), (1, 64, 64, 64, 16), (1, 5, 67, 10, 12), (1, 66, 3, 70, 20), (1, 2, 9, 8, 90)
]  # fmt: skip


@runs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reads_and_gradients_are_those_of_the_formula(shape: tuple[int, ...]) -> None:
    ours, expected = both(made(*shape), None, torch.float32)
    assert max(map(distance, ours, expected)) < 2e-5


@runs
@pytest.mark.parametrize("kind", ["keys", "causal", "pairs", "nothing"])
@pytest.mark.parametrize("queries", [1, 6])
def test_a_table_hides_pairs_and_a_row_that_sees_nothing_is_zero(kind: str, queries: int) -> None:
    inputs = made(2, queries, 9, 12, 20)
    table = tables(2, queries, 9)[kind]
    ours, expected = both(inputs, table, torch.float32)
    assert max(map(distance, ours, expected)) < 2e-5
    empty_rows = ~table.expand(2, queries, 9).any(-1)
    assert ours[0][empty_rows].eq(0).all()
    assert ours[1][empty_rows].eq(0).all()


@runs
@pytest.mark.parametrize("queries", [1, 6])
def test_large_pre_activations_take_a_route_that_does_not_overflow(queries: int) -> None:
    inputs = made(2, queries, 9, 12, 20, size=40.0)
    assert inputs[0].abs().max() > 45
    ours, expected = both(inputs, None, torch.float32)
    assert max(map(distance, ours, expected)) < 5e-5


@runs
@pytest.mark.parametrize("queries", [1, 6])
def test_halves_are_summed_in_float32(queries: int) -> None:
    ours, expected = both(made(2, queries, 9, 12, 20), None, torch.float16)
    assert ours[0].dtype == torch.float16
    assert max(map(distance, ours, expected)) < 4e-3


@runs
@pytest.mark.skipif(not GPU, reason="the interpreter has no bfloat16 products")
@pytest.mark.parametrize("shape", [(256, 1, 32, 512, 512), (8, 300, 200, 64, 64), (4, 32, 32, 512, 512)], ids=str)
def test_bfloat16_at_the_sizes_it_is_made_for(shape: tuple[int, ...]) -> None:
    inputs = made(*shape)
    inputs[2] /= shape[3] ** 0.5
    ours, expected = both(inputs, tables(shape[0], shape[1], shape[2])["keys"], torch.bfloat16)
    assert max(map(distance, ours, expected)) < 1.5e-2


@runs
@pytest.mark.parametrize("queries", [1, 6])
def test_what_lies_beside_the_tensors_changes_nothing(queries: int) -> None:
    def among_nan(x: Tensor) -> Tensor:
        whole = torch.nn.functional.pad(x.flatten(), (64, 64), value=torch.nan)
        return whole[64:-64].view(x.shape)

    inputs = made(2, queries, 9, 12, 20)
    ours, expected = both([among_nan(x) for x in inputs], tables(2, queries, 9)["keys"], torch.float32)
    assert max(map(distance, ours, expected)) < 2e-5


@runs
def test_twice_gives_the_same_bits() -> None:
    inputs = [x.requires_grad_() for x in made(2, 6, 9, 12, 20)]
    first, second = (torch.autograd.grad(additive_attend(*inputs, None).square().sum(), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


@starts_interpreter
def test_in_the_interpreter() -> None:
    interpret(__file__)


def test_only_a_gpu_can_use_it() -> None:
    q = torch.zeros(2, 3, 4)
    assert not usable(q, q, q)
    if GPU:
        q = q.cuda()
        assert usable(q, q, q)
        assert not usable(q.double(), q, q)
        assert not usable(q, q, torch.zeros(2, 3, 2000, device="cuda"))
