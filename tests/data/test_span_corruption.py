"""Span corruption: how much is hidden, in how many spans and where, and that nothing is lost."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from encoded import flat
from regard.data.batches import Batches
from regard.data.fields import SpanSource, SpanTarget
from regard.data.flat import Row, Rows
from regard.data.span_corruption import CorruptSpans
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.objectives import SpanCorruption
from regard.tasks import TASKS

BEGIN, END, FIRST, SENTINEL = 1, 2, 10, 10_000
SENTINELS = tuple(range(SENTINEL, SENTINEL + 100))
LENGTHS = [30, 0, 1, 2, 3, 7, 64, 512]


def rows_of(lengths: list[int]) -> list[Row]:
    """Rows of begin, so many different tokens, and end."""
    return [{"source": np.array([BEGIN, *range(FIRST, FIRST + length), END])} for length in lengths]


def corruption(**settings: Any) -> CorruptSpans:
    return CorruptSpans(SENTINELS, before=1, after=1, begin=(3, 4), end=(5,), **settings)


def spans_of(target: list[int]) -> dict[int, list[int]]:
    """The spans of a target by their sentinels."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token >= SENTINEL:
            spans[last := token] = []
        else:
            spans[last].append(token)
    return spans


@pytest.mark.parametrize("settings", [{}, {"span": 1.0}, {"fraction": 0.5}, {"fraction": 0.97, "span": 1.5}])
def test_source_and_target_give_back_the_text(settings: dict[str, float]) -> None:
    if settings.get("fraction", 0.0) > 0.2 or settings.get("span", 3.0) < 2:
        lengths = [length for length in LENGTHS if length < 100]
    else:
        lengths = LENGTHS
    rows, make = rows_of(lengths), corruption(**settings)
    for seed in range(20):
        for before, after in zip(rows, make(Rows.of(rows), np.random.default_rng(seed))):
            source, target = after["source"].tolist(), after["target"].tolist()
            assert (target[:2], target[-1]) == ([3, 4], 5)
            spans = spans_of(target[2:-1])
            sentinels = [token for token in source if token >= SENTINEL]
            assert [*spans] == list(SENTINELS[: len(spans)])  # in order, and one more at the end
            assert sentinels == [*spans][:-1]
            assert spans[[*spans][-1]] == []
            assert all(spans[token] for token in sentinels)
            assert not any(one >= SENTINEL and two >= SENTINEL for one, two in pairwise(source))
            back = [token for one in source for token in (spans[one] if one >= SENTINEL else [one])]
            assert back == before["source"].tolist()


def test_the_rates_are_those_of_the_paper() -> None:
    """15 % of the tokens, in spans of 3 on average (section 3.1.4); the lengths of spans vary."""
    make = CorruptSpans(SENTINELS)
    rows = Rows.of([{"source": np.arange(FIRST, FIRST + 512)}] * 200)
    sizes: Counter[int] = Counter()
    for row in make(rows, np.random.default_rng(5)):
        spans = spans_of(row["target"].tolist())
        assert len(spans) == 27  # 26 spans and the last sentinel
        sizes.update(len(span) for span in [*spans.values()][:-1])
    hidden = sum(size * count for size, count in sizes.items())
    assert hidden == 200 * 77
    assert hidden / (200 * 512) == pytest.approx(0.15, abs=0.001)
    assert hidden / sizes.total() == pytest.approx(3, abs=0.05)
    # Cut at random into 26 parts of at least 1, a part of 77 tokens is 1 with the probability 25 / 76.
    assert sizes[1] / sizes.total() == pytest.approx(25 / 76, abs=0.025)
    assert max(sizes) > 8


def test_a_text_of_568_tokens_fills_a_source_of_512() -> None:
    """The lengths of T5: 568 tokens become 512 with eos, and a target of 114 (here 115: with the last sentinel)."""
    make = CorruptSpans(SENTINELS, after=1, end=(1,))
    found = make.lengths({"source": np.array([569])})
    assert {name: length.tolist() for name, length in found.items()} == {"source": [512], "target": [115]}


def test_all_ways_to_hide_are_equally_likely() -> None:
    """Two of 5 tokens in 2 spans: 6 ways."""
    make = CorruptSpans(SENTINELS, fraction=0.4, span=1.0)
    rows = Rows.of([{"source": np.arange(5)}] * 6000)
    found = Counter(
        tuple(token for token in row["target"].tolist() if token < SENTINEL)
        for row in make(rows, np.random.default_rng(2))
    )
    assert len(found) == 6
    assert max(abs(count - 1000) for count in found.values()) < 150  # five standard deviations


def test_lengths_depend_on_lengths_alone_and_the_same_seed_hides_the_same() -> None:
    rows, make = rows_of(LENGTHS), corruption()
    expected = make.lengths({"source": np.array([len(row["source"]) for row in rows])})
    for seed in range(5):
        found = make(Rows.of(rows), np.random.default_rng(seed))
        for name, lengths in expected.items():
            assert found.lengths(name).tolist() == lengths.tolist()
    one, other = (make(Rows.of(rows), np.random.default_rng(1)) for _ in range(2))
    assert all((one.flat(name) == other.flat(name)).all() for name in ("source", "target"))


def test_a_text_too_short_to_hide_anything_is_shown_whole() -> None:
    (none, single), rows = corruption()(Rows.of(rows_of([0, 1])), np.random.default_rng(0)), rows_of([0, 1])
    for after, before in zip((none, single), rows):
        assert after["source"].tolist() == before["source"].tolist()
        assert after["target"].tolist() == [3, 4, SENTINEL, 5]


def test_the_special_tokens_of_the_fields_stay_around_source_and_target() -> None:
    """The tokenizer of a published T5 puts </s> after a source, too."""
    tokenizer = train_tokenizer("bpe", ["the heron stood near the river"], 160, sentinels=100)
    special = replace(tokenizer.special_tokens, prefix=1, suffix=2)
    fields = {"source": SpanSource(replace(tokenizer, special_tokens=special)), "target": SpanTarget(tokenizer)}
    corrupt, text = SpanCorruption(part=0.5).corruption(fields), tokenizer.encode("the heron stood")
    rows = [{"source": np.array(fields["source"].wrap(text))}] * 50
    for row in corrupt(Rows.of(rows), np.random.default_rng(1)):
        source, target = row["source"].tolist(), row["target"].tolist()
        assert (source[0], source[-1]) == (1, 2)
        wrapped = fields["target"].wrap(target[1:-1])
        assert target == wrapped
        assert not {1, 2} & {*source[1:-1], *target[1:-1]}


def test_filler_rows_stay_empty() -> None:
    empty: Row = {"source": np.zeros(0, np.int64)}
    found = corruption()(Rows.of([empty, *rows_of([20]), empty]), np.random.default_rng(0))
    assert found.lengths("source").tolist() == [0, 20 - 3 + 1 + 2, 0]
    assert found.lengths("target").tolist() == [0, 3 + 1 + 1 + 3, 0]


def test_a_long_text_among_short_ones_has_fewer_and_longer_spans() -> None:
    make = CorruptSpans(SENTINELS[:5])
    _, spans = make.counts(np.array([20, 500]))
    assert spans.tolist() == [1, 4]


def test_a_batch_of_long_texts_alone_has_fewer_and_longer_spans() -> None:
    make = CorruptSpans(SENTINELS[:5])
    make.check({"source": np.array([20, 200, 300])})  # the texts of the training data
    found = make(Rows.of(rows_of([200, 300])), np.random.default_rng(0))  # a batch has texts of similar lengths
    assert found.lengths("source").tolist() == [202 - 30 + 4, 302 - 45 + 4]  # two special tokens each
    assert found.lengths("target").tolist() == [30 + 5, 45 + 5]


def test_texts_with_more_spans_than_sentinels_are_refused() -> None:
    with pytest.raises(UserError, match=r"objective.span=3.* a text of 200 .* 10 hidden spans.* 11 .* has 5; raise"):
        CorruptSpans(SENTINELS[:5]).check({"source": np.array([200, 300])})


def test_batches_have_sources_and_targets_of_few_shapes() -> None:
    texts = [list(range(FIRST, FIRST + length)) for length in (64, 64, 64, 64, 64)]
    columns = {"source": flat(texts), "target": flat([[] for _ in texts])}
    made = Batches(columns, TASKS["infill"], 256, 1, corruption=CorruptSpans(SENTINELS, begin=(3,), end=(5,)))
    batch = made.batch(0)
    assert batch["source"].shape[0] == batch["tokens"].shape[0]
    assert len(made.shapes) == 1
    assert batch.counts["source"] == len([row for row in batch.rows if row >= 0]) * (64 - 10 + 3)
    assert batch.counts["targets"] == len([row for row in batch.rows if row >= 0]) * (10 + 3 + 1 + 1)
