"""Activation regularisation against its formula."""

from dataclasses import replace

import pytest
import torch

from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.models import RecurrentLmConfig, TwoDirectionsConfig
from regard.objectives import RegularisedActivations, TeacherForcing

CONFIG = RecurrentLmConfig(vocab=13, width=6, embed=6, tied=True, dropout=0.4, variational=True)


@pytest.fixture
def batch() -> Batch:
    tokens = torch.tensor([[4, 5, 6, 7, 8], [9, 10, 0, 0, 0]])
    real = torch.tensor([[True] * 5, [True, True, False, False, False]])
    targets = torch.tensor([[5, 6, 7, 8, 9], [10, 4, 0, 0, 0]]).masked_fill(~real, IGNORED)
    return Batch({"tokens": tokens, "targets": targets}, {"tokens": real}, {"tokens": 7, "targets": 7})


def test_the_terms_are_those_of_the_paper(batch: Batch) -> None:
    model, objective = CONFIG.build().double(), RegularisedActivations(ar=2.0, tar=0.5)
    torch.manual_seed(1)
    sums, _ = objective(model, batch, 0)
    torch.manual_seed(1)
    plain, _ = TeacherForcing()(model, batch, 0)
    torch.manual_seed(1)
    with torch.no_grad():
        states, _ = model.advance(batch["tokens"], model.start(rows=2))
        dropped = model.product(states).x
    assert not torch.equal(dropped, states)
    torch.testing.assert_close(sums["nll"], plain["nll"])
    places = [(0, t) for t in range(5)] + [(1, 0), (1, 1)]
    ar = sum(float(value) ** 2 for place in places for value in dropped[place]) / (7 * 6)
    pairs = [((0, t), (0, t + 1)) for t in range(4)] + [((1, 0), (1, 1))]
    tar = sum(float(value) ** 2 for a, b in pairs for value in states[b] - states[a]) / (5 * 6)
    counts = objective.count(batch)
    assert counts == {"nll": 7, "ar": 7, "tar": 5}
    assert sums["ar"].item() / counts["ar"] == pytest.approx(ar, rel=1e-6)
    assert sums["tar"].item() / counts["tar"] == pytest.approx(tar, rel=1e-6)
    assert objective.weights == {"nll": 1.0, "ar": 2.0, "tar": 0.5}


def test_two_directions_have_the_mean_of_their_penalties(batch: Batch) -> None:
    model = TwoDirectionsConfig(replace(CONFIG, dropout=0.0, direction="both")).build().double()
    sums, _ = RegularisedActivations()(model, batch, 0)
    halves = [RegularisedActivations()(half, part, 0)[0] for half, part in model.halves(batch)]
    for name in ("nll", "ar", "tar"):
        torch.testing.assert_close(sums[name], (halves[0][name] + halves[1][name]) / 2)


def test_what_does_not_fit_is_refused_by_name(batch: Batch) -> None:
    with pytest.raises(UserError, match=r"objective\.ar=-1: give 0 \(none\) or more"):
        RegularisedActivations(ar=-1)
    model = replace(CONFIG, softmax="adaptive", cutoffs=(5,)).build()
    with pytest.raises(UserError, match=r"objective=regularised: the model has an adaptive softmax"):
        RegularisedActivations()(model, batch, 0)
