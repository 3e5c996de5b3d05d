"""Statistics of heads, and the toy task of masked language modelling."""

import math
import random
from pathlib import Path

import pytest
import torch

from regard.data.batches import IGNORED
from regard.explain.heads import PATTERNS, head_statistics, run, strongest_heads
from regard.explain.masked_lm import (
    ANIMALS,
    DETERMINERS,
    IDS,
    MASK,
    SOUNDS,
    TIMES,
    VOCABULARY,
    mask_each_word,
    sample_batch,
    sentence,
    train_encoder,
)
from regard.explain.options import HeadsOptions
from tiny_public import bert


def test_statistics_of_heads_with_one_pattern() -> None:
    previous = torch.eye(4).roll(-1, dims=1)  # word i attends to i - 1, the first to the last
    previous[0] = torch.tensor([1.0, 0, 0, 0])
    itself, last = torch.eye(4), torch.zeros(4, 4).index_fill(1, torch.tensor([3]), 1.0)
    found = head_statistics([({"a": torch.stack([previous, itself]), "b": last[None]}, [False, False, False, True])])
    names = [(one.layer, one.head) for one in found]
    assert names == [("a", 0), ("a", 1), ("b", 0), ("uniform", -1)]
    one, two, three, _ = found
    assert (one.previous, one.itself, one.first, one.distance) == (0.75, 0.25, 0.5, 0.75)
    assert (two.itself, two.entropy, two.distance, two.next) == (1.0, 0.0, 0.0, 0.0)
    assert (three.separator, three.next, three.itself, three.distance) == (1.0, 0.25, 0.25, 1.5)


def test_uniform_attention_covers_the_visible_words() -> None:
    weights = torch.tensor([[1.0, 0, 0], [0.9, 0.1, 0], [0.2, 0.2, 0.6]])[None]
    uniform = head_statistics([({"a": weights}, [True, False, False])])[-1]
    assert uniform.first == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert uniform.separator == 0  # the first position is counted separately
    assert uniform.entropy == pytest.approx((math.log(2) + math.log(3)) / 3)


def test_a_word_is_visible_if_any_head_attends_to_it() -> None:
    sharp, uniform = torch.eye(3)[None], torch.full((1, 3, 3), 1 / 3)
    assert head_statistics([({"a": sharp, "b": uniform}, [False] * 3)])[-1].entropy == pytest.approx(math.log(3))


def test_texts_are_weighted_by_their_number_of_words() -> None:
    short, long = torch.eye(1)[None], torch.full((1, 3, 3), 1 / 3)
    found = head_statistics([({"a": short}, [False]), ({"a": long}, [False] * 3)])[0]
    assert found.itself == pytest.approx((1 + 3 / 3) / 4)


def test_uniform_attention_is_the_last_also_of_texts_with_other_layers() -> None:
    weights, separators = torch.eye(2)[None], [False, True]
    found = head_statistics([({"a": weights}, separators), ({"b": weights}, separators)])
    assert [one.layer for one in found] == ["a", "b", "uniform"]


def test_the_strongest_head_of_each_pattern() -> None:
    previous = torch.eye(4).roll(-1, dims=1)
    found = head_statistics([({"a": torch.stack([torch.eye(4), previous])}, [False, False, False, True])])
    strongest = strongest_heads(found)
    assert list(strongest) == list(PATTERNS)
    assert [strongest[name].head for name in ("itself", "previous")] == [0, 1]


def test_sentences_follow_the_grammar() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    rng = random.Random(0)
    for animals in (*ANIMALS, 1):
        time, *rest, punctuation = sentence(rng, animals)
        clauses = [rest[at : at + 3] for at in range(0, len(rest), 4)]
        assert rest[3::4] == [","] * (animals - 1)
        assert all(determiner == DETERMINERS[punctuation] for determiner, _, _ in clauses)
        assert all(sound == SOUNDS[animal][TIMES.index(time)] for _, animal, sound in clauses)


def test_the_targets_of_a_batch_are_the_masked_words() -> None:
    tokens, targets = sample_batch(torch.Generator().manual_seed(0))
    masked = tokens == IDS[MASK]
    assert torch.equal(masked, targets != IGNORED)
    assert 0.2 < masked.float().mean() < 0.4
    assert not (targets == IDS[MASK]).any()


def test_mask_each_word() -> None:
    network, words = (
        train_encoder(steps=1, seed=1),
        ["today", "the", "cat", "purrs", ",", "the", "owl", "hoots", "."],
    )
    (weights, separators), accuracy = mask_each_word(network, words)
    assert [tuple(layer.shape) for layer in weights.values()] == [(8, 9, 9)] * 2
    assert [word for word, one in zip(words, separators) if one] == [",", "."]
    assert 0 <= accuracy <= 1
    for layer in weights.values():
        torch.testing.assert_close(layer.sum(dim=-1), torch.ones(8, 9))
    (other, _), _ = mask_each_word(network, ["yesterday", *words[1:]])
    for name, layer in weights.items():  # at position 0 the first word is masked, so it has no effect there
        assert torch.equal(layer[:, 0], other[name][:, 0])
        assert not torch.equal(layer[:, 1], other[name][:, 1])


@pytest.mark.slow
def test_heads_learn_patterns() -> None:
    network, rng = train_encoder(steps=200, seed=1), random.Random(1)
    results = [mask_each_word(network, sentence(rng, 3)) for _ in range(20)]
    found = head_statistics([text for text, _ in results])
    strongest, uniform = strongest_heads(found), found[-1]
    assert sum(accuracy for _, accuracy in results) / 20 > 0.8
    assert min(strongest["previous"].previous, strongest["next"].next) > 0.35 > 3 * uniform.previous
    assert strongest["first"].first > 3 * uniform.first


def test_the_word_whose_lines_are_drawn_is_named_as_text(tmp_path: Path) -> None:
    bert(tmp_path)  # it has no piece "it"
    titles = [getattr(one, "title", "") for one in run(HeadsOptions(model=str(tmp_path))).sections]
    assert "Heads of layer 0 as lines: from “it” on the left to the keys on the right" in titles
