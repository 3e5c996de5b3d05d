"""Flat arrays: every item as it was given, in one array; and rows that are padded from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.flat import FlatBuilder, Rows, digest, id_type, pad_ids

lists = st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=9), max_size=20)


@given(lists, st.integers(1, 7))
def test_items_are_what_was_added_some_at_a_time(items: list[list[int]], at_once: int) -> None:
    builder = FlatBuilder(np.dtype(np.uint16))
    for at in range(0, len(items), at_once):
        builder.add(items[at : at + at_once])
    flat = builder.build()
    assert flat.values.dtype == np.uint16
    assert flat.ends.dtype == np.int64
    assert len(flat) == len(items)
    assert [flat[i].tolist() for i in range(len(flat))] == items
    assert flat.lengths.tolist() == [len(item) for item in items]
    assert flat.values.size == sum(map(len, items))


def test_items_are_views() -> None:
    builder = FlatBuilder(np.dtype(np.uint32))
    builder.add([[1, 2], [3]])
    flat = builder.build()
    assert np.shares_memory(flat[0], flat.values)
    with pytest.raises(IndexError):
        flat[2]


def test_items_may_be_vectors() -> None:
    builder = FlatBuilder(np.dtype(np.float32))
    builder.add([])
    builder.add([np.ones((2, 3)), np.zeros((0, 3))])
    builder.add([np.full((1, 3), 2.0)])
    flat = builder.build()
    assert flat.values.shape == (3, 3)
    assert flat.lengths.tolist() == [2, 0, 1]
    assert flat[2].tolist() == [[2.0] * 3]
    rows = Rows.of([{"x": flat[0]}, {"x": flat[1]}]).padded("x", 3)
    assert rows.shape == (2, 3, 3)
    assert rows.dtype == torch.float32
    assert rows.sum(dim=(1, 2)).tolist() == [6.0, 0.0]


@given(st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=9), st.integers(0, 3))
def test_rows_are_padded_after_their_end(items: list[list[int]], more: int) -> None:
    width = max(map(len, items)) + more
    rows = Rows.of([{"x": np.array(item, np.uint16)} for item in items])
    assert rows.padded("x", width).dtype == torch.int64
    assert rows.padded("x", width, fill=-100).tolist() == [item + [-100] * (width - len(item)) for item in items]
    real = rows.real("x", width)
    assert real.tolist() == [[at < len(item) for at in range(width)] for item in items]


def test_whole_numbers_are_padded_as_int64_and_others_as_float32() -> None:
    types = {np.uint16: torch.int64, np.uint32: torch.int64, np.int32: torch.int64, np.int64: torch.int64}
    for given_, padded in (types | {np.float32: torch.float32, np.float64: torch.float32}).items():
        found = Rows.of([{"x": np.array([1, 2], given_)}, {"x": np.array([], given_)}]).padded("x", 3, fill=9)
        assert (found.dtype, found.tolist()) == (padded, [[1, 2, 9], [9, 9, 9]])


@pytest.mark.parametrize("kind", [np.uint8, np.float16])
def test_the_numbers_of_an_image_keep_their_small_type(kind: type) -> None:
    image = np.arange(6).reshape(2, 3).astype(kind)
    rows = Rows({"image": (image, np.array([0]), np.array([2]))})
    assert rows.padded("image", 3).numpy().dtype == kind
    assert rows.padded("image", 3).tolist() == [[[0, 1, 2], [3, 4, 5], [0, 0, 0]]]


def test_ids_are_padded_to_the_longest() -> None:
    rows, real = pad_ids([[5, 6], [], [7]])
    assert rows.tolist() == [[5, 6], [0, 0], [7, 0]]
    assert real.tolist() == [[True, True], [False, False], [True, False]]
    assert pad_ids([[], []])[0].shape == (2, 0)
    assert pad_ids([[], []], least=1)[1].tolist() == [[False], [False]]
    rows, real = pad_ids([np.array([[5, 6]]), np.array([[7, 8], [9, 1]])])
    assert rows.tolist() == [[[5, 6], [0, 0]], [[7, 8], [9, 1]]]
    assert real.tolist() == [[True, False], [True, True]]


def test_ids_take_as_few_bytes_as_hold_them() -> None:
    assert id_type(1) == id_type(2**16) == np.uint16
    assert id_type(2**16 + 1) == np.uint32


def test_a_digest_tells_arrays_apart() -> None:
    one = np.arange(4)
    assert digest(one) == digest(one.copy()) != digest(one[::-1])
    assert digest(one, one[:2]) != digest(one[:2], one)
    assert digest(one[:2], one[2:]) != digest(one)
