"""Regression and independent answers: the loss is the definition, and padding counts for nothing."""

import math

import torch
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.objectives import BinaryAnswers, Regression


class Answers(nn.Module):
    """A model whose answer is a parameter."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = nn.Parameter(answer)

    def forward(self, batch: Batch) -> Tensor:
        return self.answer


def test_the_squared_error_of_numbers_that_are_there() -> None:
    model = Answers(torch.tensor([1.0, 5.0, -2.0]))
    batch = Batch({"targets": torch.tensor([3.0, math.nan, -1.0])}, counts={"targets": 2})
    sums, state = Regression()(model, batch, 0)
    sums["nll"].backward()
    assert (sums["nll"].item(), sums["squared"].item(), state) == (4.0 + 1.0, 5.0, None)
    assert model.answer.grad is not None
    assert model.answer.grad.tolist() == [-4.0, 0.0, -2.0]
    assert Regression().count(batch) == {"nll": 2}


def test_the_loss_of_a_place_is_the_sum_over_its_keys() -> None:
    logits, keys = torch.randn(2, 3, 4), (torch.rand(2, 3, 4) < 0.5).float()
    keys[1, 2] = math.nan
    model = Answers(logits.clone())
    sums, _ = BinaryAnswers()(model, Batch({"targets": keys}, counts={"targets": 5}), 0)
    sums["nll"].backward()
    p = logits.double().sigmoid()
    by_hand = -(keys * p.log() + (1 - keys) * (1 - p).log())  # NaN at the padding
    torch.testing.assert_close(sums["nll"].double(), by_hand.nansum(), atol=1e-5, rtol=0)
    assert model.answer.grad is not None
    assert model.answer.grad.isfinite().all()
    assert not model.answer.grad[1, 2].any()
