"""The objectives of Show, Attend and Tell, against their formulas, and REINFORCE against the exact gradient."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from encoded import pair_batch
from regard.data.batches import IGNORED, Batch
from regard.errors import UserError
from regard.models import CaptionerConfig, Seq2SeqConfig
from regard.objectives import Captioning, HardAttention
from regard.objectives.captioning import Baseline, doubly_stochastic
from regard.readers import Hard, Mixed
from regard.recording import record, watch

SOFT = CaptionerConfig(image=4, target_vocab=9, width=6, embed=4, encoder="features", grid=2, dropout=0.0)
HARD = replace(SOFT, attention="hard")
PATH = "decoder.attention"


def built(config: CaptionerConfig) -> Any:
    torch.manual_seed(1)
    return config.build().double()


def batch_of(*captions: list[int]) -> Batch:
    said = pair_batch([([4], caption) for caption in captions])
    features = torch.rand(len(captions), 4, 4, generator=torch.Generator().manual_seed(2)).double()
    real = torch.ones(len(captions), 4, dtype=torch.bool)
    fields, counts = {**said.fields, "source": features}, {**said.counts, "source": real.numel()}
    return replace(said, fields=fields, real={**said.real, "source": real}, counts=counts)


def logps_of(model: Any, batch: Batch) -> Tensor:
    """log p(y) of each caption, (B,)."""
    logits, targets = model(batch), batch["targets"]
    return -F.cross_entropy(logits.mT, targets, ignore_index=IGNORED, reduction="none").sum(1)


def gradients(value: Tensor, model: Any) -> list[Tensor]:
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True, materialize_grads=True)
    return list(found)


def test_the_doubly_stochastic_term_is_its_formula() -> None:
    model, batch = built(SOFT), batch_of([5, 6, 7], [8])
    with record(model) as tape:
        logps = logps_of(model, batch)
    alpha, lengths = tape[PATH], [4, 2]  # of the captions with their ends
    expected = sum(
        (1 - sum(alpha[row, t, i] for t in range(length))) ** 2 for row, length in enumerate(lengths) for i in range(4)
    )
    sums, state = Captioning(doubly=0.5)(model, batch, 0)
    assert state is None
    torch.testing.assert_close(sums["doubly"].detach(), expected)
    torch.testing.assert_close(sums["nll"], -logps.sum())
    assert Captioning(doubly=0.5).weights == {"nll": 1.0, "doubly": 0.5}
    assert Captioning().count(batch) == {"nll": 6, "doubly": 6}
    assert any(float(each.abs().max()) > 0 for each in gradients(sums["doubly"], model))


def test_without_its_term_it_is_teacher_forcing() -> None:
    model, batch = built(replace(SOFT, decoder="once")), batch_of([5, 6, 7], [8])
    Captioning(doubly=0.0).modules(model, {})
    sums, _ = Captioning(doubly=0.0)(model, batch, 0)
    torch.testing.assert_close(sums["nll"], -logps_of(model, batch).sum())
    assert sums["doubly"] == 0


def test_a_filler_row_has_no_doubly_stochastic_term() -> None:
    weights, real = torch.full((2, 3, 4), 0.25), torch.tensor([[True, True, False], [False] * 3])
    assert doubly_stochastic(weights, real) == pytest.approx(4 * 0.5**2)


@pytest.mark.parametrize("baseline", [0.0, -3.0])
def test_the_estimate_of_hard_attention_is_the_exact_gradient(baseline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the estimate over all cells that could be sampled, whatever the baseline is: 4² for two steps."""
    model, batch = built(HARD), batch_of([5])
    objective = HardAttention(entropy=0.0, expected=0.0)
    own = Baseline(0.9).double()
    expected, mean = torch.zeros((), dtype=torch.double), [torch.zeros_like(each) for each in model.parameters()]
    for cells in product(range(4), repeat=2):
        for_loss, for_exact = iter(cells), iter(cells)
        monkeypatch.setattr(Hard, "forward", lambda self, w, it=for_exact: one_hot(next(it), w))
        with watch(model, PATH) as watched:
            logp = logps_of(model, batch)[0]
        chance = torch.stack([watched.weights[PATH][0, t, cell] for t, cell in enumerate(cells)]).prod()
        expected = expected + chance * logp
        monkeypatch.setattr(Hard, "forward", lambda self, w, it=for_loss: one_hot(next(it), w))
        own.mean.fill_(baseline)
        own.started.fill_(True)
        sums, _ = objective(model, batch, 0, own)
        loss = sum(weight * sums[term] for term, weight in objective.weights.items())
        assert float(own.mean) == pytest.approx(0.9 * baseline + 0.1 * float(logp.detach()) / 2)  # two words
        for total, each in zip(mean, gradients(loss, model)):
            total += float(chance.detach()) * each
    for found, exact in zip(mean, gradients(expected, model)):
        torch.testing.assert_close(-found, exact)


def one_hot(cell: int, weights: Tensor) -> Tensor:
    return F.one_hot(torch.tensor(cell), weights.shape[-1]).to(weights).expand_as(weights)


def test_a_caption_that_reads_the_expected_value_is_soft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a caption has no part in REINFORCE, and the gradient of soft attention."""
    model, batch = built(HARD), batch_of([5, 6], [7])
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.tensor([0.2, 0.9]))  # below 0.5: the first
    sums, _ = HardAttention(entropy=0.0)(model, batch, 0)
    soft = built(SOFT)
    with watch(soft) as watched:
        logps = logps_of(soft, batch)
    entropy = -(watched.weights[PATH] * watched.weights[PATH].log()).sum(-1)  # (B, T)
    assert sums["nll"] > -logps[0]
    assert sums["reinforce"] != 0
    assert sums["entropy"] > entropy[0, :3].sum()
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.tensor([0.2, 0.2]))
    sums, _ = HardAttention()(model, batch, 0)
    torch.testing.assert_close(sums["nll"], -logps.sum())
    torch.testing.assert_close(sums["entropy"], entropy[0, :3].sum() + entropy[1, :2].sum())
    assert sums["reinforce"] == 0
    for one, other in zip(gradients(sums["nll"], model), gradients(-logps.sum(), soft)):
        torch.testing.assert_close(one, other)


def test_the_baseline_is_a_moving_average_of_the_words_that_were_sampled() -> None:
    baseline, sampled = Baseline(0.9), torch.tensor([True, True, False])
    assert float(baseline(torch.tensor([-2.0, -4.0, -90.0]), sampled)) == pytest.approx(-3)  # the first mean
    assert float(baseline(torch.tensor([-8.0, -8.0, -90.0]), sampled)) == pytest.approx(-3)
    assert float(baseline.eval()(torch.tensor([-8.0, -8.0, -90.0]), sampled)) == pytest.approx(-3.5)
    assert float(baseline(torch.zeros(3), sampled)) == pytest.approx(-3.5)


def test_a_mixed_reader_is_soft_in_some_rows() -> None:
    weights = torch.tensor([[[0.2, 0.8]], [[0.3, 0.7]]])
    mixed = Mixed(torch.tensor([True, False])).eval()
    assert mixed(weights).tolist() == [[[pytest.approx(0.2), pytest.approx(0.8)]], [[0.0, 1.0]]]


def test_the_reader_of_the_model_is_kept() -> None:
    model = built(HARD)
    HardAttention()(model, batch_of([5]), 0)
    assert isinstance(model.decoder.attention.reader, Hard)


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        (
            Captioning,
            replace(SOFT, decoder="once"),
            "no attention to a source; set model.decoder=attend, or objective.doubly=0",
        ),
        (Captioning, HARD, "model.attention=hard; set objective=hard"),
        (HardAttention, SOFT, "objective=hard: the model has no hard attention; set model.attention=hard"),
        (HardAttention, Seq2SeqConfig(source_vocab=5, target_vocab=5, width=4, embed=4), "no hard attention"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(make: Any, config: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make().modules(config.build(), {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entropy": -1.0}, "objective.entropy=-1.0: give 0"),
        ({"expected": 1.0}, "objective.expected=1.0: give 0 or more, below 1"),
        ({"decay": 2.0}, "objective.decay=2.0"),
    ],
)
def test_settings_are_checked(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        HardAttention(**settings)
