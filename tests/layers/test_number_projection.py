"""The projection of numbers: the size of its initial weights follows from the training numbers."""

import torch

from regard.data.batches import Batch
from regard.layers.tokens import NumberProjection
from regard.recipes import KINDS, change, find_recipe
from regard.training.prepare import prepare


def batch_of(numbers: torch.Tensor, real: torch.Tensor) -> Batch:
    return Batch({"tokens": numbers}, {"tokens": real})


def test_outputs_have_a_mean_square_of_one_for_sparse_and_for_dense_numbers() -> None:
    for share in (0.05, 1.0):
        torch.manual_seed(1)
        numbers = (torch.rand(40, 30, 88) < share).float()
        layer = NumberProjection(88, 500)
        for part in numbers.split(7):
            layer.count_batch(batch_of(part, torch.ones(part.shape[:2], dtype=torch.bool)))
        layer.bias.data.zero_()
        assert abs(layer(numbers).square().mean() - 1) < 0.15


def test_padding_does_not_count_and_zeros_leave_the_weights() -> None:
    numbers, real = torch.full((2, 3, 4), 0.5), torch.tensor([[True, True, False], [True, False, False]])
    one, other, zeros = (NumberProjection(4, 5) for _ in range(3))
    before = zeros.weight.clone()
    one.load_state_dict(other.state_dict())
    one.count_batch(batch_of(numbers, real))
    other.count_batch(batch_of(torch.where(real[..., None], numbers, 9.0), real))
    zeros.count_batch(batch_of(torch.zeros(2, 3, 4), real))
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(zeros.weight, before)


def test_a_new_model_of_numbers_is_fitted_to_its_training_data() -> None:
    settings = ["data.train=20", "data.length=12", "plan.batch_tokens=120", "plan.device=cpu"]
    prepared = prepare(change(find_recipe("adding"), settings, KINDS))
    model = prepared.build().model
    (layer,) = (part for part in model.modules() if isinstance(part, NumberProjection))
    numbers = torch.cat([batch["tokens"][batch.real["tokens"]] for batch in prepared.batches.part(0, 1)])
    bound = (3 / (numbers.square().mean() * 2)).sqrt()  # of the uniform initial weights of two numbers
    assert 0.8 * bound < layer.weight.abs().max() <= bound * 1.0001
