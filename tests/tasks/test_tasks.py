"""Tasks: what each makes of its rows, and that a row without tokens counts for nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from encoded import flat, labelled_columns, pair_columns, rows_of, text_columns, whole_columns
from regard.data.batches import IGNORED, Batches, collate
from regard.data.corruption import MaskAndDraw, MaskTokens
from regard.data.flat import Columns, Flat, FlatBuilder, Row, Rows
from regard.data.span_corruption import CorruptSpans
from regard.data.tokenizers import BOS, EOS, SpecialTokens
from regard.models import MODELS
from regard.tasks import TASKS, Task, task_of

SPECIAL = SpecialTokens(pad=0, bos=1, eos=2, mask=4, prefix=1, suffix=2)
TEXTS = [[7, 8], [9], [5, 6, 7]]


def numbers(arrays: Sequence[ArrayLike]) -> Flat:
    builder = FlatBuilder(np.dtype(np.float32))
    builder.add(arrays)
    return builder.build()


def counts_for_nothing(targets: Tensor) -> Tensor:
    return targets.isnan() if targets.is_floating_point() else targets == IGNORED


VALUES = numbers([[[0.5, 1.0], [2.0, 3.0]], [[4.0, 5.0]], [[6.0, 7.0], [8.0, 9.0], [10.0, 11.0]]])
BOTH = {"tokens", "targets"}
IMAGES = FlatBuilder(np.dtype(np.uint8))
IMAGES.add([np.full((4, 4, 3), number) for number in (1, 2, 3)])
PIXELS = IMAGES.build()
CLIPS = FlatBuilder(np.dtype(np.uint8))
CLIPS.add([np.full((7, 25), number) for number in (1, 2, 3)])
FRAMES = CLIPS.build()
CELLS = numbers(np.arange(3 * 49 * 2, dtype=np.float32).reshape(3, 49, 2))
CAPTIONS = pair_columns([(text, text[:2]) for text in TEXTS])["target"]
BYTES = {"caption": {"source"}, "caption-clip": {"source"}}  # the tensors of pixels
FLOATS = {
    "replaced": {"draws"},
    "replaced running": {"draws"},
    "recognise": {"tokens"},
    "frames": {"tokens"},
    "labels": {"targets"},
    "rate": {"targets"},
    "regress": BOTH,
    "keys": BOTH,
    "caption-features": {"source"},
}
COLUMNS: Mapping[str, Columns] = {
    "translate": pair_columns([(text, text[:2]) for text in TEXTS]),
    "aligned": {**pair_columns([(text, text[:2]) for text in TEXTS]), "alignment": flat([[0, 0], [], [1, 1, 0, 1]])},
    "caption": {"image": PIXELS, "target": CAPTIONS},
    "caption-features": {"image": CELLS, "target": CAPTIONS},
    "caption-clip": {"image": FRAMES, "target": CAPTIONS},
    "language": text_columns(TEXTS),
    "running": text_columns(TEXTS, SpecialTokens(0, None, None)),
    "two-way language": text_columns(TEXTS),
    "two-way running": text_columns(TEXTS, SpecialTokens(0, None, None)),
    "masked": whole_columns(TEXTS, SPECIAL),
    "masked running": whole_columns(TEXTS, SPECIAL),
    "replaced": whole_columns(TEXTS, SPECIAL),
    "replaced running": whole_columns(TEXTS, SPECIAL),
    "infill": pair_columns([(text, []) for text in TEXTS]),
    "infill running": pair_columns([(text, []) for text in TEXTS]),
    "context": text_columns(TEXTS, SPECIAL),
    "words": whole_columns(TEXTS, SPECIAL),
    "classify": labelled_columns(list(zip(TEXTS, (2, 0, 1)))),
    "labels": {"text": flat(TEXTS), "labels": numbers([[[1.0, 0.0, 1.0]], [[0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]])},
    "rate": {"text": flat(TEXTS), "number": numbers([[0.5], [-1.0], [2.0]])},
    "tag": {"text": flat(TEXTS), "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "recall": {"text": flat(TEXTS), "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "recognise": {"values": VALUES, "label": flat([[2], [0], [1]])},
    "frames": {"values": VALUES, "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "regress": {"values": VALUES, "number": numbers([[0.5], [-1.0], [2.0]])},
    "keys": {"values": VALUES, "keys": numbers([[[1.0, 0.0, 1.0]] * 2, [[0.0, 0.0, 1.0]], [[1.0, 1.0, 0.0]] * 3])},
}


def made(task: Task, rows: list[Row]) -> Sequence[Row]:
    """The rows as training has them."""
    masks = MaskTokens(4, 12, SPECIAL.ids, 0.5)
    spans = CorruptSpans((12, 13, 14), begin=(1,), end=(2,))
    corruption = {"masked": masks, "replaced": MaskAndDraw(masks)}.get(task.head, spans if task.made else None)
    return rows if corruption is None else corruption(Rows.of(rows), np.random.default_rng(1))


def test_every_task_is_under_its_name_and_has_columns_here() -> None:
    assert {name: task.name for name, task in TASKS.items()} == {name: name for name in COLUMNS}
    for task in TASKS.values():
        assert list(task.fields) == list(COLUMNS[task.name])
        assert task.head in task.objective.heads


def test_every_model_has_a_task() -> None:
    tasks = {name: task_of(config()).name for name, config in MODELS.items()}
    assert set(tasks.values()) == {"translate", "caption", "language", "masked", "classify", "words", "context"}
    assert tasks["gpt"] == "language"
    assert tasks["bert"] == "masked"


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "words"])  # word vectors have no targets
def test_filler_rows_are_padding_and_count_for_nothing(name: str) -> None:
    task = TASKS[name]
    rows = rows_of(COLUMNS[name])
    fillers: list[Row] = [{field: column.values[:0] for field, column in COLUMNS[name].items()}] * 2
    exact, filled = collate(made(task, rows), task), collate(made(task, [*rows, *fillers]), task)
    assert exact.counts == filled.counts
    per_target = exact["targets"].shape[-1] if name in ("keys", "labels") else 1
    assert exact.counts["targets"] * per_target == int((~counts_for_nothing(exact["targets"])).sum()) > 0
    assert filled.fields.keys() == exact.fields.keys()
    assert counts_for_nothing(filled["targets"][len(rows) :]).all()
    for input_, real in filled.real.items():
        assert not real[len(rows) :].any()
        assert not filled[input_][len(rows) :].any()
        assert filled.counts[input_] == int(real.sum())
    if TASKS[name].head not in ("masked", "replaced") and not TASKS[name].made:  # drawn for all rows together
        for field in exact.fields:
            torch.testing.assert_close(filled[field][: len(rows)], exact[field], atol=0, rtol=0, equal_nan=True)
    nothing = collate(made(task, fillers), task)
    assert set(nothing.counts.values()) == {0}
    assert {tensor.shape[0] for tensor in nothing.fields.values()} == {2}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_tensor_has_as_many_rows_and_the_type_of_its_numbers(name: str) -> None:
    batch = collate(made(TASKS[name], rows_of(COLUMNS[name])), TASKS[name])
    assert {tensor.shape[0] for tensor in (*batch.fields.values(), *batch.real.values())} == {len(TEXTS)}
    floats, pixels = FLOATS.get(name, set()), BYTES.get(name, set())
    for field, tensor in batch.fields.items():
        kind = torch.float32 if field in floats else torch.uint8 if field in pixels else torch.int64
        assert tensor.dtype == kind
    assert {tensor.dtype for tensor in batch.real.values()} == {torch.bool}
    for name, real in batch.real.items():
        assert real.shape == batch[name].shape[:2]


@pytest.mark.parametrize("name", COLUMNS)
def test_widths_are_those_of_the_tensors(name: str) -> None:
    task = TASKS[name]
    batches = Batches(COLUMNS[name], task, budget=64, seed=1)
    for planned in [batches.batch(step) for step in range(len(batches))]:
        axes = [axis for axis in planned.real if axis != "source" or "source" in task.fields]  # an image has its size
        shapes = {tuple(planned[axis].shape[:2]) for axis in axes}
        assert {(shape[0], width) for shape in batches.shapes for width in shape[1:]} >= shapes


def test_translation_reads_the_source_whole_and_the_target_shifted() -> None:
    batch = collate(rows_of(COLUMNS["translate"]), TASKS["translate"])
    assert batch["source"].tolist() == [[7, 8, 0], [9, 0, 0], [5, 6, 7]]
    assert batch["tokens"].tolist() == [[BOS, 7, 8], [BOS, 9, 0], [BOS, 5, 6]]
    assert batch["targets"].tolist() == [[7, 8, EOS], [9, EOS, IGNORED], [5, 6, EOS]]
    assert batch.counts == {"source": 6, "tokens": 8, "targets": 8}


def test_running_text_predicts_what_follows_without_special_tokens() -> None:
    batch = collate(rows_of(COLUMNS["running"]), TASKS["running"])
    assert batch["tokens"].tolist() == [[7, 0], [0, 0], [5, 6]]
    assert batch["targets"].tolist() == [[8, IGNORED], [IGNORED] * 2, [6, 7]]


def test_a_text_that_is_not_corrupted_has_no_targets() -> None:
    batch = collate(rows_of(COLUMNS["masked"]), TASKS["masked"])
    assert "targets" not in batch.fields
    assert batch.counts == {"tokens": 12, "targets": 0}


def test_a_class_is_one_target() -> None:
    batch = collate(rows_of(COLUMNS["classify"]), TASKS["classify"])
    assert batch["targets"].tolist() == [2, 0, 1]
    assert batch.counts == {"tokens": 6, "targets": 3}


def test_a_tag_and_keys_are_targets_of_each_place() -> None:
    batch = collate(rows_of(COLUMNS["frames"]), TASKS["frames"])
    assert batch["tokens"][1].tolist() == [[4.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    assert batch["targets"].tolist() == [[0, 1, IGNORED], [1, IGNORED, IGNORED], [2, 0, 1]]
    assert batch.counts == {"tokens": 6, "targets": 6}
    keys = collate(rows_of(COLUMNS["keys"]), TASKS["keys"])
    assert keys["targets"][1, 0].tolist() == [0.0, 0.0, 1.0]
    assert keys["targets"][1, 1:].isnan().all()


# -- A task of one's own -----------------------------------------------------------------------------------------------


def prefixes(columns: Columns, index: int) -> Sequence[Row]:
    """A row for every prefix of a text, of two tokens or more."""
    text = columns["text"][index]
    return [{"text": text[:length]} for length in range(2, len(text) + 1)]


def test_a_task_may_make_several_rows_of_an_example() -> None:
    task = replace(TASKS["language"], name="prefixes", rows=prefixes)
    batches = Batches(text_columns(TEXTS), task, budget=512, seed=3)
    assert len(batches) == 1
    batch = batches.batch(0)
    assert sorted(row for row in batch.rows if row >= 0) == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    found = sorted(
        (example, tokens[real].tolist())
        for example, tokens, real in zip(batch.rows, batch["tokens"], batch.real["tokens"])
        if example >= 0
    )
    wrapped = [[BOS, *text, EOS] for text in TEXTS]
    assert found == sorted((n, text[: k - 1]) for n, text in enumerate(wrapped) for k in range(2, len(text) + 1))
    assert batch.counts["targets"] == sum(len(tokens) for _, tokens in found)
    short = Batches(text_columns(TEXTS), task, budget=512, seed=3, limit=2)
    assert short.dropped == sum(len(tokens) > 2 for _, tokens in found)
