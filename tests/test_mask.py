"""A mask says the same thing as a statement and as a table."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import UserError
from regard.mask import CAUSAL, EVERYTHING, Mask, default_positions

ROWS, HEADS = 2, 3


def booleans(draw: st.DrawFn, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count))).reshape(shape)


@st.composite
def masks(draw: st.DrawFn, queries: int, keys: int, dims: int) -> Mask:
    """Any mask for (ROWS, [HEADS,] queries, keys); with more dimensions every kind of pairs that fits them."""
    pairs = [(queries, keys), (ROWS, queries, keys), (ROWS, HEADS, queries, keys)][: dims - 1]
    shape, biased = draw(st.none() | st.sampled_from(pairs)), draw(st.none() | st.sampled_from(pairs))
    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(0, 3)),
        keys=booleans(draw, ROWS, keys) if draw(st.booleans()) else None,
        pairs=None if shape is None else booleans(draw, *shape),
        bias=None if biased is None else torch.where(booleans(draw, *biased), torch.randn(biased), -math.inf),
    )


def written_out(mask: Mask, q_at: Tensor, k_at: Tensor, dims: int) -> Tensor:
    """What a mask adds to the logits, full size, -∞ where it forbids."""
    shape = (*(ROWS, HEADS)[: dims - 2], len(q_at), len(k_at))
    table = mask.table(q_at, k_at, dims)
    if table is None:
        return torch.zeros(shape)
    return (torch.where(table, 0.0, -math.inf) if table.dtype == torch.bool else table).expand(shape)


def says(mask: Mask, row: int, head: int, i: int, j: int, at: tuple[int, int]) -> float:
    """The meaning of a mask, one cell at a time: what is added to a logit."""
    q_at, k_at = at
    verdict = not mask.causal or k_at <= q_at
    verdict &= mask.window is None or abs(q_at - k_at) <= mask.window
    verdict &= mask.keys is None or bool(mask.keys[row, j])
    if mask.pairs is not None:
        verdict &= bool(mask.pairs[(*(row, head)[: mask.pairs.dim() - 2], i, j)])
    added = 0.0 if mask.bias is None else float(mask.bias[(*(row, head)[: mask.bias.dim() - 2], i, j)])
    return added if verdict else -math.inf


@settings(max_examples=60)
@given(st.data(), st.sampled_from([3, 4]), st.integers(1, 4), st.integers(0, 2))
def test_table_is_the_statement_cell_by_cell(data: st.DataObject, dims: int, queries: int, more: int) -> None:
    keys = queries + more
    mask = data.draw(masks(queries, keys, dims))
    q_at, k_at = torch.arange(more, keys), torch.arange(keys)
    table = written_out(mask, q_at, k_at, dims)
    for row, head, i, j in product(range(ROWS), range(HEADS), range(queries), range(keys)):
        cell = (*(row, head)[: dims - 2], i, j)
        assert float(table[cell]) == says(mask, row, head, i, j, (int(q_at[i]), int(k_at[j])))


@settings(max_examples=100)
@given(st.data(), st.sampled_from([3, 4]), st.integers(1, 4), st.integers(0, 2))
def test_joining_statements_joins_tables(data: st.DataObject, dims: int, queries: int, more: int) -> None:
    keys = queries + more
    a, b = data.draw(masks(queries, keys, dims)), data.draw(masks(queries, keys, dims))
    q_at, k_at = torch.arange(more, keys), torch.arange(keys)
    joined = written_out(a, q_at, k_at, dims) + written_out(b, q_at, k_at, dims)
    assert torch.equal(written_out(a & b, q_at, k_at, dims), joined)
    assert torch.equal(written_out(b & a, q_at, k_at, dims), joined)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([3, 4]), st.integers(1, 4), st.integers(0, 2))
def test_a_resolved_mask_is_its_table(data: st.DataObject, dims: int, queries: int, more: int) -> None:
    keys = queries + more
    mask = data.draw(masks(queries, keys, dims))
    q_at, k_at = torch.arange(more, keys), torch.arange(keys)
    once = mask.resolved(q_at, k_at, dims)
    assert torch.equal(written_out(once, q_at, k_at, dims), written_out(mask, q_at, k_at, dims))
    if once is not mask:
        assert (once.pairs is None) == (mask.bias is not None)
        assert (once.bias is None) == (mask.bias is None)
        assert not once.causal
        assert once.window is once.keys is None


@pytest.mark.parametrize(
    ("mask", "route"),
    [
        (EVERYTHING, "everything"),
        (CAUSAL, "causal"),
        (Mask(window=3), "window"),
        (CAUSAL & Mask(window=3) & Mask(keys=torch.ones(2, 200, dtype=torch.bool)), "window"),
        (CAUSAL & Mask(window=199), "causal"),  # a window as wide as the text says nothing
        (Mask(window=100), "table"),
        (Mask(keys=torch.ones(2, 200, dtype=torch.bool)), "table"),
        (Mask(window=3, bias=torch.zeros(200, 200)), "table"),
    ],
)
def test_what_a_kernel_understands_stays_a_statement(mask: Mask, route: str) -> None:
    at = torch.arange(200)
    assert mask.route(200) == route
    assert (mask.resolved(at, at, 4) is mask) == (route != "table")
    if mask is not EVERYTHING:  # queries that are not the keys: only a table can say it
        assert mask.resolved(at[-1:], at, 4) is not mask


def test_resolving_reads_nothing_back() -> None:
    """A compiler takes it whole: no branch in it depends on what a tensor holds."""
    real, bias = torch.ones(2, 5, dtype=torch.bool), torch.randn(1, 3, 5, 5)

    def table(q_at: Tensor, k_at: Tensor) -> Tensor | None:
        return (CAUSAL & Mask(keys=real) & Mask(bias=bias)).resolved(q_at, k_at, 4).bias

    at = torch.arange(5)
    assert torch.equal(torch.compile(table, fullgraph=True, backend="eager")(at, at), table(at, at))


def test_a_slice_of_the_queries_has_its_rows_of_every_table() -> None:
    table = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    mask = Mask(pairs=table, bias=torch.randn(4, 4), empty_rows=~table.any(-1, keepdim=True))
    some = mask.for_queries(slice(0, 2))
    assert torch.equal(some.pairs, table[:2])
    assert torch.equal(some.bias, mask.bias[:2])
    assert some.empty_rows.tolist() == [[True], [False]]
    one = Mask(pairs=table[3:], bias=torch.randn(1, 4), keys=table[3:])  # a row for all queries stays
    last, at = one.for_queries(slice(2, 4)), torch.arange(4)
    assert torch.equal(last.table(at[2:], at, 2), one.table(at, at, 2))
    assert torch.equal(last.keys, one.keys)


def test_a_promise_of_sight_outlives_statements_and_nothing_else() -> None:
    pairs = torch.ones(4, 4, dtype=torch.bool).tril()
    mask = Mask(pairs=pairs, sees_self=True)
    at = torch.arange(4)
    assert (mask & CAUSAL).sees_self
    assert (EVERYTHING & mask).sees_self
    assert (mask & Mask(window=1)).sees_self
    assert not (mask & Mask(pairs=pairs)).sees_self
    assert not (CAUSAL & Mask(window=1)).sees_self  # of another sequence, a window may show nothing
    assert mask.resolved(at, at, 3).sees_self
    assert mask.find_empty_rows(pairs) is None
    assert Mask(pairs=pairs).find_empty_rows(pairs.tril(-1)).flatten().tolist() == [True, False, False, False]
    assert Mask().find_empty_rows(torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]])).flatten().tolist() == [
        False,
        True,
    ]


def test_given_positions_decide() -> None:
    q_at, k_at = torch.tensor([5, 0]), torch.tensor([5, 6, 0])
    assert CAUSAL.table(q_at, k_at, 3).tolist() == [[True, False, True], [False, False, True]]
    assert Mask(window=1).table(q_at, k_at, 3).tolist() == [[True, True, False], [False, False, True]]


def test_positions_of_keys_may_differ_by_row() -> None:
    q_at, k_at = torch.tensor([5, 0]), torch.tensor([[5, 6, 0], [1, 2, 3]])
    for mask in (CAUSAL, Mask(window=1), CAUSAL & Mask(window=1)):
        together = mask.table(q_at, k_at[:, None, None], 4)  # (2, 1, 2, 3)
        assert torch.equal(together, torch.stack([mask.table(q_at, keys, 4) for keys in k_at])[:, None])
        assert torch.equal(mask.resolved(q_at, k_at[:, None, None], 4).pairs, together)


def test_queries_are_the_last_of_the_keys_by_default() -> None:
    q, k = torch.zeros(1, 2, 4), torch.zeros(1, 5, 4)
    q_at, k_at = default_positions(q, k, None, None)
    assert q_at.tolist() == [3, 4]
    assert k_at.tolist() == [0, 1, 2, 3, 4]
    assert default_positions(q, k, torch.tensor([7, 8]), None)[0].tolist() == [7, 8]


def test_everything_needs_no_table() -> None:
    assert EVERYTHING.table(torch.arange(2), torch.arange(2), 3) is None
    assert (EVERYTHING & EVERYTHING).table(torch.arange(2), torch.arange(2), 3) is None


def test_only_causal() -> None:
    assert CAUSAL.only_causal
    assert (CAUSAL & EVERYTHING).only_causal
    assert not EVERYTHING.only_causal
    assert not (CAUSAL & Mask(window=3)).only_causal
    assert not (CAUSAL & Mask(keys=torch.ones(1, 2, dtype=torch.bool))).only_causal
    assert not (CAUSAL & Mask(pairs=torch.ones(2, 2, dtype=torch.bool))).only_causal
    assert not (CAUSAL & Mask(bias=torch.zeros(2, 2))).only_causal


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"Mask\.keys must be boolean"):
        Mask(keys=torch.ones(1, 2, dtype=dtype))
    with pytest.raises(TypeError, match=r"Mask\.pairs must be boolean"):
        Mask(pairs=torch.ones(2, 2, dtype=dtype))


def test_a_bias_is_numbers() -> None:
    with pytest.raises(TypeError, match=r"Mask\.bias must be a float tensor"):
        Mask(bias=torch.ones(2, 2, dtype=torch.bool))


def test_wrong_windows_keys_and_joins_are_refused() -> None:
    with pytest.raises(UserError, match=r"Mask\.window=-1: must be at least 0"):
        Mask(window=-1)
    with pytest.raises(TypeError, match=r"Mask\.keys must have the shape \(B, Tk\), .* not \(3,\)"):
        Mask(keys=torch.ones(3, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"not with a Tensor; wrap a tensor in Mask\(keys=…\)"):
        CAUSAL & torch.ones(2, 2, dtype=torch.bool)  # type: ignore[operator]
