"""Classes, and hops that look at different places."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.attention import Attention, Memory
from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.objectives import Classification
from regard.scores import Dot


class Fixed(nn.Module):
    """A classifier with fixed attention weights."""

    def __init__(self, weights, logits):
        super().__init__()
        self.weights, self.logits, self.attention = weights, logits, Attention(Dot())
        self.config = SimpleNamespace(attention_rows=("hop 1", "hop 2"))

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
