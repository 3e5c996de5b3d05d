"""A small translator and a batch of sentences of unequal length, one row of it a filler."""

import pytest
import torch

from encoded import pair_columns
from regard.data.batches import Batch, Batches
from regard.models import Seq2Seq, Seq2SeqConfig
from regard.tasks import TASKS

PAIRS = [([4, 5, 6], [5, 4]), ([6, 7], [7, 8, 9, 4]), ([8, 4, 5, 9, 6], [6, 5, 7]), ([9], [9])]


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(3)
    config = Seq2SeqConfig(source_vocab=10, target_vocab=11, width=12, embed=6, dropout=0.0)
    return config.build().double()


@pytest.fixture
def batch() -> Batch:
    batches = Batches(pair_columns(PAIRS[:3] * 3), TASKS["translate"], budget=80, seed=1)
    made = next(batch for batch in map(batches.batch, range(len(batches))) if -1 in batch.rows)
    assert made.counts["targets"] < made["targets"].numel()
    return made
