"""A mask says the same thing as a statement and as a table."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.mask import CAUSAL, EVERYTHING, Mask, default_positions

ROWS, HEADS = 2, 3


def booleans(draw: st.DrawFn, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count))).reshape(shape)


@st.composite
def masks(draw: st.DrawFn, queries: int, keys: int, dims: int, documents: bool = True) -> Mask:
    """Any mask for (ROWS, [HEADS,] queries, keys); with more dimensions every kind of pairs that fits them."""
    pairs = [(queries, keys), (ROWS, queries, keys), (ROWS, HEADS, queries, keys)][: dims - 1]
    shape = draw(st.none() | st.sampled_from(pairs))
    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(0, 3)),
        documents=booleans(draw, ROWS, keys).long() if documents and draw(st.booleans()) else None,
        keys=booleans(draw, ROWS, keys) if draw(st.booleans()) else None,
        pairs=None if shape is None else booleans(draw, *shape),
    )


def written_out(mask: Mask, q_at: Tensor, k_at: Tensor, dims: int) -> Tensor:
    """The table of a mask, full size; EVERYTHING has none."""
    shape = (*(ROWS, HEADS)[: dims - 2], len(q_at), len(k_at))
    table = mask.table(q_at, k_at, dims)
    return torch.ones(shape, dtype=torch.bool) if table is None else table.expand(shape)


def may_look(mask: Mask, row: int, head: int, i: int, j: int, at: tuple[int, int]) -> bool:
    """The meaning of a mask, one cell at a time."""
    q_at, k_at = at
    verdict = not mask.causal or k_at <= q_at
    verdict &= mask.window is None or abs(q_at - k_at) <= mask.window
    verdict &= mask.documents is None or bool(mask.documents[row, q_at] == mask.documents[row, k_at])
    verdict &= mask.keys is None or bool(mask.keys[row, j])
    if mask.pairs is not None:
        verdict &= bool(mask.pairs[(*(row, head)[: mask.pairs.dim() - 2], i, j)])
    return verdict


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from([3, 4]), st.integers(1, 4), st.integers(0, 2))
def test_table_is_the_statement_cell_by_cell(data: st.DataObject, dims: int, queries: int, more: int) -> None:
    keys = queries + more
    mask = data.draw(masks(queries, keys, dims))
    q_at, k_at = torch.arange(more, keys), torch.arange(keys)
    table = written_out(mask, q_at, k_at, dims)
    for row, head, i, j in product(range(ROWS), range(HEADS), range(queries), range(keys)):
        cell = (*(row, head)[: dims - 2], i, j)
        assert bool(table[cell]) == may_look(mask, row, head, i, j, (int(q_at[i]), int(k_at[j])))


@settings(deadline=None, max_examples=100)
@given(st.data(), st.sampled_from([3, 4]), st.integers(1, 4), st.integers(0, 2))
def test_joining_statements_joins_tables(data: st.DataObject, dims: int, queries: int, more: int) -> None:
    keys = queries + more
    a, b = data.draw(masks(queries, keys, dims)), data.draw(masks(queries, keys, dims, documents=False))
    q_at, k_at = torch.arange(more, keys), torch.arange(keys)
    joined = written_out(a, q_at, k_at, dims) & written_out(b, q_at, k_at, dims)
    assert torch.equal(written_out(a & b, q_at, k_at, dims), joined)
    assert torch.equal(written_out(b & a, q_at, k_at, dims), joined)


def test_given_positions_decide() -> None:
    q_at, k_at = torch.tensor([5, 0]), torch.tensor([5, 6, 0])
    assert CAUSAL.table(q_at, k_at, 3).tolist() == [[True, False, True], [False, False, True]]
    assert Mask(window=1).table(q_at, k_at, 3).tolist() == [[True, True, False], [False, False, True]]


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
    assert not (CAUSAL & Mask(documents=torch.zeros(1, 2))).only_causal


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"Mask\.keys must be boolean"):
        Mask(keys=torch.ones(1, 2, dtype=dtype))
    with pytest.raises(TypeError, match=r"Mask\.pairs must be boolean"):
        Mask(pairs=torch.ones(2, 2, dtype=dtype))


def test_two_packings_cannot_be_joined() -> None:
    packed = Mask(documents=torch.zeros(1, 4, dtype=torch.long))
    with pytest.raises(ValueError, match="documents"):
        packed & packed
