"""Two directions: the batch that the backward model reads."""

import torch

from regard.data.batches import IGNORED, Batch
from regard.layers.recurrent import last_first
from regard.models.directions import from_the_end


def test_the_backward_model_reads_the_targets_from_the_end() -> None:
    real = torch.tensor([[True] * 4, [False, True, True, False]])
    tokens = torch.tensor([[1, 4, 5, 6], [0, 1, 7, 0]])
    targets = torch.tensor([[4, 5, IGNORED, 7], [IGNORED, 7, 8, IGNORED]])
    batch = from_the_end(Batch({"tokens": tokens, "targets": targets}, {"tokens": real}))
    assert batch["tokens"].tolist()[0] == [7, 0, 5, 4]
    assert batch["targets"].tolist()[0] == [
        6,
        IGNORED,
        4,
        1,
    ]  # there is nothing to read before a target without a token
    assert batch["tokens"][1, :2].tolist() == [8, 7]
    assert batch["targets"].tolist()[1] == [7, 1, IGNORED, IGNORED]
    assert batch.real["tokens"].tolist() == [[True] * 4, [True, True, False, False]]


def test_real_tokens_come_first_the_last_of_them_before_the_others() -> None:
    order = last_first(torch.tensor([[False, True, True, False, True]]))[0].tolist()
    assert order[:3] == [4, 2, 1]
    assert sorted(order) == [0, 1, 2, 3, 4]
