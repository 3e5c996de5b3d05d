"""Sums of cross-entropy."""

import math

import pytest
import torch
from torch.nn import functional as F

from encoded import text_batch
from regard import UserError
from regard.data.batches import IGNORED, Batch
from regard.models import GptConfig, LstmnConfig, RecurrentLmConfig, Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.objectives.loss import cross_entropy, log_uniform, sampled_loss, token_loss
from regard.objectives.objective import HasLinearReadout
from regard.objectives.sequence import forced


class ByReadout:
    """A model of which only the logits are known, not what they are the product of."""

    def __init__(self, model):
        self.readout = model.readout


def _manual(model, batch, smoothing):
    """The definition, one target at a time."""
    logps = F.log_softmax(model(batch), dim=-1)
    total = 0.0
    for row, targets in enumerate(batch["targets"].tolist()):
        for t, target in enumerate(targets):
            if batch.real["tokens"][row, t]:
                nll, even = -logps[row, t, target], -logps[row, t].mean()
                total = total + (1 - smoothing) * nll + smoothing * even
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_token_loss_is_the_sum_over_real_targets(model, batch, smoothing):
    found = token_loss(model, forced(model, batch)[0], batch["targets"], smoothing)
    torch.testing.assert_close(found, _manual(model, batch, smoothing), rtol=0, atol=1e-10)


def _both_ways(voice, model, batch, smoothing=0.1):
    """The loss, and the gradients of all weights."""
    model.zero_grad()
    loss = token_loss(voice, forced(model, batch)[0], batch["targets"], smoothing)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def _assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-10)
    for name in expected[1]:
        torch.testing.assert_close(found[1][name], expected[1][name], rtol=0, atol=1e-10)


def test_a_product_gives_the_loss_and_gradients_of_the_readout(model, batch, monkeypatch):
    expected = _both_ways(ByReadout(model), model, batch)
    monkeypatch.setattr(model, "readout", None)  # is not asked for
    _assert_same(_both_ways(model, model, batch), expected)


def test_clusters_give_the_loss_and_gradients_of_their_log_probabilities():
    torch.manual_seed(6)
    settings = {"softmax": "adaptive", "cutoffs": (4, 7), "divide": 2, "embed": 8}
    model = (
        GptConfig(width=8, heads=2, layers=1, inner=8, vocab=11, context=8, dropout=0.0, **settings).build().double()
    )
    batch = text_batch([[4, 5], [7, 8, 9, 10], [6, 5, 7]])
    for smoothing in (0.0, 0.1):  # with smoothing every token has a share in every cluster, and all logits are made
        found = _both_ways(model, model, batch, smoothing)
        _assert_same(found, _both_ways(ByReadout(model), model, batch, smoothing))
        torch.testing.assert_close(found[0], _manual(model, batch, smoothing).detach(), rtol=0, atol=1e-10)


def test_dropout_is_the_same_both_ways(batch):
    """A gradient made beside the loss must drop what the loss did, or it is of another function."""
    model = Seq2SeqConfig(source_vocab=10, target_vocab=11, width=12, embed=6, dropout=0.5).build().double()
    features = torch.randn(*batch["tokens"].shape, 12, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(5)
    token_loss(model, features, batch["targets"].clamp(min=0)).backward()
    assert features.grad is not None
    dropped = (features.grad == 0).double().mean()  # a feature that was dropped has no gradient
    assert abs(float(dropped) - 0.5) < 0.08


@pytest.mark.parametrize("name", ["seq2seq", "lstmn"])
def test_every_speaker_says_what_its_logits_are_the_product_of(name):
    configs = {"seq2seq": Seq2SeqConfig(source_vocab=10, target_vocab=11), "lstmn": LstmnConfig(vocab=11)}
    model = configs[name].build().eval()
    assert isinstance(model, HasLinearReadout)
    assert not isinstance(ByReadout(model), HasLinearReadout)
    features = torch.randn(2, 3, model.config.width)
    assert torch.equal(model.readout(features), F.linear(*model.product(features)))


def test_cross_entropy_is_computed_in_float32():
    logits = torch.tensor([[100.0, 100.25]], dtype=torch.bfloat16)
    found = cross_entropy(logits, torch.tensor([0]))
    assert found.dtype == torch.float32
    gap = float(logits[0, 1]) - float(logits[0, 0])
    assert abs(float(found) - math.log1p(math.exp(gap))) < 1e-6


def test_a_sampled_softmax_estimates_the_whole_one() -> None:
    """By its definition for given tokens; and with many tokens, its loss and gradient are those of the softmax."""
    x, weight, bias = torch.randn(4, 3, requires_grad=True), torch.randn(7, 3), torch.randn(7)
    targets, drawn = torch.tensor([0, 5, IGNORED, 2]), torch.tensor([0, 3, 3, 5])
    expected = torch.zeros(())
    for row, target in enumerate(targets.tolist()):
        if target == IGNORED:
            continue
        z = weight @ x[row] + bias
        total = z[target].exp()
        for k in drawn.tolist():
            if k != target:
                total = total + z[k].exp() / (4 * math.log((k + 2) / (k + 1)) / math.log(8))
        expected = expected + total.log() - z[target]
    torch.testing.assert_close(sampled_loss(x, weight, bias, targets, drawn), expected)
    many = log_uniform(7, 400_000, x.device)
    assert many.min() == 0
    assert many.max() == 6
    loss = sampled_loss(x, weight, bias, targets, many)
    whole = cross_entropy(x @ weight.T + bias, targets)
    torch.testing.assert_close(loss, whole, atol=2e-2, rtol=0)
    (one,), (other,) = torch.autograd.grad(loss, x), torch.autograd.grad(whole, x)
    torch.testing.assert_close(one, other, atol=2e-2, rtol=0)


def test_training_samples_and_evaluation_does_not() -> None:
    model = RecurrentLmConfig(vocab=50, width=4, embed=4, layers=1, dropout=0.0).build()
    tokens = torch.randint(50, (2, 6))
    batch = Batch({"tokens": tokens, "targets": tokens}, {"tokens": tokens >= 0}, {"targets": 12})
    whole, sampled = TeacherForcing(), TeacherForcing(sampled=5)
    with torch.no_grad():
        assert whole(model, batch, 0)[0]["nll"] == sampled(model, batch, 0)[0]["nll"]
    assert whole(model, batch, 0)[0]["nll"] != sampled(model, batch, 0)[0]["nll"]
    with pytest.raises(UserError, match=r"objective.sampled=-1: give 0 \(the whole softmax\) or more"):
        TeacherForcing(sampled=-1)
