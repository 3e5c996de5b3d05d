"""The dropout of Transformers: variational masks, and dropout of the last states."""

import pytest
import torch
from torch import Tensor

from regard.errors import UserError
from regard.layers.transformer import FeedForward, Shape
from regard.models.gpt import GptConfig

SMALL = {"width": 8, "heads": 2, "layers": 2, "inner": 16, "context": 8, "dropout": 0.0}
TOKENS = torch.arange(6).repeat(32, 1)


def _features(**settings: object) -> Tensor:
    model = GptConfig(vocab=3000, **{**SMALL, **settings}).build()
    return model.advance(TOKENS, model.start(rows=len(TOKENS)))[0]


def _same_at_all_tokens(mask: Tensor) -> bool:
    return torch.equal(mask, mask[:, :1].expand_as(mask))


@pytest.mark.parametrize("variational", [True, False])
def test_a_variational_mask_is_the_same_at_all_tokens_of_a_row(variational: bool) -> None:
    model = GptConfig(vocab=9, variational=variational, **{**SMALL, "dropout": 0.5, "output_dropout": 0.5}).build()
    model.embedding.tokens.weight.data.fill_(1.0)
    model.embedding.positions.weight.data.fill_(0.0)
    read = model.embedding(TOKENS, TOKENS)
    ones = torch.ones(32, 6, 8)
    summed = model.stack.blocks[0]._after(torch.zeros_like(ones), ones, torch.nn.Identity())
    model.stack.norm = None
    ended = model.stack._ended(ones)
    for x in (read, summed, ended):
        assert set(x.unique().tolist()) == {0.0, 2.0}
        assert _same_at_all_tokens(x) == variational
        assert len({tuple(row) for row in x[:, 0].tolist()}) > 16


def test_the_inner_layer_has_a_variational_mask_too() -> None:
    feed = FeedForward(Shape(width=8, heads=2, inner=16, feed_dropout=0.5, variational=True, activation="relu"))
    out = feed(torch.ones(32, 6, 8))
    assert _same_at_all_tokens(out)
    assert len({tuple(row) for row in out[:, 0].tolist()}) > 16


def test_the_last_states_are_dropped_in_training_alone() -> None:
    assert (_features(output_dropout=0.5) == 0).float().mean() > 0.4
    model = GptConfig(vocab=9, output_dropout=0.5, variational=True, **SMALL).build().eval()
    one, two = (model.advance(TOKENS, model.start(rows=len(TOKENS)))[0] for _ in range(2))
    assert torch.equal(one, two)
    assert (one == 0).float().mean() < 0.01


def test_a_dropout_of_all_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.output_dropout=1\.0: must be at least 0 and below 1"):
        GptConfig(output_dropout=1.0)
