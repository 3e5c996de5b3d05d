"""Windows of a running text as rows, which a task corrupts and collates (`WindowRows`, `rows_in_order`)."""

from dataclasses import dataclass

import numpy as np
import pytest

from regard.data.batches import IGNORED, Corruption
from regard.data.corruption import MaskTokens
from regard.data.flat import Rows
from regard.data.streams import MaskedRunningText, WindowRows, rows_in_order, window_length
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.tasks import TASKS

FIELD = MaskedRunningText(train_tokenizer("char", ["abcdefghij "], 40, mask="[MASK]"))
TASK = TASKS["masked running"]
TEXT = (np.arange(1003) % 10 + 5).astype(np.uint16)
SPECIAL = FIELD.tokenizer.special_tokens
MASKS = MaskTokens(SPECIAL.mask or 0, FIELD.size, SPECIAL.ids)


def windows(text: np.ndarray = TEXT, window: int = 16, budget: int = 70, seed: int = 3) -> WindowRows:
    return WindowRows(text, FIELD, TASK, window, budget, seed, corruption=MASKS)


def test_a_batch_has_windows_between_the_special_tokens_with_some_tokens_masked() -> None:
    batch = windows().batch(0)
    tokens, targets = batch["tokens"].numpy(), batch["targets"].numpy()
    assert tokens.shape == targets.shape == (4, 16)
    assert (tokens[:, 0] == SPECIAL.prefix).all()
    assert (tokens[:, -1] == SPECIAL.suffix).all()
    assert ((targets != IGNORED).sum(1) == 3).all()  # 15 % of 16, rounded up
    assert batch.counts == {"tokens": 64, "targets": 12}
    for row, number in zip(np.where(targets == IGNORED, tokens, targets), batch.rows):
        start = min(number * 14, len(TEXT) - 14)
        assert row[1:-1].tolist() == TEXT[start : start + 14].tolist()


def test_an_epoch_has_every_window_once_and_another_order_each_time() -> None:
    made = windows()
    assert len(made) == 18  # 72 windows of 14 tokens, 4 in a batch
    epochs = [[row for step in range(first, first + 18) for row in made.batch(step).rows] for first in (0, 18)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(72))
    assert epochs[0] != epochs[1]
    assert made.shapes == [(4, 16)]


def test_a_batch_depends_only_on_the_seed_and_the_step() -> None:
    made = windows()
    later, first = made.batch(40)["tokens"], made.batch(0)["tokens"]
    assert (windows().batch(0)["tokens"] == first).all()
    assert (windows().batch(40)["tokens"] == later).all()
    assert (windows(seed=4).batch(0)["tokens"] != first).any()


def test_a_short_text_is_one_window() -> None:
    batch = windows(TEXT[:5]).batch(0)
    assert batch["tokens"].shape == (1, 7)
    assert windows(TEXT[:1]).batch(0).counts == {"tokens": 3, "targets": 1}
    with pytest.raises(UserError, match="no tokens"):
        windows(TEXT[:0])


def test_sizes_that_cannot_work_are_refused() -> None:
    with pytest.raises(UserError, match=r"plan.batch_tokens=15: less than one window of 16"):
        windows(budget=15)
    with pytest.raises(UserError, match=r"data.window=2: special tokens leave no room .* give 3 or more"):
        windows(window=2)


def test_evaluation_has_every_token_once_and_in_order() -> None:
    found = list(rows_in_order(TEXT, FIELD, TASK, MASKS, 16, 4))
    text = np.concatenate([row["text"][1:-1] for rows in found for row in rows])
    assert text.tolist() == TEXT.tolist()
    assert {len(rows) for rows in found[:-1]} == {4}
    assert found[-1].lengths("text")[-1] == 1003 % 14 + 2


@dataclass(frozen=True)
class Halved(Corruption):
    """A corruption that keeps half of a row."""

    def lengths(self, lengths: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"text": lengths["text"] // 2}

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        return Rows.of([{"text": row["text"][: len(row["text"]) // 2]} for row in rows])


def test_windows_are_as_long_as_what_the_corruption_leaves_room_for() -> None:
    assert window_length(FIELD, TASK, None, 16) == 14
    assert window_length(FIELD, TASK, Halved(), 16) == 31
    assert WindowRows(TEXT, FIELD, TASK, 16, 64, 1, corruption=Halved()).batch(0)["tokens"].shape == (4, 16)
