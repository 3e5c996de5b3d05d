"""The contrastive objective: its loss by hand, what it leaves out, and what accumulation and several ranks add up."""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoded import related_columns, rows_of
from regard import UserError
from regard.data.batches import Batch, collate
from regard.heads import VectorHeadConfig, text_vectors
from regard.models import BertConfig, GptConfig, HeadedConfig
from regard.objectives import Contrastive
from regard.tasks import TASKS

Ids = list[int]
PAIRS: list[tuple[Ids, Ids]] = [([4], [5, 6]), ([6, 5, 4], [7]), ([8, 8], [9, 4])]


def batch_of(groups: Sequence[Sequence[Ids]], numbers: Sequence[Sequence[float]] = ()) -> Batch:
    return collate(rows_of(related_columns(groups, numbers)), TASKS["embed"])


class Table(nn.Module):
    """A vector for each text: the mean of the vectors of its tokens."""

    config = SimpleNamespace()

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(12, 6, dtype=torch.float64)

    def forward(self, batch: Batch) -> Tensor:
        return text_vectors(self.embedding(batch["tokens"]), batch.real["tokens"], "mean", False)


def sums(objective: Contrastive, batch: Batch, model: Any = None) -> dict[str, Tensor]:
    found: dict[str, Tensor] = objective(model or Table().requires_grad_(False), batch, 0)[0]
    return found


@torch.no_grad()
def by_hand(texts: Sequence[Tensor], candidates: Sequence[Sequence[Tensor]], temperature: float) -> float:
    """Σ −log softmax of the cosines of each text with its candidates, of which the first is right."""
    total = 0.0
    for text, others in zip(texts, candidates):
        cosines = torch.stack([F.cosine_similarity(text, one, dim=0) for one in others]) / temperature
        total += float(cosines.logsumexp(0) - cosines[0])
    return total


def vectors(batch: Batch) -> list[Tensor]:
    return list(Table()(batch).detach())


def test_the_loss_is_the_cross_entropy_of_cosines_in_the_batch() -> None:
    batch = batch_of(PAIRS)
    a, b, c, d, e, f = vectors(batch)
    found = sums(Contrastive(temperature=0.2), batch)
    forward = by_hand([a, c, e], [[b, d, f], [d, b, f], [f, b, d]], 0.2)
    assert float(found["nll"]) == pytest.approx(forward)
    back = by_hand([b, d, f], [[a, c, e], [c, a, e], [e, a, c]], 0.2)
    assert float(sums(Contrastive(0.2, symmetric=True), batch)["nll"]) == pytest.approx((forward + back) / 2)


def test_equal_texts_third_texts_and_pairs_that_do_not_belong_together() -> None:
    same = batch_of([PAIRS[0], ([6, 5, 4], PAIRS[0][1]), PAIRS[2]])
    a, b, c, _, e, f = vectors(same)
    expected = by_hand([a, c, e], [[b, f], [b, f], [f, b, b]], 0.05)
    assert float(sums(Contrastive(), same)["nll"]) == pytest.approx(expected)
    hard = batch_of([(*PAIRS[0], [9]), (*PAIRS[1], [])])
    a, b, h, c, d, _ = vectors(hard)
    assert float(sums(Contrastive(), hard)["nll"]) == pytest.approx(by_hand([a, c], [[b, d, h], [d, b, h]], 0.05))
    unlike = batch_of(PAIRS, [[5.0, 1.0], [1.0, 0.0], [4.0, 1.0]])
    a, b, c, d, e, f = vectors(unlike)
    assert float(sums(Contrastive(), unlike)["nll"]) == pytest.approx(by_hand([a, e], [[b, d, f], [f, b, d]], 0.05))
    assert Contrastive().count(unlike) == {"nll": 2}


def test_right_counts_the_pairs_whose_second_text_is_nearest() -> None:
    model = Table()
    with torch.no_grad():
        model.embedding.weight[4:10] = torch.eye(6)
    found = sums(Contrastive(), batch_of([([4], [4, 5]), ([6], [6, 7]), ([8], [4])]), model)
    assert int(found["right"]) == 2


def test_filler_rows_and_batches_without_negatives_add_nothing_and_have_finite_gradients() -> None:
    model = Table()
    columns = related_columns(PAIRS)
    filler = {name: column.values[:0] for name, column in columns.items()}
    filled = collate([*rows_of(columns), filler], TASKS["embed"])
    expected = sums(Contrastive(symmetric=True), batch_of(PAIRS), model)["nll"]
    found = sums(Contrastive(symmetric=True), filled, model)["nll"]
    assert float(found) == pytest.approx(float(expected))
    found.backward()
    assert model.embedding.weight.grad is not None
    assert model.embedding.weight.grad.isfinite().all()
    assert float(sums(Contrastive(), batch_of(PAIRS[:1]))["nll"]) == 0.0


def test_the_texts_of_another_batch_are_no_negatives() -> None:
    """Accumulated batches, and those of several ranks, have sums that are added; pairs meet only in their own batch."""
    pairs = [*PAIRS, ([3], [3, 9])]
    halves = [batch_of(pairs[:2]), batch_of(pairs[2:])]
    added = sum(float(sums(Contrastive(), half)["nll"]) for half in halves)
    assert added < float(sums(Contrastive(), batch_of(pairs))["nll"])
    assert sum(half.counts["targets"] for half in halves) == batch_of(pairs).counts["targets"]


def test_the_vectors_of_the_head_are_pooled_states() -> None:
    body = BertConfig(vocab=12, width=8, heads=2, layers=1, inner=8, context=16, dropout=0.0)
    batch = batch_of(PAIRS)
    for pool in ("mean", "max", "first", "last"):
        model = HeadedConfig(body, VectorHeadConfig(pool)).build().eval()  # type: ignore[arg-type]
        states, real = model.features(batch["tokens"], batch.real["tokens"]), batch.real["tokens"]
        kept = [row[there] for row, there in zip(states, real)]
        expected = {"mean": [one.mean(0) for one in kept], "max": [one.amax(0) for one in kept]}
        expected |= {"first": [one[0] for one in kept], "last": [one[-1] for one in kept]}
        torch.testing.assert_close(model(batch), F.normalize(torch.stack(expected[pool]), dim=-1))
        plain = replace(model.config, head=VectorHeadConfig(pool, normalise=False)).build().eval()  # type: ignore[arg-type]
        plain.load_state_dict(model.state_dict())
        torch.testing.assert_close(plain(batch), torch.stack(expected[pool]))


def test_settings_that_do_not_fit_are_refused() -> None:
    for temperature in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(UserError, match=r"objective\.temperature="):
            Contrastive(temperature)
    with pytest.raises(UserError, match=r"head\.pool=first"):
        VectorHeadConfig("first").for_body(GptConfig(width=8, heads=2))
    with pytest.raises(UserError, match=r"head\.longest=0"):
        VectorHeadConfig(longest=0)
    assert HeadedConfig(BertConfig(context=64), VectorHeadConfig(longest=20)).longest == 20
    assert HeadedConfig(BertConfig(context=16), VectorHeadConfig(longest=20)).longest == 16
