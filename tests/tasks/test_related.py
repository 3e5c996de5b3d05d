"""Pairs of texts that are read one by one: what a batch of them has, and which texts are negatives."""

import math
from collections.abc import Sequence

import torch

from encoded import related_columns, rows_of
from regard.data.batches import IGNORED, Batch, Batches, collate
from regard.data.flat import Row
from regard.tasks import TASKS

TASK = TASKS["embed"]
A, B, C, D, E, F = [4], [5, 6], [6, 5, 4], [7], [8, 8], [9, 4]  # texts
NOT_KNOWN = [math.nan, 1.0]


def batch_of(*groups: Sequence[list[int]], numbers: Sequence[Sequence[float]] = ()) -> Batch:
    return collate(rows_of(related_columns(groups, numbers)), TASK)


def test_the_texts_of_a_pair_are_rows_of_their_own_and_its_target_is_its_place() -> None:
    batch = batch_of((A, B), (C, D))
    assert batch["tokens"].tolist() == [[4, 0, 0], [5, 6, 0], [6, 5, 4], [7, 0, 0]]
    assert batch.real["tokens"].tolist() == [
        [True, False, False],
        [True, True, False],
        [True] * 3,
        [True, False, False],
    ]
    assert batch["targets"].tolist() == [0, 1]
    assert batch["negatives"].tolist() == [[False, True], [True, False]]
    assert batch.counts == {"tokens": 7, "targets": 2}
    assert batch["numbers"].isnan().all()


def test_pairs_that_share_a_text_are_no_negatives_of_each_other() -> None:
    shared = [(A, B), (C, B), (A, D), (E, A), (E, F), (F, C)]  # with the first: the second, the third and the fourth
    negatives = batch_of(*shared)["negatives"]
    assert negatives[0].tolist() == [False, False, False, False, True, True]
    assert torch.equal(negatives, negatives.T)
    assert not negatives[4][[3, 5]].any()


def test_a_pair_without_negatives_counts_for_nothing() -> None:
    assert batch_of((A, B))["targets"].tolist() == [IGNORED]
    batch = batch_of((A, B), (C, B), (B, D))
    assert batch["targets"].tolist() == [IGNORED] * 3
    assert batch.counts["targets"] == 0


def test_a_third_text_is_a_negative_of_all_pairs_but_of_those_that_have_it() -> None:
    batch = batch_of((A, B, C), (D, E, A), (F, [3], []))
    assert batch["negatives"][:, 3:].tolist() == [
        [True, False, False],  # the third text of the second pair is the first text of this one
        [True, True, False],
        [True, True, False],  # the last pair has no third text
    ]
    assert batch_of((A, B, C))["targets"].tolist() == [0]


def test_texts_that_do_not_belong_together_are_no_target_but_negatives() -> None:
    batch = batch_of((A, B), (C, D), (E, F), numbers=[[5.0, 1.0], [0.5, 0.0], NOT_KNOWN])
    assert batch["targets"].tolist() == [0, IGNORED, 2]
    assert batch["negatives"][0].tolist() == [False, True, True]
    torch.testing.assert_close(batch["numbers"], torch.tensor([5.0, 0.5, math.nan]), equal_nan=True)


def test_filler_rows_are_padding_and_no_negatives() -> None:
    columns = related_columns([(A, B), (C, D)])
    filler: Row = {name: column.values[:0] for name, column in columns.items()}
    batch = collate([*rows_of(columns), filler, filler], TASK)
    assert not batch.real["tokens"][4:].any()
    assert not batch["tokens"][4:].any()
    assert batch["targets"].tolist() == [0, 1, IGNORED, IGNORED]
    assert not batch["negatives"][:, 2:].any()
    assert batch.counts == {"tokens": 7, "targets": 2}


def test_batches_have_few_shapes_and_every_pair_once() -> None:
    groups = [([4 + n] * (1 + n % 9), [30 + n]) for n in range(20)]
    batches = Batches(related_columns(groups), TASK, budget=64, seed=1)
    rows = [row for step in range(len(batches)) for row in batches.batch(step).rows if row >= 0]
    assert sorted(rows) == list(range(20))
    for step in range(len(batches)):
        batch = batches.batch(step)
        assert (len(batch["targets"]), batch["tokens"].shape[1]) in batches.shapes
        assert len(batch["tokens"]) == 2 * len(batch["targets"])
