"""Classes, and hops that look at different places."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.attention import Attention, Memory
from regard.data.batches import IGNORED, Batch
from regard.data.fields import LabelField
from regard.errors import UserError
from regard.objectives import Classification
from regard.scores import Dot


class Fixed(nn.Module):
    """A classifier with fixed attention weights."""

    def __init__(self, weights, logits):
        super().__init__()
        self.weights, self.logits, self.attention = weights, logits, Attention(Dot())
        self.config = SimpleNamespace(attention_rows=("hop 1", "hop 2"), tag_sequences=False)

    def forward(self, batch):
        logits = self.weights.log().clamp_min(-1e4)  # whose softmax is the weights
        keys = torch.eye(2).expand(3, -1, -1)
        self.attention(logits, Memory(keys, keys, batch.real["tokens"]))
        return self.logits


def _batch():
    tokens = torch.ones(3, 2, dtype=torch.long)
    real = torch.tensor([[True, True], [True, True], [False, False]])
    fields = {"tokens": tokens, "targets": torch.tensor([1, 0, IGNORED])}
    return Batch(fields, {"tokens": real}, {"tokens": 4, "targets": 2}, rows=[0, 1, -1])


def test_the_penalty_is_the_overlap_of_the_hops():
    weights = torch.zeros(3, 2, 2)
    weights[0] = torch.eye(2)  # each hop elsewhere: no penalty
    weights[1, :, 0] = 1  # both at the first token: A Aᵀ is all ones, off by 1 in two places
    logits = torch.randn(3, 4)
    sums, _ = Classification(penalty=0.5)(Fixed(weights, logits), _batch(), 0)
    assert float(sums["overlap"]) == pytest.approx(2.0)  # the filler row, which looks nowhere, is left out
    expected = F.cross_entropy(logits[:2], torch.tensor([1, 0]), reduction="sum")
    torch.testing.assert_close(sums["nll"], expected)
    assert int(sums["right"]) == int((logits[:2].argmax(dim=-1) == torch.tensor([1, 0])).sum())
    assert Classification(penalty=0.5).count(_batch()) == {"nll": 2, "overlap": 2}


def test_a_negative_penalty_is_refused():
    with pytest.raises(UserError, match=r"objective.penalty=-1"):
        Classification(penalty=-1.0)


class Logits(nn.Module):
    """A classifier whose logits are given."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.config = logits, SimpleNamespace(attention_rows=(), tag_sequences=False)

    def forward(self, batch):
        return self.logits


def test_class_weights_by_definition():
    labels = LabelField(("bad", "fine", "good"), counts=(6, 1, 3))
    balanced = Classification(class_weights="balanced").modules(Logits(None), {"label": labels})
    torch.testing.assert_close(balanced.weights, torch.tensor([10 / (3 * 6), 10 / (3 * 1), 10 / (3 * 3)]))
    given = Classification(class_weights=(1.0, 4.0, 2.0)).modules(Logits(None), {"label": labels})
    torch.testing.assert_close(given.weights, torch.tensor([1.0, 4.0, 2.0]) * 10 / (6 + 4 + 6))  # the mean is 1
    logits = torch.randn(3, 3)
    weighted = Classification(class_weights="balanced")
    sums, _ = weighted(Logits(logits), _batch(), 0, balanced)
    losses = -logits.log_softmax(-1)
    torch.testing.assert_close(sums["nll"], losses[0, 1] * balanced.weights[1] + losses[1, 0] * balanced.weights[0])
    assert Classification().modules(Logits(None), {"label": labels}) is None


@pytest.mark.parametrize(
    ("weights", "counts", "message"),
    [
        ((1.0, 2.0), (6, 1, 3), r"class_weights=1,2: 2 numbers for 3 classes; .* in this order: bad, fine, good"),
        ("balanced", (), "have no counts"),
    ],
)
def test_class_weights_that_do_not_fit(weights, counts, message):
    labels = LabelField(("bad", "fine", "good"), counts)
    with pytest.raises(UserError, match=message):
        Classification(class_weights=weights).modules(Logits(None), {"label": labels})


def test_a_class_weight_of_zero_is_refused():
    with pytest.raises(UserError, match=r"objective.class_weights=1.0,0.0: give a number above 0"):
        Classification(class_weights=(1.0, 0.0))
