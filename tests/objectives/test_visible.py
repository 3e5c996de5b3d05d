"""A batch without padding has no mask: the host counts the real tokens, and the model gets None."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from encoded import labelled_batch, pair_batch, pair_columns, rows_of, text_batch, whole_columns
from regard.data.batches import Batch, Batches, collate
from regard.data.corruption import MaskTokens
from regard.data.flat import Rows
from regard.data.tokenizers import SpecialTokens
from regard.models import BertConfig, Seq2SeqConfig, TransformerConfig
from regard.objectives import MaskedTokens, ProfessorForcing, TeacherForcing
from regard.objectives.objective import LossModule
from regard.tasks import TASKS

SPECIAL = SpecialTokens(pad=0, bos=None, eos=None, mask=3, prefix=1, suffix=2)
SMALL = {"width": 8, "heads": 2, "layers": 2, "inner": 12, "dropout": 0.0}
BERT = BertConfig(**SMALL, vocab=12, mask=3, specials=(0, 1, 2, 3))
SIDES = {"source_vocab": 12, "target_vocab": 12}
CASES = {
    "bert": (BERT, MaskedTokens(0.4), "masked"),
    "transformer": (TransformerConfig(**SMALL, **SIDES), TeacherForcing(), "translate"),
    "seq2seq": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0), TeacherForcing(), "translate"),
    "local": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0, window="local-p"), TeacherForcing(0.5),
              "translate"),
    "professor": (Seq2SeqConfig(**SIDES, width=8, embed=6, dropout=0.0), ProfessorForcing(width=4), "translate"),
}  # fmt: skip


def made(task: str, lengths: list[int]) -> Batch:
    texts = [[4 + n % 7 for n in range(length)] for length in lengths]
    if task == "translate":
        return pair_batch([(text, text) for text in texts])
    if task == "language":
        return text_batch(texts)
    rows = rows_of(whole_columns(texts, SPECIAL))
    return collate(MaskTokens(3, 12, SPECIAL.ids, 0.4)(Rows.of(rows), np.random.default_rng(0)), TASKS[task])


@pytest.mark.parametrize("task", ["masked", "language", "translate"])
def test_padding_is_given_where_there_is_some(task):
    whole, ragged = made(task, [9, 9, 9]), made(task, [9, 4, 9])
    for name in whole.real:
        assert whole.real[name].all()
        assert whole.visible(name) is None
        assert ragged.visible(name) is ragged.real[name]


def test_each_side_is_whole_by_itself():
    batch = pair_batch([([4, 5], [6]), ([5, 4], [7, 8, 9])])
    assert batch.visible("tokens") is batch.real["tokens"]
    assert batch.visible("source") is None


def test_filler_rows_are_padding():
    columns = pair_columns([([4] * 8, [5] * 7)] * 9)
    batches = Batches(columns, TASKS["translate"], budget=64, seed=1)
    first, last = sorted((batches.batch(0), batches.batch(1)), key=lambda batch: -1 in batch.rows)
    assert first.visible("tokens") is first.visible("source") is None
    assert last.visible("tokens") is last.real["tokens"]
    assert last.visible("source") is last.real["source"]


def test_the_tensors_are_not_read():
    """Tensors on `meta` have no values."""
    batch = made("translate", [9, 9]).to("meta")
    assert batch.visible("tokens") is batch.visible("source") is None


def test_a_count_of_classes_says_nothing_of_places():
    empty = labelled_batch([([], 1), ([4], 0)])  # of one place, which is empty in the first
    assert empty.counts["targets"] == empty.real["tokens"].numel()
    assert empty.visible("tokens") is empty.real["tokens"]


def test_an_input_without_a_count_keeps_its_mask():
    batch = replace(made("translate", [9, 9]), counts={})
    assert batch.visible("source") is batch.real["source"]


@pytest.mark.parametrize("name", ["bert", "transformer"])
@pytest.mark.parametrize(("lengths", "masked"), [([12, 12], False), ([12, 10], True)])
def test_kernels_get_a_mask_only_for_padding(name, lengths, masked, monkeypatch):
    config, objective, task = CASES[name]
    tables, sdpa = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *given, **named: tables.append(given[3]) or sdpa(*given, **named)
    )
    objective(config.build(), made(task, lengths), 0)
    assert tables
    assert any(table is not None for table in tables) == masked


@pytest.mark.parametrize("name", CASES)
def test_the_loss_and_its_gradients_are_those_with_the_mask(name):
    config, objective, task = CASES[name]
    torch.manual_seed(1)
    loss_module = LossModule(config.build(), objective).double()
    batch = made(task, [9, 9, 9])
    found = []
    for given in (batch, replace(batch, counts={})):
        loss_module.zero_grad()
        torch.manual_seed(2)
        sums, _ = loss_module(given, 0)
        sums.sum().backward()
        grads = [weight.grad.clone() for weight in loss_module.parameters() if weight.grad is not None]
        found.append([sums.detach(), *grads])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)
