"""Batches: every example once, few shapes, no token out of place, any step without the ones before."""

import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import (
    Batch,
    Batches,
    FillFrame,
    LabelFrame,
    LanguageFrame,
    Pair,
    TranslationFrame,
    collate,
    encode_examples,
    extra,
    frame_for,
)
from regard.data.example import Example
from regard.data.shapes import LENGTHS
from regard.data.special_tokens import SpecialTokens
from regard.data.tokenizers import BOS, EOS, PAD, train_tokenizer
from regard.errors import UserError

lengths = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), min_size=1, max_size=120)


def make_pairs(sizes: list[tuple[int, int]]) -> list[Pair]:
    """Pairs of these sizes, all of their tokens told apart by value."""
    fresh = iter(range(4, 10**6))
    return [([next(fresh) for _ in range(s)], [next(fresh) for _ in range(t)]) for s, t in sizes]


def random_pairs(count: int, most: int = 60, seed: int = 0) -> list[Pair]:
    """Pairs whose sides are about equally long, as in translation."""
    rng = np.random.default_rng(seed)
    sources = rng.integers(1, most - 8, count)
    targets = np.maximum(sources + rng.integers(-6, 7, count), 1)
    return make_pairs(list(zip(sources.tolist(), targets.tolist())))


def epoch_of(batches: Batches, epoch: int = 0) -> list[Batch]:
    return [batches.batch(epoch * len(batches) + i) for i in range(len(batches))]


def same(a: Batch, b: Batch) -> bool:
    names = ("tokens", "targets", "real", "source", "source_real")
    tensors = all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)
    return tensors and (a.rows, a.target_count) == (b.rows, b.target_count)


def check_row(batch: Batch, row: int, pairs: list[Pair]) -> None:
    """A row holds its example and nothing else."""
    assert batch.source is not None
    assert batch.source_real is not None
    if batch.rows[row] < 0:
        assert not batch.real[row].any()
        assert not batch.source_real[row].any()
        assert all((side[row] == PAD).all() for side in (batch.tokens, batch.targets, batch.source))
        return
    source, target = pairs[batch.rows[row]]
    width = batch.tokens.shape[1] - len(target) - 1
    assert batch.source[row].tolist() == source + [PAD] * (batch.source.shape[1] - len(source))
    assert batch.source_real[row].sum() == len(source)
    assert batch.source_real[row, : len(source)].all()
    assert batch.tokens[row].tolist() == [BOS, *target] + [PAD] * width
    assert batch.targets[row].tolist() == [*target, EOS] + [PAD] * width
    assert batch.real[row].tolist() == [True] * (len(target) + 1) + [False] * width


@settings(deadline=None, max_examples=60)
@given(sizes=lengths, budget=st.integers(71, 900), shuffle=st.booleans(), epoch=st.integers(0, 3))
def test_every_example_once_and_in_its_place(
    sizes: list[tuple[int, int]], budget: int, shuffle: bool, epoch: int
) -> None:
    pairs = make_pairs(sizes)
    batches = Batches(pairs, budget, seed=5, shuffle=shuffle)
    found = epoch_of(batches, epoch)
    assert batches.dropped == 0
    assert sorted(row for batch in found for row in batch.rows if row >= 0) == list(range(len(pairs)))
    assert sum(batch.target_count for batch in found) == sum(len(target) + 1 for _, target in pairs)
    shapes = set(batches.shapes)
    for batch in found:
        rows, source_width, target_width = _shape(batch)
        assert (rows, source_width, target_width) in shapes
        assert rows * max(source_width, target_width) <= budget
        assert rows < 8 or rows % 8 == 0
        assert batch.target_count == int(batch.real.sum())
        for row in range(rows):
            check_row(batch, row, pairs)
    # Only one batch has fillers, and never a whole batch of them.
    assert sum(-1 in batch.rows for batch in found) <= 1
    assert all(any(row >= 0 for row in batch.rows) for batch in found)


def test_shapes_are_few_and_each_has_one_number_of_rows() -> None:
    pairs = random_pairs(6000)
    batches = Batches(pairs, budget=2048, seed=0)
    assert len(batches.shapes) <= 25
    assert len({shape[1:] for shape in batches.shapes}) == len(batches.shapes)
    assert {width for shape in batches.shapes for width in shape[1:]} <= set(LENGTHS)
    seen = {(*b.source.shape, b.tokens.shape[1]) for b in epoch_of(batches, 2) if b.source is not None}
    assert seen == set(batches.shapes)
    real = sum(len(source) + len(target) + 1 for source, target in pairs)
    room = sum(rows * (s + t) * n for (rows, s, t), n in Counter(_shape(b) for b in epoch_of(batches)).items())
    assert real / room > 0.8  # little is padding


def _shape(batch: Batch) -> tuple[int, int, int]:
    assert batch.source is not None
    return batch.source.shape[0], batch.source.shape[1], batch.tokens.shape[1]


def test_a_step_is_the_same_whatever_came_before() -> None:
    pairs = random_pairs(500)
    one, two = (Batches(pairs, budget=1024, seed=3) for _ in range(2))
    far = 5000 * len(one) + 2
    first = one.batch(far)
    for step in (0, 7, far + 1, 3 * len(two), far, 1):
        two.batch(step)
    assert same(two.batch(far), first)
    assert same(one.batch(far), first)
    assert same(one.batch(1), two.batch(1))


def test_epochs_and_seeds_differ_but_not_in_length() -> None:
    pairs = random_pairs(500)
    batches = Batches(pairs, budget=1024, seed=3)
    rows = [[batch.rows for batch in epoch_of(batches, epoch)] for epoch in range(3)]
    assert rows[0] != rows[1] != rows[2]
    assert rows[0] != [batch.rows for batch in epoch_of(Batches(pairs, budget=1024, seed=4))]
    shapes = [Counter(map(_shape, epoch_of(batches, epoch))) for epoch in range(3)]
    assert shapes[0] == shapes[1] == shapes[2]
    order = [[_shape(batch) for batch in epoch_of(batches, epoch)] for epoch in range(2)]
    assert order[0] != order[1]  # short and long ones come mixed


def test_unshuffled_is_from_short_to_long_in_every_epoch() -> None:
    batches = Batches(random_pairs(700), budget=1024, seed=3, shuffle=False)
    assert all(same(a, b) for a, b in zip(epoch_of(batches, 0), epoch_of(batches, 4)))
    sums = [sum(_shape(batch)[1:]) for batch in epoch_of(batches)]
    assert sums == sorted(sums)


@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_share_one_epoch(shuffle: bool) -> None:
    pairs = random_pairs(700)
    alone = epoch_of(Batches(pairs, budget=1024, seed=1, shuffle=shuffle))
    for ranks in (2, 3, 5):
        parts = [Batches(pairs, 1024, seed=1, shuffle=shuffle, rank=rank, ranks=ranks) for rank in range(ranks)]
        assert {len(part) for part in parts} == {-(-len(alone) // ranks)}
        rows = sorted(row for part in parts for batch in epoch_of(part) for row in batch.rows if row >= 0)
        assert rows == list(range(700))
        if not shuffle:
            dealt = [batch for step in zip(*map(epoch_of, parts)) for batch in step]
            assert all(same(a, b) for a, b in zip(alone, dealt))
            assert all(batch.target_count == 0 and not batch.real.any() for batch in dealt[len(alone) :])


def test_long_examples_are_dropped_cut_or_refused() -> None:
    pairs = make_pairs([(3, 3), (30, 3), (3, 30), (5, 5)])
    dropped = Batches(pairs, budget=256, seed=0, limit=10)
    assert dropped.dropped == 2
    assert sorted(row for batch in epoch_of(dropped) for row in batch.rows if row >= 0) == [0, 3]
    cut = Batches(pairs, budget=256, seed=0, limit=10, long="truncate")
    assert cut.dropped == 0
    short = [(source[:10], target[:10]) for source, target in pairs]
    for batch in epoch_of(cut):
        for row in range(len(batch.rows)):
            check_row(batch, row, short)
    with pytest.raises(UserError, match="example 1 has 30 tokens, past the limit of 10"):
        Batches(pairs, budget=256, seed=0, limit=10, long="error")
    assert Batches(pairs, budget=256, seed=0, limit=30, long="error").dropped == 0
    assert Batches(pairs, budget=20, seed=0).dropped == 2  # the budget is a limit, too


def test_what_cannot_be_batched_is_refused() -> None:
    pairs = make_pairs([(30, 30)])
    with pytest.raises(UserError, match="no examples"):
        Batches([], budget=256, seed=0)
    with pytest.raises(UserError, match="every example has more than 10 tokens"):
        Batches(pairs, budget=256, seed=0, limit=10)
    with pytest.raises(UserError, match="budget of 1 "):
        Batches(pairs, budget=1, seed=0)
    with pytest.raises(UserError, match=r'long="trunc".*"truncate"'):
        Batches(pairs, budget=256, seed=0, long="trunc")


def test_few_examples_make_one_small_batch() -> None:
    batches = Batches(make_pairs([(3, 4)] * 5), budget=100_000, seed=0)
    assert len(batches) == 1
    assert batches.shapes == [(5, 8, 8)]
    assert Batches(make_pairs([(3, 4)] * 9), budget=100_000, seed=0).shapes == [(16, 8, 8)]


def test_an_empty_source_keeps_its_row() -> None:
    batch = Batches(make_pairs([(0, 2), (4, 2)]), budget=64, seed=0, shuffle=False).batch(0)
    assert batch.source_real is not None
    assert batch.source_real.sum(dim=1).tolist() == [0, 4]


def test_language_batches_have_no_source() -> None:
    pairs: list[Pair] = [([], [7, 8]), ([], [9])]
    batches = Batches(pairs, budget=64, seed=0, shuffle=False, frame=LanguageFrame())
    assert batches.shapes == [(2, 0, 8)]
    batch = batches.batch(0)
    assert batch.source is None
    assert batch.source_real is None
    assert batch.rows == [1, 0]
    assert batch.tokens[:, :3].tolist() == [[BOS, 9, PAD], [BOS, 7, 8]]
    assert batch.targets[:, :3].tolist() == [[9, EOS, PAD], [7, 8, EOS]]
    assert batch.target_count == 5


def test_label_batches_have_one_target_a_row() -> None:
    pairs = [([4 + i] * (1 + i % 20), [i % 3]) for i in range(11)]
    batches = Batches(pairs, budget=256, seed=0, frame=LabelFrame())
    found = epoch_of(batches)
    assert sum(batch.target_count for batch in found) == 11
    for batch in found:
        assert batch.targets.shape == (len(batch.rows),)
        assert batch.source is None
        for row, number in enumerate(batch.rows):
            text, label = pairs[number] if number >= 0 else ([], [PAD])
            assert batch.tokens[row][batch.real[row]].tolist() == text
            assert batch.targets[row] == label[0]


def test_marks_come_from_the_tokenizers() -> None:
    """As Marian has them: a source that ends, targets that start from the padding and end with id 0."""
    marian = SpecialTokens(pad=99, bos=99, eos=0, suffix=0)
    frame = TranslationFrame(marian, marian)
    pairs: list[Pair] = [([7, 8], [5]), ([9], [6, 4])]
    for batch in (collate(pairs, frame), Batches(pairs, 64, seed=0, shuffle=False, frame=frame).batch(0)):
        assert batch.source is not None
        assert batch.source_real is not None
        assert sorted(zip(batch.source[:, :3].tolist(), batch.source_real.sum(dim=1).tolist())) == [
            ([7, 8, 0], 3),
            ([9, 0, 0], 2),
        ]
        assert sorted(batch.tokens[:, :3].tolist()) == [[99, 5, 0], [99, 6, 4]]
        assert sorted(batch.targets[:, :3].tolist()) == [[5, 0, 0], [6, 4, 0]]
        assert sorted(batch.real.sum(dim=1).tolist()) == [2, 3]
        assert batch.target_count == 5
    assert extra(frame) == 1


def test_a_vocabulary_without_begin_or_end_says_what_follows_the_first() -> None:
    frame = LanguageFrame(SpecialTokens(pad=0, bos=None, eos=None))
    batch = collate([([], [5, 6, 7]), ([], [8]), ([], [])], frame)
    assert batch.tokens.tolist() == [[5, 6], [0, 0], [0, 0]]
    assert batch.targets[batch.real].tolist() == [6, 7]
    assert batch.target_count == 2
    assert Batches([([], [8]), ([], [])], 64, seed=0, frame=frame).batch(0).target_count == 0


def test_texts_to_fill_are_read_both_ways_and_said_as_they_stand() -> None:
    frame = FillFrame(SpecialTokens(pad=0, bos=2, eos=3, mask=4, prefix=2, suffix=3))
    assert extra(frame) == 2
    batch = collate([([], [7, 8]), ([], [9])], frame)
    assert batch.source is None
    assert batch.tokens.tolist() == batch.targets.tolist() == [[2, 7, 8, 3], [2, 9, 3, 0]]
    assert batch.real.sum(dim=1).tolist() == [4, 3]
    whole = Batches([([], [7] * 62), ([], [7] * 63)], 64, seed=0, frame=frame)
    assert (len(whole), whole.dropped) == (1, 1)


@pytest.mark.parametrize(
    ("task", "frame"),
    [("translate", TranslationFrame()), ("language", LanguageFrame()), ("classify", LabelFrame())],
)
def test_each_task_has_its_frame(task: str, frame: object) -> None:
    ours = train_tokenizer("char", ["ab"], 10)
    assert frame_for(task, ours, ours) == frame
    framed = train_tokenizer("char", ["ab"], 10, mask="[MASK]")
    assert frame_for("fill", None, framed) == FillFrame(framed.special_tokens)


def test_collate_is_one_tight_batch_in_order() -> None:
    pairs = make_pairs([(3, 2), (1, 4), (0, 0)])
    batch = collate(pairs)
    assert batch.rows == [0, 1, 2]
    assert _shape(batch) == (3, 3, 5)
    for row in range(3):
        check_row(batch, row, pairs)
    assert collate([([], [])]).tokens.tolist() == [[BOS]]


def test_a_batch_moves_whole() -> None:
    batch = collate(make_pairs([(3, 2)]))
    moved = batch.to("meta")
    assert moved.source is not None
    assert {t.device.type for t in (moved.tokens, moved.targets, moved.real, moved.source)} == {"meta"}
    assert (moved.rows, moved.target_count) == (batch.rows, batch.target_count)
    assert collate(make_pairs([(0, 2)]), LanguageFrame()).to("meta").source is None


def test_examples_are_encoded_side_by_side() -> None:
    examples = [Example("ab", "x y"), Example("b", "y")]
    source = train_tokenizer("char", ["ab"], 10)
    target = train_tokenizer("word", ["x y"], 10)
    pairs = encode_examples(examples, source, target)
    assert [(source.decode(s), target.decode(t)) for s, t in pairs] == [("ab", "x y"), ("b", "y")]
    assert encode_examples(examples, None, target) == [([], t) for _, t in pairs]


def test_a_far_epoch_of_many_examples_is_planned_at_once() -> None:
    sizes = np.random.default_rng(0).integers(1, 50, (200_000, 2)).tolist()
    batches = Batches([([4] * s, [5] * t) for s, t in sizes], budget=8192, seed=0)
    start = time.perf_counter()
    batches.batch(1000 * len(batches))
    assert time.perf_counter() - start < 1.0
