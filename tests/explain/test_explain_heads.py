"""The habits of heads."""

import math

import pytest
import torch

from regard.explain.heads import heads


def test_habits_of_heads_that_have_one() -> None:
    previous = torch.eye(4).roll(-1, dims=1)  # word i looks at i - 1, the first at the last
    previous[0] = torch.tensor([1.0, 0, 0, 0])
    itself, last = torch.eye(4), torch.zeros(4, 4).index_fill(1, torch.tensor([3]), 1.0)
    found = heads([({"a": torch.stack([previous, itself]), "b": last[None]}, [False, False, False, True])])
    names = [(one.layer, one.head) for one in found]
    assert names == [("a", 0), ("a", 1), ("b", 0), ("even", -1)]
    one, two, three, _ = found
    assert (one.previous, one.itself, one.first, one.distance) == (0.75, 0.25, 0.5, 0.75)
    assert (two.itself, two.entropy, two.distance, two.next) == (1.0, 0.0, 0.0, 0.0)
    assert (three.separator, three.next, three.itself, three.distance) == (1.0, 0.25, 0.25, 1.5)


def test_the_even_head_sees_what_may_be_seen() -> None:
    weights = torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [0.2, 0.2, 0.6]])[None]
    even = heads([({"a": weights}, [True, False, False])])[-1]
    assert even.first == even.separator == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert even.entropy == pytest.approx((math.log(2) + math.log(3)) / 3)


def test_what_one_head_never_looks_at_another_may_see() -> None:
    sharp, even = torch.eye(3)[None], torch.full((1, 3, 3), 1 / 3)
    assert heads([({"a": sharp, "b": even}, [False] * 3)])[-1].entropy == pytest.approx(math.log(3))


def test_texts_are_weighed_by_their_words() -> None:
    short, long = torch.eye(1)[None], torch.full((1, 3, 3), 1 / 3)
    found = heads([({"a": short}, [False]), ({"a": long}, [False] * 3)])[0]
    assert found.itself == pytest.approx((1 + 3 / 3) / 4)
