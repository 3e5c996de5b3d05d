"""On a GPU: a recorded step is the step, goes on bit-equal after a stop, and never takes a bad gradient."""

import dataclasses

import pytest
import torch

from regard.data.batches import Batches
from regard.models import Seq2SeqConfig
from regard.objectives import Judged, ProfessorForcing, TeacherForcing
from regard.recipes import Plan
from regard.train import Diverged, train
from regard.train.optim import build_optimizer, optimizer_state, restore_optimizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PAIRS = [([4 + n % 9] * (2 + n % 17), [4 + n % 9] * (1 + n % 11)) for n in range(96)]
PLAN = Plan(steps=8, rate=1e-2, warmup=2, precision="float32", batch_tokens=256)


def _judged(objective, dropout: float = 0.0) -> Judged:
    torch.manual_seed(1)
    config = Seq2SeqConfig(source_vocab=16, target_vocab=16, width=32, embed=16, dropout=dropout)
    return Judged(config.build(), objective).cuda()


def _trained(objective, plan: Plan, dropout: float = 0.0) -> list[torch.Tensor]:
    judged = _judged(objective, dropout)
    for _ in train(judged, Batches(PAIRS, plan.batch_tokens, plan.seed), plan):
        pass
    return [weight.detach() for weight in judged.parameters()]


@pytest.mark.parametrize("objective", [TeacherForcing(smoothing=0.1), TeacherForcing(ratio=0.0)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_recorded_step_is_the_step(objective, accumulate):
    assert len(Batches(PAIRS, PLAN.batch_tokens, 1).shapes) > 1
    plan = dataclasses.replace(PLAN, accumulate=accumulate, optimizer="sgd")
    recorded, plain = (_trained(objective, dataclasses.replace(plan, capture=flag)) for flag in (True, False))
    for one, other in zip(recorded, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


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


@pytest.mark.parametrize("capture", [True, False])
def test_a_bad_gradient_is_never_taken(capture):
    judged = _judged(TeacherForcing())
    plan = dataclasses.replace(PLAN, capture=capture)
    steps = train(judged, Batches(PAIRS, plan.batch_tokens, plan.seed), plan)
    for _ in range(3):
        next(steps)
    bias = judged.model.readout_.bias
    with torch.no_grad():
        bias[4] = float("nan")
    good = [weight.detach().clone() for weight in judged.parameters()]
    with pytest.raises(Diverged, match="step 4"):
        list(steps)
    for before, after in zip(good, judged.parameters(), strict=True):
        assert torch.equal(before.nan_to_num(), after.nan_to_num())
