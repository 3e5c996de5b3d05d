"""The batches of the two captioning tasks."""

from typing import Any

import numpy as np
import pytest
import torch

from regard.data.batches import FILLER, IGNORED, Batches, collate
from regard.data.example import Captioned
from regard.data.fields import TargetText, encode
from regard.data.images import FeatureField, ImageField
from regard.data.scenes import Scenes
from regard.data.tokenizers import train_tokenizer
from regard.tasks import TASKS

SCENES = Scenes(train=9, valid=1, test=1, size=32).load().train
TEXT = TargetText(train_tokenizer("word", [one.target for one in SCENES], 100))


class Means(FeatureField):
    """Features without a network: those of a cell are the mean of the image."""

    def encode(self, values: Any) -> Any:
        return [np.full((self.cells, 5), value.mean(), np.float16) for value in values]


def test_pixels_stay_bytes_and_captions_are_forced() -> None:
    fields = {"image": ImageField(32), "target": TEXT}
    task = TASKS["caption"]
    batches = Batches(encode(fields, SCENES), task, budget=100, seed=1)
    seen = set[int]()
    for batch in map(batches.batch, range(len(batches))):
        assert batch["source"].dtype == torch.uint8
        assert batch["source"].shape[1:] == (32, 32, 3)
        if FILLER not in batch.rows:
            assert batch.visible("source") is None  # no place of an image is padding
        assert batch.real["source"].shape == batch["source"].shape[:2]
        for row, number in enumerate(batch.rows):
            if number == FILLER:
                assert (batch["targets"][row] == IGNORED).all()
                assert not batch.real["source"][row].any()
                continue
            assert (batch["source"][row].numpy() == SCENES[number].image).all()
            ids = torch.tensor(TEXT.encode([SCENES[number].target])[0])
            assert (batch["tokens"][row][: len(ids) - 1] == ids[:-1]).all()
            assert (batch["targets"][row][: len(ids) - 1] == ids[1:]).all()
            assert batch.real["source"][row].all()
            seen.add(number)
    assert seen == set(range(len(SCENES)))
    assert any(FILLER in batches.batch(number).rows for number in range(len(batches)))


def test_features_have_all_their_cells() -> None:
    task = TASKS["caption-features"]
    columns = encode({"image": Means(), "target": TEXT}, SCENES)
    batch = collate([{name: column[0] for name, column in columns.items()}] * 2, task)
    assert batch["source"].shape == (2, 49, 5)  # 49 is not rounded up to a length of batches
    assert batch["source"].dtype == torch.float16  # as stored; the model converts them on its device
    assert batch.visible("source") is None
    assert batch["source"][0, 3, 0] == pytest.approx(SCENES[0].image.mean(), rel=1e-3)


def test_captions_of_one_image_share_it() -> None:
    shared = [Captioned(SCENES[0].image, one.target) for one in SCENES]
    columns = encode({"image": ImageField(32), "target": TEXT}, shared)
    assert len(columns["image"].values) == 32
    batches = Batches(columns, TASKS["caption"], budget=1000, seed=1)
    for batch in map(batches.batch, range(len(batches))):
        for row, number in enumerate(batch.rows):
            assert number == FILLER or (batch["source"][row].numpy() == SCENES[0].image).all()
    other = Batches(encode({"image": ImageField(32), "target": TEXT}, SCENES), TASKS["caption"], budget=1000, seed=1)
    assert batches.digest != other.digest
