"""Structured self-attention, against the paper's equations, and what its penalty is made of."""

from dataclasses import replace

import pytest
import torch

from encoded import labelled_batch
from regard.data.batches import Batch
from regard.errors import UserError
from regard.models import StructuredConfig
from regard.recording import record, watch

CONFIG = StructuredConfig(vocab=11, labels=7, width=6, embed=4, hops=3, attention=5, dropout=0.0)
PAIRS = [([4, 5, 6, 7, 10], 4), ([10, 4], 5), ([9], 6)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def batch() -> Batch:
    return labelled_batch(PAIRS)


def test_it_is_its_paper(batch: Batch) -> None:
    """Lin et al. 2017, eq. 6-7, one text at a time: A = softmax(W₂ tanh(W₁ Hᵀ)), M = A H."""
    model = CONFIG.build().double()
    rows = []
    for text, _ in PAIRS:
        states, _ = model.encoder(model.embedding(torch.tensor([text])))
        h = states[0]  # (T, width)
        a = torch.softmax(model.hops @ torch.tanh(model.key.weight @ h.T), dim=1)  # (hops, T)
        m = (a @ h).flatten()
        rows.append(model.readout_(torch.relu(model.hidden(m))))
    torch.testing.assert_close(model(batch), torch.stack(rows), atol=1e-12, rtol=0.0)


def test_watched_weights_are_those_of_the_model(batch: Batch) -> None:
    model = CONFIG.build().double()
    with record(model) as tape, watch(model) as watched:
        logits = model(batch)
    weights = watched.weights["attention"]
    assert weights.shape == (3, 3, 5)
    torch.testing.assert_close(model(batch), logits, atol=1e-12, rtol=0.0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 3, dtype=torch.float64))
    assert (weights.masked_select(~batch.real["tokens"][:, None]) == 0).all()
    assert torch.equal(tape["attention"], weights.detach())


def test_the_penalty_can_teach_the_hops_to_part() -> None:
    """‖A Aᵀ − I‖² (eq. 8) reaches all that decides where to look; followed, it sends three hops to three places."""
    model, batch = CONFIG.build(), labelled_batch(PAIRS[:1])

    def penalty() -> torch.Tensor:
        with watch(model) as watched:
            model(batch)
        weights = watched.weights["attention"]
        return (weights @ weights.mT - torch.eye(3)).square().sum()

    before = penalty()
    before.backward()
    for parameter in (model.hops, model.key.weight, model.embedding.weight):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    assert model.readout_.weight.grad is None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(100):
        optimizer.zero_grad()
        penalty().backward()
        optimizer.step()
    assert penalty() < 0.1 * before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cell": "ltsm"}, r'model\.cell=ltsm: no such cell\. Did you mean "lstm"\?'),
        ({"width": 5}, r"model\.width=5: .*even"),
        ({"hops": 0}, r"model\.hops=0: must be at least 1"),
        ({"dropout": -1.0}, r"model\.dropout=-1\.0: must be at least 0"),
    ],
)
def test_a_wrong_setting_is_named_with_its_cure(setting: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(CONFIG, **setting)
