"""The loss of answers: two cross-entropies over the places that are allowed."""

import torch

from encoded import answer_columns, rows_of
from regard.data.batches import collate
from regard.objectives import SpanAnswers
from regard.tasks import TASKS


def test_the_loss_is_the_mean_of_both_ends_over_allowed_places() -> None:
    columns = answer_columns([([7, 8, 9], (1, 2)), ([5, 6], (0, 0))])
    filler = {name: column.values[:0] for name, column in columns.items()}
    batch = collate([*rows_of(columns), filler], TASKS["answer"])
    logits = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(1))
    logits[1, 2] = 100.0  # padding
    sums, _ = SpanAnswers()(lambda _: logits, batch, 0)
    first, second = logits[0].log_softmax(0), logits[1, :2].log_softmax(0)
    expected = -(first[1, 0] + first[2, 1] + second[0, 0] + second[0, 1]) / 2
    assert torch.allclose(sums["nll"], expected)
    right = (logits[0].argmax(0).tolist() == [1, 2]) + (logits[1, :2].argmax(0).tolist() == [0, 0])
    assert int(sums["right"]) == right
    assert SpanAnswers().count(batch) == {"nll": 2}
