"""Clusters of a vocabulary: the embedding by its definition, the softmax by torch's own, the loss by both."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED
from regard.errors import UserError
from regard.layers.adaptive import AdaptiveEmbedding, AdaptiveSoftmax, Clusters
from regard.models import SIZES, Gpt, GptConfig
from regard.objectives import loss
from regard.objectives.loss import cross_entropy, token_loss

CLUSTERS = Clusters(vocab=24, width=8, embed=8, cutoffs=(6, 14), divide=2)
SHAPES = {
    "one": Clusters(24, 8, 8),
    "one-narrow": Clusters(24, 8, 6),
    "even": Clusters(24, 8, 8, (6, 14)),
    "even-narrow": Clusters(24, 8, 6, (6, 14)),
    "divided": CLUSTERS,
    "divided-wide": Clusters(24, 8, 12, (1, 23), 3),
}
shaped = pytest.mark.parametrize("clusters", SHAPES.values(), ids=SHAPES)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def randomised(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


@shaped
def test_a_token_has_the_vector_of_its_cluster(clusters: Clusters) -> None:
    embedding = randomised(AdaptiveEmbedding(clusters))
    tokens = torch.randperm(24).view(4, 6)
    found = embedding(tokens)
    for token, vector in zip(tokens.flatten().tolist(), found.flatten(0, 1)):
        number = sum(token >= cutoff for cutoff in clusters.cutoffs)
        shared = len(embedding.tables) == 1
        table, row = (0, token) if shared else (number, token - clusters.spans[number][0])
        expected = embedding.tables[table].weight[row]
        if clusters.projected:
            expected = embedding.projections[table].weight @ expected
        torch.testing.assert_close(vector, expected)


def test_a_token_beyond_the_vocabulary_is_an_error() -> None:
    with pytest.raises(IndexError):
        AdaptiveEmbedding(CLUSTERS)(torch.tensor([24]))


def test_rows_of_other_clusters_have_no_gradient() -> None:
    embedding = randomised(AdaptiveEmbedding(CLUSTERS))
    embedding(torch.tensor([7, 13])).square().sum().backward()
    grads = [table.weight.grad for table in embedding.tables]
    assert (grads[0] == 0).all()
    assert (grads[2] == 0).all()
    assert grads[1].abs().sum(1).nonzero()[:, 0].tolist() == [1, 7]


def test_torch_says_the_same() -> None:
    theirs = randomised(nn.AdaptiveLogSoftmaxWithLoss(8, 24, [6, 14], div_value=2.0, head_bias=True))
    ours = randomised(AdaptiveSoftmax(CLUSTERS, tied=False, own=(0, 1, 2)))
    with torch.no_grad():
        ours.projections["0"].weight.copy_(torch.eye(8))
        ours.tables[0].weight.copy_(theirs.head.weight[:6])
        ours.others.weight.copy_(theirs.head.weight[6:])
        ours.biases[0].copy_(theirs.head.bias[:6])
        ours.others.bias.copy_(theirs.head.bias[6:])
        for number, tail in enumerate(theirs.tail, 1):
            ours.projections[str(number)].weight.copy_(tail[0].weight)
            ours.tables[number].weight.copy_(tail[1].weight)
            ours.biases[number].zero_()
    x = torch.randn(5, 8).double()
    found = ours(x, AdaptiveEmbedding(CLUSTERS)).logits()
    torch.testing.assert_close(found, theirs.log_prob(x))


@shaped
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("own", [(), (0,)], ids=["shared", "own"])
def test_chances_sum_to_one(clusters: Clusters, tied: bool, own: tuple[int, ...]) -> None:
    embedding, softmax = AdaptiveEmbedding(clusters), AdaptiveSoftmax(clusters, tied, own)
    said = randomised(softmax)(torch.randn(2, 3, 8).double(), randomised(embedding)).logits()
    assert said.shape == (2, 3, 24)
    torch.testing.assert_close(said.exp().sum(-1), torch.ones(2, 3).double())


def speaker(**settings: object) -> Gpt:
    config = GptConfig(vocab=24, width=8, heads=2, layers=1, inner=8, softmax="adaptive", dropout=0.0)
    return randomised(replace(config, **settings).build())


def gradients(total: Tensor, model: Gpt, features: Tensor) -> list[Tensor]:
    parameters = [*model.embedding.tokens.parameters(), *model.readout_.parameters()]
    return list(torch.autograd.grad(total, [features, *parameters], allow_unused=True, materialize_grads=True))


TARGETS = {
    "everywhere": torch.tensor([[0, 5, 6, 13], [14, 23, 7, 1]]),
    "frequent": torch.tensor([[0, 1, 2, 3], [4, 5, 5, 5]]),
    "rare": torch.tensor([[14, 15, 23, 20], [14, 14, 14, 14]]),
}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("clusters", [{}, {"cutoffs": (6, 14), "divide": 2}, {"cutoffs": (6, 14), "embed": 6}], ids=str)
def test_the_loss_is_that_of_the_log_probabilities(
    clusters: dict[str, object], targets: Tensor, smoothing: float
) -> None:
    model, features = speaker(**clusters), torch.randn(2, 4, 8).double().requires_grad_()
    real = torch.tensor([[True] * 4, [True, True, True, False]])
    found = token_loss(model, features, targets.masked_fill(~real, IGNORED), smoothing)
    expected = cross_entropy(model.readout(features)[real], targets[real], smoothing)
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, model, features), gradients(expected, model, features)):
        torch.testing.assert_close(one, other)


def test_a_batch_of_padding_costs_nothing() -> None:
    model = speaker(cutoffs=(6, 14))
    assert token_loss(model, torch.randn(2, 4, 8).double(), torch.full((2, 4), IGNORED)) == 0


def test_a_cluster_is_asked_only_by_those_who_mean_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = speaker(cutoffs=(6, 14)), []
    whole = loss.linear_cross_entropy

    def counted(x: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
        asked.append((len(x), len(weight)))
        return whole(x, weight, *rest)

    monkeypatch.setattr(loss, "linear_cross_entropy", counted)
    token_loss(model, torch.randn(2, 4, 8).double(), TARGETS["everywhere"])
    assert sorted(asked) == [(2, 10), (3, 8), (8, 8)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cutoffs": (6, 6)}, r"model\.cutoffs=6,6"),
        ({"cutoffs": (0,)}, r"model\.cutoffs=0"),
        ({"cutoffs": (24,)}, r"model\.cutoffs=24"),
        ({"cutoffs": (6, 14), "divide": 4}, r"model\.divide=4"),
        ({"divide": 0}, r"model\.divide=0"),
        ({"cutoffs": (6,), "projections": (2,)}, r"model\.projections"),
        ({"softmax": "adaptiv"}, r"model\.softmax=adaptiv.*adaptive"),
        ({"softmax": "plain", "embed": 4}, r"need model.softmax=adaptive"),
        ({"clamp": 3}, r"model\.clamp=3.*positions=xl"),
    ],
    ids=str,
)
def test_what_makes_no_clusters_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        speaker(**settings)


def test_the_published_size() -> None:
    with torch.device("meta"):
        model = SIZES["transformer-xl-large"].build()
    assert [tuple(table.weight.shape) for table in model.embedding.tokens.tables] == [
        (20000, 1024),
        (20000, 256),
        (160000, 64),
        (67735, 16),
    ]
    assert round(sum(p.numel() for p in model.parameters()), -6) == 285_000_000


def test_an_embedding_of_one_table_is_a_plain_one() -> None:
    embedding = AdaptiveEmbedding(Clusters(24, 8, 8))
    tokens = torch.tensor([[3, 4]])
    assert torch.equal(embedding(tokens), F.embedding(tokens, embedding.tables[0].weight))
