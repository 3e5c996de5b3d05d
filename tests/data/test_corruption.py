"""Masking: how many tokens, which ones, and what is shown in their place; the same for the same seed."""

from collections.abc import Sequence

import numpy as np
import pytest

from encoded import flat
from regard.data.batches import IGNORED, Batches
from regard.data.corruption import MaskTokens, masked_count
from regard.data.flat import Row, Rows
from regard.tasks import TASKS

PAD, BEGIN, END, MASK, VOCAB = 0, 1, 2, 3, 40
SPECIAL = (PAD, BEGIN, END, MASK)
LENGTHS = [20, 3, 0, 32, 7, 21]


def made(lengths: list[int], seed: int = 0) -> Sequence[Row]:
    """Rows of begin, so many tokens less two, and end; a length of 0 is a filler row."""
    random = np.random.default_rng(seed)
    texts = [random.integers(len(SPECIAL), VOCAB, max(length - 2, 0)) for length in lengths]
    return [{"text": np.array([BEGIN, *text, END] if n else [], np.uint16)} for n, text in zip(lengths, texts)]


def masked(rows: list[Row], seed: int = 0, **settings: float) -> Sequence[Row]:
    return MaskTokens(MASK, VOCAB, SPECIAL, **settings)(Rows.of(rows), np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("fraction", "counts"), [(0.15, [3, 1, 0, 5, 2, 4]), (0.5, [10, 1, 0, 16, 4, 11]), (1.0, [18, 1, 0, 30, 5, 19])]
)
def test_every_row_has_its_fraction_of_targets(fraction: float, counts: list[int]) -> None:
    rows = made(LENGTHS)
    found = masked(rows, fraction=fraction)
    assert masked_count(np.array(LENGTHS), fraction).tolist() == counts
    for row, (before, after) in enumerate(zip(rows, found)):
        text, targets = before["text"], after["targets"]
        assert after["text"].shape == targets.shape == text.shape
        chosen = targets != IGNORED
        assert chosen.sum() == counts[row]
        assert (targets[chosen] == text[chosen]).all()
        assert (after["text"][~chosen] == text[~chosen]).all()
        assert not np.isin(text[chosen], SPECIAL).any()


def test_the_count_is_the_exact_product_rounded_up() -> None:
    lengths = np.arange(400)
    for percent in range(1, 101):  # the product of floats is often a little more: 100 · 0.07
        exact = np.minimum(-(-lengths * percent // 100), lengths - 2).clip(0)
        assert masked_count(lengths, percent / 100).tolist() == exact.tolist()


def test_counts_depend_on_lengths_alone() -> None:
    for seed in range(5):
        found = masked(made(LENGTHS, seed), seed=10 + seed)
        assert [int((row["targets"] != IGNORED).sum()) for row in found] == [3, 1, 0, 5, 2, 4]
    assert masked_count(np.array([0, 1, 2]), 1.0).tolist() == [0, 0, 0]
    lengths = {"text": np.array(LENGTHS)}
    assert MaskTokens(MASK, VOCAB, SPECIAL).lengths(lengths) is lengths


def test_special_tokens_are_never_masked() -> None:
    """Special tokens inside a text leave fewer tokens than the fraction asks for."""
    text = np.array([BEGIN, 7, PAD, MASK, 8, END, BEGIN, END])
    for seed in range(20):
        (row,) = masked([{"text": text}], seed=seed, fraction=1.0, kept=0.0, random=0.0)
        assert row["text"].tolist() == [BEGIN, MASK, PAD, MASK, MASK, END, BEGIN, END]
        assert row["targets"].tolist() == [IGNORED, 7, IGNORED, IGNORED, 8, *[IGNORED] * 3]


def test_all_places_are_equally_likely() -> None:
    found = masked(made([22] * 2000), seed=2, fraction=0.2)
    often = (np.stack([row["targets"] for row in found]) != IGNORED).sum(axis=0)
    assert often[0] == often[21] == 0
    assert often.sum() == 2000 * 5
    assert np.abs(often[1:21] - 500).max() < 110  # five standard deviations


@pytest.mark.parametrize(("kept", "random"), [(0.1, 0.1), (0.1, 0.2), (0.0, 0.0), (0.5, 0.5)])
def test_masked_places_show_mask_random_token_or_truth_in_their_shares(kept: float, random: float) -> None:
    rows = made([42] * 1500)
    found = masked(rows, seed=3, fraction=0.5, kept=kept, random=random)
    truth, shown = (np.stack([row["text"] for row in each]) for each in (rows, found))
    chosen = np.stack([row["targets"] for row in found]) != IGNORED
    share_of_mask = (shown[chosen] == MASK).mean()
    share_of_truth = (shown[chosen] == truth[chosen]).mean()
    assert abs(share_of_mask - (1 - kept - random) - random / VOCAB) < 0.015  # five standard deviations
    assert abs(share_of_truth - kept - random / VOCAB) < 0.015
    others = shown[chosen & (shown != MASK) & (shown != truth)]
    if random:  # tokens of the whole vocabulary
        assert set(others.tolist()) == set(range(VOCAB)) - {MASK}
    else:
        assert not len(others)


def test_a_seed_decides() -> None:
    rows = made(LENGTHS)

    def same(a: list[Row], b: list[Row]) -> bool:
        return all(np.array_equal(x[name], y[name]) for x, y in zip(a, b) for name in ("text", "targets"))

    assert same(masked(rows, seed=6), masked(rows, seed=6))
    assert not same(masked(rows, seed=6), masked(rows, seed=7))
    untouched = made(LENGTHS)
    assert all(np.array_equal(a["text"], b["text"]) for a, b in zip(rows, untouched))  # the corpus itself stays


def test_each_batch_of_training_is_masked_in_its_own_way() -> None:
    """The masks are a function of the seed and the number of the batch: a text has new ones in every epoch."""
    texts = flat([row["text"].tolist() for row in made([12] * 16)])

    def batches(seed: int = 3) -> Batches:
        return Batches({"text": texts}, TASKS["masked"], 96, seed, corruption=MaskTokens(MASK, VOCAB, SPECIAL))

    def targets(step: int) -> list[tuple[int, list[int]]]:
        """The targets of an epoch, each with the number of its text."""
        found = (one.batch(step), one.batch(step + 1))
        return sorted(pair for batch in found for pair in zip(batch.rows, batch["targets"].tolist()))

    one, two = batches(), batches()
    assert len(one) == 2
    first = one.batch(0)
    for step in (5, 1, 0):
        again = two.batch(step)
    assert (first["tokens"] == again["tokens"]).all()
    assert (first["targets"] == again["targets"]).all()
    epochs = [targets(step) for step in (0, 2, 4)]
    assert epochs[0] != epochs[1] != epochs[2]
    places = [one.batch(step)["targets"] != IGNORED for step in (0, 2, 4)]  # the rows of an epoch are shuffled too
    assert not (places[0] == places[1]).all()
    assert not (places[1] == places[2]).all()
    assert not (batches(seed=4).batch(0)["targets"] == first["targets"]).all()
    assert first.counts == {"tokens": 96, "targets": 16}
