"""On a GPU: a recorded step is the step, goes on bit-equal after a stop, and never takes a bad gradient.

What is recorded apart can be told without one.
"""

import dataclasses

import pytest
import torch

from regard.data.batches import Batches, FillFrame, collate
from regard.data.special_tokens import SpecialTokens
from regard.models import BertConfig, Seq2SeqConfig
from regard.objectives import LossModule, MaskedTokens, ProfessorForcing, TeacherForcing
from regard.recipes import Plan
from regard.training import Diverged, train
from regard.training.capture import kind_of
from regard.training.optim import build_optimizer, optimizer_state, restore_optimizer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PAIRS = [([4 + n % 9] * (2 + n % 17), [4 + n % 9] * (1 + n % 11)) for n in range(96)]
PLAN = Plan(steps=8, rate=1e-2, warmup=2, precision="float32", batch_tokens=256)


class InTurn:
    """A few batches, again and again."""

    def __init__(self, *batches):
        self.batches = batches

    def batch(self, step):
        return self.batches[step % len(self.batches)]


def _judged(objective, dropout: float = 0.0) -> LossModule:
    torch.manual_seed(1)
    config = Seq2SeqConfig(source_vocab=16, target_vocab=16, width=32, embed=16, dropout=dropout)
    return LossModule(config.build(), objective).cuda()


def _trained(objective, plan: Plan, dropout: float = 0.0) -> list[torch.Tensor]:
    loss_module = _judged(objective, dropout)
    for _ in train(loss_module, Batches(PAIRS, plan.batch_tokens, plan.seed), plan):
        pass
    return [weight.detach() for weight in loss_module.parameters()]


def _texts(*lengths):
    return collate(
        [([], [5] * length) for length in lengths], FillFrame(SpecialTokens(0, None, None, mask=3, prefix=1, suffix=2))
    )


def test_batches_with_and_without_padding_are_recorded_apart():
    whole, ragged = _texts(6, 6), _texts(6, 5)
    assert whole.tokens.shape == ragged.tokens.shape
    assert kind_of(whole) == kind_of(_texts(6, 6)) != kind_of(ragged)
    pairs = [([4, 5], [6]), ([5, 4], [7, 8, 9])], [([4, 5], [6]), ([5], [7, 8, 9])]
    assert len({kind_of(collate(each)) for each in pairs}) == 2


@needs_gpu
def test_a_recorded_mask_is_that_of_the_batch():
    """Texts without padding and, of the same shape, with: each has its own recording."""
    weights = []
    for capture in (True, False):
        torch.manual_seed(1)
        config = BertConfig(width=32, heads=2, layers=2, inner=32, vocab=16, context=16, dropout=0.0, mask=3)
        loss_module = LossModule(config.build(), MaskedTokens(0.5, kept=0.0, random=0.0)).cuda()
        plan = dataclasses.replace(PLAN, capture=capture, optimizer="sgd")
        for _ in train(loss_module, InTurn(_texts(12, 12), _texts(12, 4)), plan):
            pass
        weights.append([weight.detach() for weight in loss_module.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("objective", [TeacherForcing(smoothing=0.1), TeacherForcing(ratio=0.0)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_recorded_step_is_the_step(objective, accumulate):
    assert len(Batches(PAIRS, PLAN.batch_tokens, 1).shapes) > 1
    plan = dataclasses.replace(PLAN, accumulate=accumulate, optimizer="sgd")
    recorded, plain = (_trained(objective, dataclasses.replace(plan, capture=flag)) for flag in (True, False))
    for one, other in zip(recorded, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("objective", [TeacherForcing(ratio=0.5), ProfessorForcing(width=16)])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_going_on_is_never_having_stopped(objective, precision):
    plan = dataclasses.replace(PLAN, precision=precision)
    batches = Batches(PAIRS, plan.batch_tokens, plan.seed)
    straight = _trained(objective, plan, dropout=0.3)
    first, second = _judged(objective, 0.3), _judged(objective, 0.3)
    early = build_optimizer(first, plan)
    steps = train(first, batches, plan, early)
    for _ in range(3):
        next(steps)
    second.load_state_dict(first.state_dict())
    late = build_optimizer(second, plan)
    restore_optimizer(late, second, {name: one.cpu() for name, one in optimizer_state(early, first).items()})
    for _ in train(second, batches, plan, late, start=3):
        pass
    for one, other in zip(second.parameters(), straight, strict=True):
        assert torch.equal(one, other)


@needs_gpu
@pytest.mark.parametrize("capture", [True, False])
def test_a_bad_gradient_is_never_taken(capture):
    loss_module = _judged(TeacherForcing())
    plan = dataclasses.replace(PLAN, capture=capture)
    steps = train(loss_module, Batches(PAIRS, plan.batch_tokens, plan.seed), plan)
    for _ in range(3):
        next(steps)
    bias = loss_module.model.readout_.bias
    with torch.no_grad():
        bias[4] = float("nan")
    good = [weight.detach().clone() for weight in loss_module.parameters()]
    with pytest.raises(Diverged, match="step 4"):
        list(steps)
    for before, after in zip(good, loss_module.parameters(), strict=True):
        assert torch.equal(before.nan_to_num(), after.nan_to_num())
