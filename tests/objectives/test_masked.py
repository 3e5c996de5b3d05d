"""Masked language modelling: the loss of the masked places, and what is projected to compute it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import IGNORED, Batch, collate
from regard.data.corruption import MaskTokens
from regard.data.fields import InputText, MaskedText
from regard.data.flat import Row, Rows
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.layers.product import Product
from regard.models import BertConfig
from regard.objectives import MaskedTokens, masked
from regard.tasks import TASKS

PAD, BEGIN, END, MASK, VOCAB = 0, 1, 2, 3, 40
SPECIALS = (PAD, BEGIN, END, MASK)


class Reader(nn.Module):
    """Reads each token and the mean of all real ones; keeps the shapes that it has projected."""

    config = SimpleNamespace(segment_kinds=0)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.mix = nn.Linear(16, 16)
        self.projected: list[torch.Size] = []

    def features(self, tokens: Tensor, real: Tensor | None, segments: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        mean = (x * real[:, :, None]).sum(1, keepdim=True) / real.sum(1)[:, None, None].clamp_min(1)
        return torch.tanh(self.mix(x + mean))

    def product(self, features: Tensor) -> Product:
        self.projected.append(features.shape)
        return Product(features, self.embedding.weight, None)

    def readout(self, features: Tensor) -> Tensor:
        return F.linear(*self.product(features))


def rows_of(lengths: list[int]) -> list[Row]:
    """Rows of begin, so many tokens less two, and end; a length of 0 is a filler row."""
    random = np.random.default_rng(sum(lengths))
    texts = [random.integers(len(SPECIALS), VOCAB, max(length - 2, 0)) for length in lengths]
    return [{"text": np.array([BEGIN, *text, END] if n else [], np.int64)} for n, text in zip(lengths, texts)]


def made(lengths: list[int], objective: MaskedTokens, seed: int = 0) -> Batch:
    """The batch that the objective's corruption makes of such rows."""
    mask = MaskTokens(MASK, VOCAB, SPECIALS, objective.part, objective.kept, objective.random)
    return collate(mask(Rows.of(rows_of(lengths)), np.random.default_rng(seed)), TASKS["masked"])


LENGTHS = [20, 3, 0, 32, 7, 21]


@pytest.mark.parametrize(("part", "count"), [(0.15, 15), (0.5, 42), (1.0, 73)])
def test_targets_are_counted_once(part, count):
    objective = MaskedTokens(part)
    batch = made(LENGTHS, objective)
    assert objective.count(batch) == {"nll": count}
    assert int((batch["targets"] != IGNORED).sum()) == count


@pytest.mark.parametrize("part", [0.15, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_masked_places_and_only_they_are_projected(smoothing, part):
    model, objective = Reader().double(), MaskedTokens(part, smoothing=smoothing)
    batch = made(LENGTHS, objective)
    found = objective(model, batch, 0)[0]["nll"]
    assert model.projected == [torch.Size([6, 5 if part == 0.15 else 30, 16])]  # as for a row without padding
    logits = model.readout(model.features(batch["tokens"], batch.real["tokens"]))
    targets = batch["targets"]
    losses = F.cross_entropy(logits.mT, targets.clamp(min=0), reduction="none", label_smoothing=smoothing)  # (B, T)
    torch.testing.assert_close(found, losses[targets != IGNORED].sum(), rtol=0, atol=1e-10)


def test_the_segments_of_two_parts_are_read():
    torch.manual_seed(2)
    outputs = ("masked", "pooled", "next")
    model = BertConfig(vocab=VOCAB, width=16, heads=2, layers=1, inner=16, context=40, outputs=outputs).build().eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    objective, batch = MaskedTokens(sentences="next"), made(LENGTHS, MaskedTokens())
    segments = (torch.arange(batch["tokens"].shape[1]) > 6).long().expand_as(batch["tokens"])
    answers = torch.tensor([0, 1, IGNORED, 1, 0, 1])
    batch = replace(batch, fields={**batch.fields, "segments": segments, "next": answers})
    found = objective(model.double(), batch, 0)[0]
    features = model.features(batch["tokens"], batch.real["tokens"], segments)
    nll = F.cross_entropy(model.readout(features).mT, batch["targets"], reduction="sum", ignore_index=IGNORED)
    torch.testing.assert_close(found["nll"], nll, rtol=0, atol=1e-9)
    asked = F.cross_entropy(model.follows(features), answers, reduction="sum", ignore_index=IGNORED)
    torch.testing.assert_close(found["sentences"], asked, rtol=0, atol=1e-9)


def test_shapes_do_not_depend_on_contents():
    objective, model = MaskedTokens(), Reader()
    for batch in (made(LENGTHS, objective), made([5, 32, 11, 2, 0, 9], objective)):
        objective(model, batch, 0)
    assert len(set(model.projected)) == 1


def test_a_batch_of_filler_rows_has_no_loss():
    objective, model = MaskedTokens(), Reader()
    batch = made([0, 0], objective)
    assert objective.count(batch) == {"nll": 0}
    loss = objective(model, batch, 0)[0]["nll"]
    loss.backward()
    assert float(loss.detach()) == 0
    assert model.mix.weight.grad is not None
    assert all(not weight.grad.any() for weight in model.parameters() if weight.grad is not None)


def test_a_small_reader_learns_to_fill_in():
    """Texts of one token repeated: the tokens that are not masked give away the ones that are."""
    torch.manual_seed(7)
    model, objective = Reader(), MaskedTokens(0.3)
    mask = MaskTokens(MASK, VOCAB, SPECIALS, 0.3)
    rows: list[Row] = [{"text": np.array([BEGIN, *[token] * 10, END])} for token in range(len(SPECIALS), VOCAB)]
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for step in range(150):
        batch = collate(mask(Rows.of(rows), np.random.default_rng(step)), TASKS["masked"])
        loss = objective(model, batch, step)[0]["nll"] / objective.count(batch)["nll"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.9  # 3.7 at first


def test_an_evaluation_counts_the_masked_tokens_that_are_found(monkeypatch):
    monkeypatch.setattr(masked, "AT_ONCE", 7)  # several parts
    model, objective = Reader(), MaskedTokens(0.3)
    rows: list[Row] = [{"text": np.array([BEGIN, *[token] * 10, END])} for token in range(len(SPECIALS), VOCAB)]
    batch = collate(MaskTokens(MASK, VOCAB, SPECIALS, 0.3)(Rows.of(rows), np.random.default_rng(1)), TASKS["masked"])
    with torch.no_grad():
        found = objective(model, batch, 0)[0]["filled"]
        guesses = model.readout(model.features(batch["tokens"], batch.visible("tokens"))).argmax(-1)
    assert int(found) == int((guesses == batch["targets"]).sum())
    assert int(found) > 0
    assert "filled" not in objective(model, batch, 0)[0]  # it costs time in training


def test_the_corruption_has_the_ids_of_the_tokenizer():
    tokenizer = train_tokenizer("char", ["abc"], 40, mask="[MASK]")
    found = MaskedTokens(0.3, kept=0.2, random=0.05).corruption({"text": MaskedText(tokenizer)})
    special = tokenizer.special_tokens
    assert found == MaskTokens(special.mask, tokenizer.size, special.ids, 0.3, 0.2, 0.05)
    assert set(special.ids) >= {special.mask, special.pad, special.prefix, special.suffix}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"part": 0.0}, r"objective\.part=0\.0"),
        ({"part": 1.5}, r"objective\.part=1\.5"),
        ({"kept": -0.1}, r"objective\.kept=-0\.1"),
        ({"kept": 0.6, "random": 0.5}, r"objective\.kept=0\.6 and objective\.random=0\.5"),
        ({"smoothing": 1.0}, r"objective\.smoothing=1\.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        MaskedTokens(**settings)


def test_a_tokenizer_without_a_mask_is_refused():
    tokenizer = train_tokenizer("char", ["abc"], 40)
    with pytest.raises(UserError, match=r"no mask token; start from a model"):
        MaskedTokens().corruption({"text": InputText(tokenizer)})
