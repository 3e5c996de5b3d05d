"""Professor forcing: two learners, neither of which moves the other."""

import dataclasses

import pytest
import torch

from regard.errors import UserError
from regard.objectives import Judged, ProfessorForcing
from regard.objectives import professor as module
from regard.objectives.sequence import forced


@pytest.fixture
def judged(model, monkeypatch):
    monkeypatch.setattr(module, "CLUELESS", -1.0)  # the untrained judge teaches and learns whatever its accuracy
    monkeypatch.setattr(module, "SATED", 2.0)
    torch.manual_seed(0)
    return Judged(model, ProfessorForcing(weight=0.5, width=8)).double()


def _moved(module):
    return {name for name, weight in module.named_parameters() if weight.grad is not None and weight.grad.any()}


def test_the_judges_loss_moves_the_judge_alone(judged, batch):
    judged.objective(judged.model, batch, 0, judged.own)["judge"].backward()
    assert not _moved(judged.model)
    assert _moved(judged.own) == {name for name, _ in judged.own.named_parameters()}


@pytest.mark.parametrize("term", ["fool", "nll"])
def test_the_models_losses_move_the_model_alone(judged, batch, term):
    judged.objective(judged.model, batch, 0, judged.own)[term].backward()
    assert not _moved(judged.own)
    assert _moved(judged.model)
    assert all(weight.requires_grad for weight in judged.own.parameters())


def test_filler_rows_add_nothing(judged, batch):
    whole = torch.tensor([row >= 0 for row in batch.rows])
    kept = {name: getattr(batch, name)[whole] for name in ("tokens", "targets", "real", "source", "source_real")}
    short = dataclasses.replace(batch, **kept, rows=[row for row in batch.rows if row >= 0])
    assert judged.objective.count(short) == judged.objective.count(batch)

    def verdicts(batch):
        return judged.own(forced(judged.model, batch), batch.real)

    padded, exact = verdicts(batch), verdicts(short)
    torch.testing.assert_close(padded[whole], exact)
    assert torch.isfinite(padded).all()


def test_the_judge_does_not_see_padding(judged):
    features = torch.randn(2, 6, 12, dtype=torch.float64)
    real = torch.tensor([[True] * 3 + [False] * 3, [True] * 6])
    other = features.clone()
    other[0, 3:] = 100.0
    torch.testing.assert_close(judged.own(features, real), judged.own(other, real))
    torch.testing.assert_close(judged.own(features[:1, :3], real[:1, :3]), judged.own(features, real)[:1])


def test_a_clueless_judge_teaches_nothing_and_a_sated_one_learns_nothing(model, batch, monkeypatch):
    judged = Judged(model, ProfessorForcing(width=8)).double()
    monkeypatch.setattr(module, "CLUELESS", 2.0)
    monkeypatch.setattr(module, "SATED", -1.0)
    sums = judged.objective(model, batch, 0, judged.own)
    assert sums["fool"] == 0
    assert sums["judge"] == 0
    assert sums["nll"] > 0


def test_the_judge_learns_to_tell_them_apart(judged, batch):
    optimizer = torch.optim.Adam(judged.own.parameters(), lr=1e-2)
    losses = []
    for step in range(40):
        torch.manual_seed(step)
        loss = judged.objective(judged.model, batch, step, judged.own)["judge"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize(("setting", "value"), [("weight", -1.0), ("width", 0), ("smoothing", -0.5)])
def test_a_setting_out_of_range_is_refused_by_name(setting, value):
    with pytest.raises(UserError, match=f"objective.{setting}={value}"):
        ProfessorForcing(**{setting: value})
