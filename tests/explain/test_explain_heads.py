"""The habits of heads, and sentences that call for them."""

import math
import random

import pytest
import torch

from regard.explain.heads import SHARES, heads, strongest
from regard.explain.hiding import (
    ANIMALS,
    DETERMINERS,
    HIDDEN,
    IDS,
    SOUNDS,
    TIMES,
    VOCABULARY,
    asked,
    batch,
    sentence,
    taught,
)
from regard.explain.small import IGNORED, finished


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
    assert even.first == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert even.separator == 0  # the first place has a column of its own
    assert even.entropy == pytest.approx((math.log(2) + math.log(3)) / 3)


def test_what_one_head_never_looks_at_another_may_see() -> None:
    sharp, even = torch.eye(3)[None], torch.full((1, 3, 3), 1 / 3)
    assert heads([({"a": sharp, "b": even}, [False] * 3)])[-1].entropy == pytest.approx(math.log(3))


def test_texts_are_weighed_by_their_words() -> None:
    short, long = torch.eye(1)[None], torch.full((1, 3, 3), 1 / 3)
    found = heads([({"a": short}, [False]), ({"a": long}, [False] * 3)])[0]
    assert found.itself == pytest.approx((1 + 3 / 3) / 4)


def test_the_strongest_of_every_habit() -> None:
    previous = torch.eye(4).roll(-1, dims=1)
    found = heads([({"a": torch.stack([torch.eye(4), previous])}, [False, False, False, True])])
    most = strongest(found)
    assert tuple(most) == SHARES
    assert [most[name].head for name in ("itself", "previous")] == [0, 1]


def test_every_word_of_a_sentence_can_be_told_from_the_others() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    dice = random.Random(0)
    for animals in (*ANIMALS, 1):
        time, *rest, mark = sentence(dice, animals)
        clauses = [rest[at : at + 3] for at in range(0, len(rest), 4)]
        assert rest[3::4] == [","] * (animals - 1)
        assert all(determiner == DETERMINERS[mark] for determiner, _, _ in clauses)
        assert all(sound == SOUNDS[animal][TIMES.index(time)] for _, animal, sound in clauses)


def test_a_batch_asks_for_what_is_hidden() -> None:
    tokens, targets = batch(torch.Generator().manual_seed(0))
    hidden = tokens == IDS[HIDDEN]
    assert torch.equal(hidden, targets != IGNORED)
    assert 0.2 < hidden.float().mean() < 0.4
    assert not (targets == IDS[HIDDEN]).any()


def test_each_word_asks_from_where_it_is_hidden() -> None:
    network, words = (
        finished(taught(steps=1, seed=1)),
        ["today", "the", "cat", "purrs", ",", "the", "owl", "hoots", "."],
    )
    (weights, separators), right = asked(network, words)
    assert [tuple(layer.shape) for layer in weights.values()] == [(8, 9, 9)] * 2
    assert [word for word, one in zip(words, separators) if one] == [",", "."]
    assert 0 <= right <= 1
    for layer in weights.values():
        torch.testing.assert_close(layer.sum(dim=-1), torch.ones(8, 9))
    (other, _), _ = asked(network, ["yesterday", *words[1:]])
    for name, layer in weights.items():  # the first word is hidden while it asks: which it was makes no difference
        assert torch.equal(layer[:, 0], other[name][:, 0])
        assert not torch.equal(layer[:, 1], other[name][:, 1])


@pytest.mark.slow
def test_heads_come_to_have_habits() -> None:
    network, dice = finished(taught(steps=200, seed=1)), random.Random(1)
    answers = [asked(network, sentence(dice, 3)) for _ in range(20)]
    found = heads([text for text, _ in answers])
    most, even = strongest(found), found[-1]
    assert sum(right for _, right in answers) / 20 > 0.8
    assert min(most["previous"].previous, most["next"].next) > 0.35 > 3 * even.previous
    assert most["first"].first > 3 * even.first
