"""Batches: every example once, few shapes, no token out of place, any step without the ones before."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from encoded import flat, labelled_columns, pair_batch, pair_columns, rows_of, text_columns, whole_columns
from regard.data.batches import IGNORED, LENGTHS, Batch, Batches, collate
from regard.data.example import Pair
from regard.data.fields import InputText, TargetText, encode
from regard.data.tokenizers import BOS, EOS, PAD, SpecialTokens, train_tokenizer
from regard.errors import UserError
from regard.tasks import TASKS

Ids = tuple[list[int], list[int]]

TRANSLATE = TASKS["translate"]

lengths = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), min_size=1, max_size=120)


def make_pairs(sizes: list[tuple[int, int]]) -> list[Ids]:
    """Pairs of these sizes, all of their tokens told apart by value."""
    fresh = iter(range(4, 10**6))
    return [([next(fresh) for _ in range(s)], [next(fresh) for _ in range(t)]) for s, t in sizes]


def random_pairs(count: int, most: int = 60, seed: int = 0) -> list[Ids]:
    """Pairs whose sides are about equally long, as in translation."""
    rng = np.random.default_rng(seed)
    sources = rng.integers(1, most - 8, count)
    targets = np.maximum(sources + rng.integers(-6, 7, count), 1)
    return make_pairs(list(zip(sources.tolist(), targets.tolist())))


def epoch_of(batches: Batches, epoch: int = 0) -> list[Batch]:
    return [batches.batch(epoch * len(batches) + i) for i in range(len(batches))]


def same(a: Batch, b: Batch) -> bool:
    tensors = [
        x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)
        for x, y in ((a.fields, b.fields), (a.real, b.real))
    ]
    return all(tensors) and (a.rows, a.counts) == (b.rows, b.counts)


def check_row(batch: Batch, row: int, pairs: list[Ids]) -> None:
    """A row holds its example and nothing else."""
    if batch.rows[row] < 0:
        assert not any(real[row].any() for real in batch.real.values())
        assert all((batch[name][row] == PAD).all() for name in ("tokens", "source"))
        assert (batch["targets"][row] == IGNORED).all()
        return
    source, target = pairs[batch.rows[row]]
    width = batch["tokens"].shape[1] - len(target) - 1
    assert batch["source"][row].tolist() == source + [PAD] * (batch["source"].shape[1] - len(source))
    assert batch.real["source"][row].sum() == len(source)
    assert batch.real["source"][row, : len(source)].all()
    assert batch["tokens"][row].tolist() == [BOS, *target] + [PAD] * width
    assert batch["targets"][row].tolist() == [*target, EOS] + [IGNORED] * width
    assert batch.real["tokens"][row].tolist() == [True] * (len(target) + 1) + [False] * width


@settings(max_examples=60)
@given(sizes=lengths, budget=st.integers(71, 900), epoch=st.integers(0, 3))
def test_every_example_once_and_in_its_place(sizes: list[tuple[int, int]], budget: int, epoch: int) -> None:
    pairs = make_pairs(sizes)
    batches = Batches(pair_columns(pairs), TRANSLATE, budget, seed=5)
    found = epoch_of(batches, epoch)
    assert batches.dropped == 0
    assert sorted(row for batch in found for row in batch.rows if row >= 0) == list(range(len(pairs)))
    assert sum(batch.counts["targets"] for batch in found) == sum(len(target) + 1 for _, target in pairs)
    shapes = set(batches.shapes)
    for batch in found:
        rows, source_width, target_width = _shape(batch)
        assert (rows, source_width, target_width) in shapes
        assert rows * max(source_width, target_width) <= budget
        assert rows < 8 or rows % 8 == 0
        assert batch.counts["targets"] == int(batch.real["tokens"].sum())
        for row in range(rows):
            check_row(batch, row, pairs)
    # Only one batch has fillers, and never a whole batch of them.
    assert sum(-1 in batch.rows for batch in found) <= 1
    assert all(any(row >= 0 for row in batch.rows) for batch in found)


def test_shapes_are_few_and_each_has_one_number_of_rows() -> None:
    pairs = random_pairs(6000)
    batches = Batches(pair_columns(pairs), TRANSLATE, budget=2048, seed=0)
    assert len(batches.shapes) <= 25
    assert len({shape[1:] for shape in batches.shapes}) == len(batches.shapes)
    assert {width for shape in batches.shapes for width in shape[1:]} <= set(LENGTHS)
    seen = {_shape(batch) for batch in epoch_of(batches, 2)}
    assert seen == set(batches.shapes)
    real = sum(len(source) + len(target) + 1 for source, target in pairs)
    room = sum(rows * (s + t) * n for (rows, s, t), n in Counter(_shape(b) for b in epoch_of(batches)).items())
    assert real / room > 0.8  # little is padding


def _shape(batch: Batch) -> tuple[int, int, int]:
    return (*batch["source"].shape, batch["tokens"].shape[1])


def test_a_step_is_the_same_whatever_came_before() -> None:
    pairs = random_pairs(500)
    one, two = (Batches(pair_columns(pairs), TRANSLATE, budget=1024, seed=3) for _ in range(2))
    far = 5000 * len(one) + 2
    first = one.batch(far)
    for step in (0, 7, far + 1, 3 * len(two), far, 1):
        two.batch(step)
    assert same(two.batch(far), first)
    assert same(one.batch(far), first)
    assert same(one.batch(1), two.batch(1))


def test_epochs_and_seeds_differ_but_not_in_length() -> None:
    pairs = random_pairs(500)
    batches = Batches(pair_columns(pairs), TRANSLATE, budget=1024, seed=3)
    rows = [[batch.rows for batch in epoch_of(batches, epoch)] for epoch in range(3)]
    assert rows[0] != rows[1] != rows[2]
    assert rows[0] != [batch.rows for batch in epoch_of(Batches(pair_columns(pairs), TRANSLATE, budget=1024, seed=4))]
    shapes = [Counter(map(_shape, epoch_of(batches, epoch))) for epoch in range(3)]
    assert shapes[0] == shapes[1] == shapes[2]
    order = [[_shape(batch) for batch in epoch_of(batches, epoch)] for epoch in range(2)]
    assert order[0] != order[1]  # short and long ones come mixed


def test_rows_that_are_too_long_are_left_out() -> None:
    columns = pair_columns(make_pairs([(3, 3), (30, 3), (3, 30), (5, 5)]))
    dropped = Batches(columns, TRANSLATE, budget=256, seed=0, limit=10)
    assert dropped.dropped == 2
    assert sorted(row for batch in epoch_of(dropped) for row in batch.rows if row >= 0) == [0, 3]
    assert Batches(columns, TRANSLATE, budget=256, seed=0, limit=30).dropped == 1  # a target of 30 tokens, and eos
    assert Batches(columns, TRANSLATE, budget=256, seed=0, limit=31).dropped == 0
    assert Batches(columns, TRANSLATE, budget=20, seed=0).dropped == 2  # the budget is a limit, too


def test_what_cannot_be_batched_is_refused() -> None:
    columns = pair_columns(make_pairs([(30, 30)]))
    with pytest.raises(UserError, match="no examples"):
        Batches(pair_columns([]), TRANSLATE, budget=256, seed=0)
    with pytest.raises(UserError, match="every example has more than 10 tokens"):
        Batches(columns, TRANSLATE, budget=256, seed=0, limit=10)
    with pytest.raises(UserError, match="budget of 1 "):
        Batches(columns, TRANSLATE, budget=1, seed=0)


def test_long_rows_of_one_length_are_not_rounded() -> None:
    same = Batches(pair_columns(make_pairs([(99, 98)] * 5)), TRANSLATE, budget=100_000, seed=0)
    other = Batches(pair_columns(make_pairs([(99, 98)] * 4 + [(98, 98)])), TRANSLATE, budget=100_000, seed=0)
    assert same.shapes == [(5, 99, 99)]  # the target has one token more, its end
    assert other.shapes == [(5, 128, 128)]


def test_few_examples_make_one_small_batch() -> None:
    batches = Batches(pair_columns(make_pairs([(3, 4)] * 5)), TRANSLATE, budget=100_000, seed=0)
    assert len(batches) == 1
    assert batches.shapes == [(5, 8, 8)]
    assert Batches(pair_columns(make_pairs([(3, 4)] * 9)), TRANSLATE, budget=100_000, seed=0).shapes == [(16, 8, 8)]


def test_an_empty_source_keeps_its_row() -> None:
    batch = Batches(pair_columns(make_pairs([(0, 2), (4, 2)])), TRANSLATE, budget=64, seed=0).batch(0)
    assert sorted(batch.real["source"].sum(dim=1).tolist()) == [0, 4]


def test_language_batches_have_no_source() -> None:
    batches = Batches(text_columns([[7, 8], [9]]), TASKS["language"], budget=64, seed=0)
    assert batches.shapes == [(2, 8)]
    batch = batches.batch(0)
    assert batch.fields.keys() == {"tokens", "targets"}
    assert batch.real.keys() == {"tokens"}
    first, second = batch.rows.index(0), batch.rows.index(1)
    assert batch["tokens"][[second, first], :3].tolist() == [[BOS, 9, PAD], [BOS, 7, 8]]
    assert batch["targets"][[second, first], :3].tolist() == [[9, EOS, IGNORED], [7, 8, EOS]]
    assert batch.counts == {"tokens": 5, "targets": 5}


def test_label_batches_have_one_target_a_row() -> None:
    examples = [([4 + i] * (1 + i % 20), i % 3) for i in range(11)]
    found = epoch_of(Batches(labelled_columns(examples), TASKS["classify"], budget=256, seed=0))
    assert sum(batch.counts["targets"] for batch in found) == 11
    assert any(-1 in batch.rows for batch in found)
    for batch in found:
        assert batch["targets"].shape == (len(batch.rows),)
        assert batch.fields.keys() == {"tokens", "targets"}
        for row, number in enumerate(batch.rows):
            text, label = examples[number] if number >= 0 else ([], IGNORED)
            assert batch["tokens"][row][batch.real["tokens"][row]].tolist() == text
            assert batch["targets"][row] == label


def test_special_tokens_come_from_the_tokenizers() -> None:
    """As Marian has them: a source that ends, targets that start from the padding and end with id 0."""
    marian = SpecialTokens(pad=99, bos=99, eos=0, suffix=0)
    columns = pair_columns([([7, 8], [5]), ([9], [6, 4])], marian, marian)
    batches = Batches(columns, TRANSLATE, 64, seed=0)
    for batch in (collate(rows_of(columns), TRANSLATE), batches.batch(0)):
        assert sorted(zip(batch["source"][:, :3].tolist(), batch.real["source"].sum(dim=1).tolist())) == [
            ([7, 8, 0], 3),
            ([9, 0, 0], 2),
        ]
        assert sorted(batch["tokens"][:, :3].tolist()) == [[99, 5, 0], [99, 6, 4]]
        assert sorted(batch["targets"][:, :3].tolist()) == [[5, 0, IGNORED], [6, 4, 0]]
        assert sorted(batch.real["tokens"].sum(dim=1).tolist()) == [2, 3]
        assert batch.counts == {"source": 5, "tokens": 5, "targets": 5}


def test_a_vocabulary_without_bos_or_eos_predicts_what_follows_the_first() -> None:
    special = SpecialTokens(pad=0, bos=None, eos=None)
    batch = collate(rows_of(text_columns([[5, 6, 7], [8], []], special)), TASKS["language"])
    assert batch["tokens"].tolist() == [[5, 6], [0, 0], [0, 0]]
    assert batch["targets"].tolist() == [[6, 7], [IGNORED] * 2, [IGNORED] * 2]
    assert batch.counts["targets"] == 2
    nothing = Batches(text_columns([[8], []], special), TASKS["language"], 64, seed=0).batch(0)
    assert nothing.counts["targets"] == 0


def test_texts_that_are_read_whole_stand_between_prefix_and_suffix() -> None:
    special = SpecialTokens(pad=0, bos=2, eos=3, mask=4, prefix=2, suffix=3)
    batch = collate(rows_of(whole_columns([[7, 8], [9]], special)), TASKS["masked"])
    assert batch.fields.keys() == {"tokens"}
    assert batch["tokens"].tolist() == [[2, 7, 8, 3], [2, 9, 3, 0]]
    assert batch.real["tokens"].sum(dim=1).tolist() == [4, 3]
    assert batch.counts == {"tokens": 7, "targets": 0}
    whole = Batches(whole_columns([[7] * 62, [7] * 63], special), TASKS["masked"], 64, seed=0)
    assert (len(whole), whole.dropped) == (1, 1)


def test_collate_is_one_tight_batch_in_order() -> None:
    pairs = make_pairs([(3, 2), (1, 4), (0, 0)])
    batch = pair_batch(pairs)
    assert batch.rows == [0, 1, 2]
    assert _shape(batch) == (3, 3, 5)
    for row in range(3):
        check_row(batch, row, pairs)
    assert pair_batch([([], [])])["tokens"].tolist() == [[BOS]]


def test_a_mask_of_nothing_is_not_given() -> None:
    padded, whole = pair_batch([([7, 8], [5]), ([9], [6])]), pair_batch([([7, 8], [5]), ([9, 6], [6])])
    assert padded.visible("source") is padded.real["source"]
    assert whole.visible("source") is padded.visible("tokens") is None
    uncounted = replace(whole, counts={})
    assert uncounted.visible("source") is whole.real["source"]


def test_a_batch_moves_whole() -> None:
    batch = pair_batch(make_pairs([(3, 2)]))
    batch = replace(batch, fields={**batch.fields, "extra": torch.ones(3)}, real={**batch.real, "extra": torch.ones(2)})
    moved = batch.to("meta")
    assert moved.fields.keys() == batch.fields.keys()
    assert moved.real.keys() == batch.real.keys()
    assert {tensor.device.type for tensor in (*moved.fields.values(), *moved.real.values())} == {"meta"}
    assert (moved.rows, moved.counts) == (batch.rows, batch.counts)


def test_columns_are_encoded_side_by_side() -> None:
    examples = [Pair("ab", "x y"), Pair("b", "y")]
    source, target = train_tokenizer("char", ["ab"], 10), train_tokenizer("word", ["x y"], 10)
    columns = encode({"source": InputText(source), "target": TargetText(target)}, examples)
    texts = [(source.decode(list(s)), target.decode(list(t))) for s, t in zip(columns["source"], columns["target"])]
    assert texts == [("ab", "x y"), ("b", "y")]
    alone = encode({"target": TargetText(target)}, examples)
    assert alone["target"].values.tolist() == columns["target"].values.tolist()


def test_the_digest_is_of_values_and_ends() -> None:
    def digest(lists: list[list[int]]) -> str:
        return Batches({"text": flat(lists)}, TASKS["language"], 64, seed=1).digest

    assert digest([[1, 2, 3], [4, 5]]) == digest([[1, 2, 3], [4, 5]])
    assert digest([[1, 2, 3], [4, 5]]) != digest([[4, 5], [1, 2, 3]])
    assert digest([[1, 2, 3], [4, 5]]) != digest([[1, 2], [3, 4, 5]])  # where one text ends is part of what they are
    one = Batches(pair_columns([([7], [8])]), TRANSLATE, 64, seed=1).digest
    assert one != Batches(pair_columns([([8], [7])]), TRANSLATE, 64, seed=1).digest


def test_a_far_epoch_is_planned_without_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(pair_columns([([4] * n, [5] * n) for n in range(1, 50)]), TRANSLATE, budget=512, seed=0)
    planned, plan = list[int](), batches._plan
    monkeypatch.setattr(batches, "_plan", lambda epoch: planned.append(epoch) or plan(epoch))
    batches.batch(1000 * len(batches))
    assert planned == [1000]
