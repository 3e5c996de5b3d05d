"""The likeliest tokens against a softmax of everything, sorted: on a GPU, or in Triton's interpreter."""

import pytest
import torch
from torch import Tensor

from regard.kernels.ranking import likeliest
from tritons import DEVICE, GPU, INTERPRETED, interpret, starts_interpreter


def found(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if not INTERPRETED:
        return likeliest(logits, count)
    from regard.kernels.ranking_triton import launch_top_tokens

    return launch_top_tokens(logits, count)


@pytest.mark.parametrize(("vocab", "count"), [(7, 7), (300, 1), (5000, 5), (9000, 32), (37000, 9)])
def test_they_are_those_of_the_definition(vocab, count):
    torch.manual_seed(vocab)
    logits = 3 * torch.randn(4, vocab + 3, device=DEVICE)[:, :vocab]  # rows with something behind them
    logps, tokens = found(logits, count)
    expected, at = logits.double().log_softmax(1).sort(dim=1, descending=True)
    torch.testing.assert_close(logps.double(), expected[:, :count], rtol=0, atol=1e-4)
    assert torch.equal(tokens, at[:, :count])


def test_what_is_impossible_stays_so():
    logits = torch.full((2, 600), -torch.inf, device=DEVICE)
    logits[0, 5], logits[0, 590], logits[1, 400] = 1.0, 2.0, 0.0
    logps, tokens = found(logits, 3)
    assert tokens[0, :2].tolist() == [590, 5]
    assert tokens[1, 0] == 400
    assert logps[1, 0] == 0
    assert logps[:, 2].tolist() == [-torch.inf, -torch.inf]
    assert len(set(tokens[1].tolist())) == 3, "even of the impossible, none is named twice"


def test_a_row_of_nan_has_tokens_of_the_vocabulary():
    logits = torch.randn(3, 300, device=DEVICE)
    logits[0], logits[1, 7] = torch.nan, torch.nan
    logps, tokens = found(logits, 4)
    assert (tokens < 300).all()
    assert len(set(tokens[0].tolist())) == 4, "if they were one token, and this one forbidden, NaN would be hidden"
    assert logps[:2].isnan().all()
    assert logps[2].isfinite().all()


@pytest.mark.skipif(not (GPU or INTERPRETED), reason="torch leaves the order of equals open")
def test_of_equals_the_first():
    logps, tokens = found(torch.zeros(1, 1000, device=DEVICE), 4)
    assert tokens.tolist() == [[0, 1, 2, 3]]
    torch.testing.assert_close(logps.exp(), torch.full_like(logps, 1e-3))


@starts_interpreter
def test_programs_in_the_interpreter():
    interpret(__file__)
