"""Tasks: what each makes of its rows, and that a row without tokens counts for nothing."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from encoded import (
    answer_columns,
    flat,
    joined_columns,
    labelled_columns,
    pair_columns,
    related_columns,
    rows_of,
    text_columns,
    whole_columns,
)
from regard.data.batches import IGNORED, Batches, collate
from regard.data.corruption import MaskAndDraw, MaskTokens
from regard.data.flat import Columns, Flat, FlatBuilder, Row, Rows
from regard.data.span_corruption import CorruptSpans
from regard.data.tokenizers import BOS, EOS, SpecialTokens
from regard.models import MODELS
from regard.models.headed import texts_of
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
    "similarity": {"targets"},
    "regress": BOTH,
    "keys": BOTH,
    "caption-features": {"source"},
}
BUILT = FlatBuilder(np.dtype(np.int32))
BUILT.add([[[[7, 0], [8, 0]], [[9, 1], [0, -1]]], [[[5, 0], [6, 0]]], [[[5, 0], [6, 0]]] * 3])
PARTS = FlatBuilder(np.dtype(np.int32))
PARTS.add([[[7, 0], [9, 1]], [[5, 0]], [[6, 1]]])
TWO_PARTS = PARTS.build()
CHOICES = BUILT.build()  # of two choices each; the second of the first example is shorter
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
    "pair": joined_columns(list(zip(TEXTS, (2, 0, 1)))),
    "similarity": {
        "text": joined_columns(list(zip(TEXTS, (0, 0, 0))))["text"],
        "number": numbers([[0.5], [-1.0], [2]]),
    },
    "answer": answer_columns([([7, 8, 9], (1, 2)), ([5, 6], (0, 0)), ([6, 7, 8, 9], (2, 2))]),
    "choice": {"text": CHOICES, "label": flat([[1], [0], [1]])},
    "labels": {"text": flat(TEXTS), "labels": numbers([[[1.0, 0.0, 1.0]], [[0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]])},
    "rate": {"text": flat(TEXTS), "number": numbers([[0.5], [-1.0], [2.0]])},
    "embed": related_columns(
        [(text, text[::-1], other) for text, other in zip(TEXTS, ([4], [], [9, 8]))],
        [[math.nan, 1.0], [4.5, 1.0], [0.5, 0.0]],
    ),
    "tag": {"text": flat(TEXTS), "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "recall": {"text": flat(TEXTS), "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "recognise": {"values": VALUES, "label": flat([[2], [0], [1]])},
    "frames": {"values": VALUES, "tags": flat([[0, 1], [1], [2, 0, 1]])},
    "regress": {"values": VALUES, "number": numbers([[0.5], [-1.0], [2.0]])},
    "keys": {"values": VALUES, "keys": numbers([[[1.0, 0.0, 1.0]] * 2, [[0.0, 0.0, 1.0]], [[1.0, 1.0, 0.0]] * 3])},
}


ONE_TEXT = [name for name in COLUMNS if name != "embed"]  # a row of the others has several: see test_related.py


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


PLACES = ("words", "allowed")  # fields that say which places count


@pytest.mark.parametrize("name", [name for name in ONE_TEXT if name != "words"])  # word vectors have no targets
def test_filler_rows_are_padding_and_count_for_nothing(name: str) -> None:
    task = TASKS[name]
    rows = rows_of(COLUMNS[name])
    fillers: list[Row] = [{field: column.values[:0] for field, column in COLUMNS[name].items()}] * 2
    exact, filled = collate(made(task, rows), task), collate(made(task, [*rows, *fillers]), task)
    assert exact.counts == filled.counts
    per_target = exact["targets"].shape[-1] if name in ("keys", "labels", "answer") else 1
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


@pytest.mark.parametrize("name", ONE_TEXT)
def test_every_tensor_has_as_many_rows_and_the_type_of_its_numbers(name: str) -> None:
    batch = collate(made(TASKS[name], rows_of(COLUMNS[name])), TASKS[name])
    assert {tensor.shape[0] for tensor in (*batch.fields.values(), *batch.real.values())} == {len(TEXTS)}
    floats, pixels = FLOATS.get(name, set()), BYTES.get(name, set())
    for field, tensor in batch.fields.items():
        kind = torch.float32 if field in floats else torch.uint8 if field in pixels else torch.int64
        assert tensor.dtype == (torch.bool if field in PLACES else kind)
    assert {tensor.dtype for tensor in batch.real.values()} == {torch.bool}
    for name, real in batch.real.items():
        assert real.shape == batch[name].shape[:2]


@pytest.mark.parametrize("name", ONE_TEXT)
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


def test_a_pair_has_segments() -> None:
    columns = {**COLUMNS["pair"], "text": TWO_PARTS}
    batch = collate(rows_of(columns), TASKS["pair"])
    assert batch["tokens"].tolist() == [[7, 9], [5, 0], [6, 0]]
    assert batch["segments"].tolist() == [[0, 1], [0, 0], [1, 0]]
    assert batch.real["tokens"].tolist() == [[True, True], [True, False], [True, False]]


def test_an_answer_has_two_places_and_no_answer_is_the_first() -> None:
    rows = rows_of(COLUMNS["answer"])
    filler = {name: column.values[:0] for name, column in COLUMNS["answer"].items()}
    batch = collate([*rows, filler], TASKS["answer"])
    assert batch["targets"].tolist() == [[1, 2], [0, 0], [2, 2], [IGNORED, IGNORED]]
    assert batch["allowed"][:2].tolist() == [[True, True, True, False], [True, True, False, False]]
    assert batch.counts == {"tokens": 9, "targets": 3}


def test_choices_keep_their_own_padding() -> None:
    batch = collate(rows_of(COLUMNS["choice"]), TASKS["choice"])
    assert batch["tokens"].shape == batch["segments"].shape == (3, 3, 2)
    tokens, real, segments, texts = texts_of(batch)
    assert texts == 2
    assert tokens[:2].tolist() == [[7, 9, 0], [8, 0, 0]]
    assert real is not None
    assert real.sum(1).tolist() == [2, 1, 1, 1, 3, 3]
    assert segments is not None
    assert segments[:2].tolist() == [[0, 1, 0], [0, 0, 0]]


def test_a_tag_and_keys_are_targets_of_each_place() -> None:
    batch = collate(rows_of(COLUMNS["frames"]), TASKS["frames"])
    assert batch["tokens"][1].tolist() == [[4.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    assert batch["targets"].tolist() == [[0, 1, IGNORED], [1, IGNORED, IGNORED], [2, 0, 1]]
    assert batch.counts == {"tokens": 6, "targets": 6}
    keys = collate(rows_of(COLUMNS["keys"]), TASKS["keys"])
    assert keys["targets"][1, 0].tolist() == [0.0, 0.0, 1.0]
    assert keys["targets"][1, 1:].isnan().all()
