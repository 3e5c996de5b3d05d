"""Professor forcing: two learners, neither of which moves the other."""

import dataclasses

import pytest
import torch

from regard.data.fields import InputText, TargetText
from regard.data.streams import RunningText
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.objectives import LossModule, ProfessorForcing
from regard.objectives import professor as module
from regard.objectives.sequence import forced


@pytest.fixture
def loss_module(model, monkeypatch):
    monkeypatch.setattr(module, "MIN_ACCURACY", -1.0)  # the untrained judge teaches and learns whatever its accuracy
    monkeypatch.setattr(module, "MAX_ACCURACY", 2.0)
    torch.manual_seed(0)
    return LossModule(model, ProfessorForcing(weight=0.5, width=8)).double()


def _moved(module):
    return {name for name, weight in module.named_parameters() if weight.grad is not None and weight.grad.any()}


def test_the_judges_loss_moves_the_judge_alone(loss_module, batch):
    loss_module.objective(loss_module.model, batch, 0, loss_module.own)[0]["discriminate"].backward()
    assert not _moved(loss_module.model)
    assert _moved(loss_module.own) == {name for name, _ in loss_module.own.named_parameters()}


@pytest.mark.parametrize("term", ["fool", "nll"])
def test_the_models_losses_move_the_model_alone(loss_module, batch, term):
    loss_module.objective(loss_module.model, batch, 0, loss_module.own)[0][term].backward()
    assert not _moved(loss_module.own)
    assert _moved(loss_module.model)
    assert all(weight.requires_grad for weight in loss_module.own.parameters())


class Sure(module.Discriminator):
    """Knows that the first features are teacher-forced, and all others free-running."""

    asked = 0

    def forward(self, features, real):
        self.asked += 1
        return super().forward(features, real) + (5000.0 if self.asked == 1 else -5000.0)


def test_a_judge_that_is_never_wrong_rests(model, batch):
    """Its loss is 0 to the last digit, and moves nothing."""
    judge = Sure(model.config.width, 8).double()
    loss = ProfessorForcing()(model.double(), batch, 0, judge)[0]["discriminate"]
    loss.backward()
    assert loss == 0
    assert all(weight.grad is None or not weight.grad.any() for weight in judge.parameters())


def test_filler_rows_add_nothing(loss_module, batch):
    whole = torch.tensor([row >= 0 for row in batch.rows])
    fields, real = ({name: each[whole] for name, each in tensors.items()} for tensors in (batch.fields, batch.real))
    short = dataclasses.replace(batch, fields=fields, real=real, rows=[row for row in batch.rows if row >= 0])
    rows = int(whole.sum())  # the discriminator classifies two texts of each row
    expected = {"nll": batch.counts["targets"], "fool": rows, "discriminate": 2 * rows}
    assert loss_module.objective.count(short) == loss_module.objective.count(batch) == expected

    def verdicts(batch):
        return loss_module.own(forced(loss_module.model, batch)[0], batch.real["tokens"])

    padded, exact = verdicts(batch), verdicts(short)
    torch.testing.assert_close(padded[whole], exact)
    assert torch.isfinite(padded).all()


def test_the_judge_does_not_see_padding(loss_module):
    features = torch.randn(2, 6, 12, dtype=torch.float64)
    real = torch.tensor([[True] * 3 + [False] * 3, [True] * 6])
    other = features.clone()
    other[0, 3:] = 100.0
    torch.testing.assert_close(loss_module.own(features, real), loss_module.own(other, real))
    torch.testing.assert_close(loss_module.own(features[:1, :3], real[:1, :3]), loss_module.own(features, real)[:1])


def test_a_clueless_judge_teaches_nothing_and_a_sated_one_learns_nothing(model, batch, monkeypatch):
    loss_module = LossModule(model, ProfessorForcing(width=8)).double()
    monkeypatch.setattr(module, "MIN_ACCURACY", 2.0)
    monkeypatch.setattr(module, "MAX_ACCURACY", -1.0)
    sums, _ = loss_module.objective(model, batch, 0, loss_module.own)
    assert sums["fool"] == 0
    assert sums["discriminate"] == 0
    assert sums["nll"] > 0


def test_the_judge_learns_to_tell_them_apart(loss_module, batch):
    optimizer = torch.optim.Adam(loss_module.own.parameters(), lr=1e-2)
    losses = []
    for step in range(40):
        torch.manual_seed(step)
        loss = loss_module.objective(loss_module.model, batch, step, loss_module.own)[0]["discriminate"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_a_text_ends_with_the_eos_of_its_field(model):
    tokenizer = train_tokenizer("char", ["ab"], 10)
    eos = tokenizer.special_tokens.eos
    fields = {"source": InputText(tokenizer), "target": TargetText(tokenizer)}
    assert LossModule(model, ProfessorForcing(width=8), fields).own.eos == eos
    assert LossModule(model, ProfessorForcing(width=8), {"text": RunningText(tokenizer)}).own.eos == -1
    assert LossModule(model, ProfessorForcing(width=8)).own.eos == -1


@pytest.mark.parametrize(("setting", "value"), [("weight", -1.0), ("width", 0), ("smoothing", -0.5)])
def test_a_setting_out_of_range_is_refused_by_name(setting, value):
    with pytest.raises(UserError, match=f"objective.{setting}={value}"):
        ProfessorForcing(**{setting: value})
