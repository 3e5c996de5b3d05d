"""A mask that forbids nothing is not given: the host counts what is real, and no model is told of padding there."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from regard.data.batches import Batch, Batches, FillFrame, LabelFrame, LanguageFrame, TranslationFrame, collate
from regard.data.special_tokens import SpecialTokens
from regard.models import BertConfig, Seq2SeqConfig, TransformerConfig
from regard.objectives import MaskedTokens, ProfessorForcing, TeacherForcing
from regard.objectives.objective import LossModule

MARKS = SpecialTokens(pad=0, bos=None, eos=None, mask=3, prefix=1, suffix=2)
SMALL = {"width": 8, "heads": 2, "layers": 2, "inner": 12, "dropout": 0.0}
BERT = BertConfig(**SMALL, vocab=12, mask=3, specials=(0, 1, 2, 3))
SIDES = {"source_vocab": 12, "target_vocab": 12}
CASES = {
    "bert": (BERT, MaskedTokens(0.4), FillFrame(MARKS)),
    "transformer": (TransformerConfig(**SMALL, **SIDES), TeacherForcing(), TranslationFrame()),
    "seq2seq": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0), TeacherForcing(), TranslationFrame()),
    "local": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0, window="local-p"), TeacherForcing(0.5),
              TranslationFrame()),
    "professor": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0), ProfessorForcing(width=4), TranslationFrame()),
}  # fmt: skip


def made(frame, lengths: list[int]) -> Batch:
    return collate([([4 + n % 7 for n in range(length)],) * 2 for length in lengths], frame)


@pytest.mark.parametrize("frame", [FillFrame(MARKS), LanguageFrame(), TranslationFrame()])
def test_padding_is_told_of_where_there_is_some(frame):
    whole, ragged = made(frame, [9, 9, 9]), made(frame, [9, 4, 9])
    assert whole.real.all()
    assert whole.visible is None
    assert ragged.visible is ragged.real
    assert whole.source_visible is None
    assert ragged.source_visible is ragged.source_real


def test_each_side_is_whole_by_itself():
    batch = collate([([4, 5], [6]), ([5, 4], [7, 8, 9])])
    assert batch.visible is batch.real
    assert batch.source_visible is None


def test_filler_rows_are_padding():
    batches = Batches([([4] * 8, [5] * 7)] * 9, budget=64, seed=1, shuffle=False)
    first, last = batches.batch(0), batches.batch(1)
    assert first.visible is first.source_visible is None
    assert last.visible is last.real
    assert last.source_visible is last.source_real


def test_nobody_asks_the_tensors():
    """Tensors on `meta` have nothing to tell."""
    batch = made(TranslationFrame(), [9, 9]).to("meta")
    assert batch.visible is batch.source_visible is None


def test_a_count_of_classes_says_nothing_of_places():
    empty = collate([([], [1]), ([4], [0])], LabelFrame())  # of one place, which is empty in the first
    assert empty.target_count == empty.real.numel()
    assert empty.visible is empty.real


def test_what_nobody_has_counted_is_as_real_as_it_says():
    batch = replace(made(TranslationFrame(), [9, 9]), source_count=0)
    assert batch.source_visible is batch.source_real


@pytest.mark.parametrize("name", ["bert", "transformer"])
@pytest.mark.parametrize(("lengths", "masked"), [([12, 12], False), ([12, 10], True)])
def test_kernels_get_a_mask_only_for_padding(name, lengths, masked, monkeypatch):
    config, objective, frame = CASES[name]
    tables, sdpa = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *given, **named: tables.append(given[3]) or sdpa(*given, **named)
    )
    objective(config.build(), made(frame, lengths), 0)
    assert tables
    assert any(table is not None for table in tables) == masked


@pytest.mark.parametrize("name", CASES)
def test_the_loss_and_its_gradients_are_those_with_the_mask(name):
    config, objective, frame = CASES[name]
    torch.manual_seed(1)
    loss_module = LossModule(config.build(), objective).double()
    batch = made(frame, [9, 9, 9])
    found = []
    for given in (batch, replace(batch, target_count=0, source_count=0)):
        loss_module.zero_grad()
        torch.manual_seed(2)
        sums = loss_module(given, 0)
        sums.sum().backward()
        grads = [weight.grad.clone() for weight in loss_module.parameters() if weight.grad is not None]
        found.append([sums.detach(), *grads])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)
