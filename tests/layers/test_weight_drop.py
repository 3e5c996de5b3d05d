"""The dropout of AWD-LSTM: against its definition, by its statistics, and without effect where it is off."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.cells import cell
from regard.layers.dropout import dropout_mask
from regard.layers.recurrent import KERNELS, Recurrent
from regard.models import RecurrentLmConfig

EXACT = {"atol": 1e-12, "rtol": 0.0}
PLAIN = RecurrentLmConfig(vocab=13, width=6, embed=6, hidden=9, layers=3, tied=True, dropout=0.0)
AWD = replace(
    PLAIN,
    dropout=0.4,
    input_dropout=0.3,
    hidden_dropout=0.2,
    embedding_dropout=0.25,
    weight_drop=0.5,
    variational=True,
)
TOKENS = torch.tensor([[4, 5, 6, 7, 5], [8, 4, 12, 11, 8]])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


@pytest.mark.parametrize("kind", KERNELS)
def test_a_dropped_stack_is_its_equations_with_matrices_and_masks_that_are_drawn_once(kind: str) -> None:
    rnn = Recurrent(kind, 4, 6, 3, dropout=0.3, hidden=9, weight_drop=0.5, variational=True).double()
    x, state = torch.randn(2, 7, 4, dtype=torch.double), torch.randn(2, 3, rnn.parts, 9, dtype=torch.double)
    state[:, 2, :, 6:] = 0
    torch.manual_seed(5)
    found, after = rnn.advance(x, state)
    torch.manual_seed(5)
    noise = rnn.noise(2, x)
    assert noise is not None
    for depth in range(3):
        parts: tuple[Tensor, ...] = tuple(state[:, depth, :, : rnn.widths[depth]].unbind(1))
        outputs = []
        for t in range(7):
            parts = cell(kind, x[:, t], parts, noise.weights[depth])
            outputs.append(parts[0])
        x = torch.stack(outputs, 1)
        torch.testing.assert_close(after[:, depth, :, : rnn.widths[depth]], torch.stack(parts, 1), **EXACT)
        if depth < 2:
            x = x * noise.masks[depth][:, None]  # the same mask at all steps
    torch.testing.assert_close(found, x, **EXACT)
    dropped = torch.autograd.grad(found.sum(), [w.hidden for w in map(rnn.weights, range(3))])
    for depth, gradient in enumerate(dropped):
        kept = noise.weights[depth].hidden != 0
        assert torch.equal(gradient != 0, kept), "only the entries that were used have a gradient"


def test_weight_drop_zeroes_its_part_of_the_hidden_matrices_alone_and_scales_the_rest() -> None:
    rnn = Recurrent("lstm", 40, 40, 2, weight_drop=0.3)
    first, second = rnn.noise(1, torch.zeros(1)), rnn.noise(1, torch.zeros(1))
    assert first is not None
    assert second is not None
    for depth in range(2):
        whole, some, other = rnn.weights(depth), first.weights[depth], second.weights[depth]
        assert some.input is whole.input
        zero = some.hidden == 0
        assert abs(zero.float().mean() - 0.3) < 0.02  # 4.4 standard deviations
        torch.testing.assert_close(some.hidden[~zero], whole.hidden[~zero] / 0.7)
        assert not torch.equal(zero, other.hidden == 0), "another call draws another mask"


def test_evaluation_and_dropout_that_is_off_draw_nothing_and_change_nothing() -> None:
    model = AWD.build().double()
    plain = PLAIN.build().double()
    plain.load_state_dict(model.state_dict())
    for each in (model.eval(), plain.train()):
        before = torch.get_rng_state()
        features, state = each.advance(TOKENS, each.start(rows=2))
        outputs, hidden = plain.rnn.definition(plain.embedding(TOKENS), plain.start(rows=2).hidden)
        torch.testing.assert_close(features, outputs, **EXACT)
        torch.testing.assert_close(state.hidden, hidden, **EXACT)
        torch.testing.assert_close(each.readout(features), features @ model.embedding.weight.T, **EXACT)
        assert torch.equal(torch.get_rng_state(), before)


def test_embedding_dropout_drops_a_word_wherever_it_is_and_scales_the_others() -> None:
    model = replace(PLAIN, vocab=3000, embedding_dropout=0.5).build()
    tokens = torch.arange(3000).repeat(2, 2)
    ratio = model._embedded(tokens) / model.embedding(tokens)  # (2, 6000, 6)
    words = ratio[0, :3000, 0]
    assert set(words.detach().round().tolist()) == {0.0, 2.0}
    assert abs((words == 0).float().mean() - 0.5) < 0.04  # 4.4 standard deviations
    torch.testing.assert_close(ratio, words.repeat(2)[None, :, None].expand_as(ratio), atol=1e-4, rtol=0)


def test_a_variational_mask_is_the_same_at_all_tokens_of_a_row_and_another_in_each_row() -> None:
    model = replace(PLAIN, dropout=0.5, variational=True).build()
    model.embedding.weight.data.fill_(1.0)
    read = model._embedded(torch.zeros(64, 5, dtype=torch.long))
    product = model.product(torch.ones(64, 5, 6)).x
    for x in (read, product):
        assert torch.equal(x, x[:, :1].expand_as(x))
        assert len({tuple(row) for row in x[:, 0].tolist()}) > 16
        assert abs(x.mean() - 1) < 0.25
    loose = replace(PLAIN, dropout=0.5).build()._embedded(torch.zeros(64, 5, dtype=torch.long))
    assert not torch.equal(loose, loose[:, :1].expand_as(loose))


def test_a_mask_is_zero_or_scaled() -> None:
    mask = dropout_mask(torch.zeros(1), (10_000,), 0.2)
    assert set(mask.tolist()) == {0.0, 1.25}
    assert abs(mask.mean() - 1) < 0.025


def test_padding_that_is_stepped_over_reads_with_the_same_masks() -> None:
    """With and without `real`, a call draws the same noise."""
    model = AWD.build().double()
    torch.manual_seed(7)
    fast, _ = model.advance(TOKENS, model.start(rows=2))
    torch.manual_seed(7)
    slow, _ = model.advance(TOKENS, model.start(rows=2), torch.ones_like(TOKENS, dtype=torch.bool))
    torch.testing.assert_close(slow, fast, **EXACT)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_drop": 1.0}, r"model\.weight_drop=1\.0: must be at least 0 and below 1"),
        ({"hidden_dropout": -0.1}, r"model\.hidden_dropout=-0\.1: must be"),
        ({"hidden": 4, "layers": 1}, r"model\.hidden=4: the width of the layers below the last; leave it at 0"),
        ({"numbers": 2, "vocab": 0, "embedding_dropout": 0.1}, r"model\.embedding_dropout=0\.1: the data has numbers"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(RecurrentLmConfig(vocab=13), **settings)
