"""Tensors that do not fit a model are refused by name before they reach it."""

from pathlib import Path

import pytest
import torch

from regard.errors import UserError
from regard.models import BertConfig, TransformerConfig
from regard.verbs import Loaded

SIZES = {"width": 8, "heads": 2, "layers": 1, "inner": 12, "context": 20}
TOKENS = torch.tensor([[5, 6, 7], [8, 9, 4]])


def loaded(config: BertConfig | TransformerConfig) -> Loaded:
    return Loaded(Path("here"), config.build().eval(), torch.device("cpu"))


def test_a_model_says_what_it_is_in_a_line() -> None:
    told = repr(loaded(BertConfig(vocab=13, **SIZES)))
    assert told.startswith("<Loaded here: a masked language model, Bert of ")
    assert told.endswith(" parameters, on cpu in float32>")


def test_a_mask_of_ones_and_zeros_is_one_of_truths() -> None:
    model, real = loaded(BertConfig(vocab=13, **SIZES)), torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert torch.equal(model.logits(TOKENS, real=real), model.logits(TOKENS, real=real.bool()))
    assert torch.equal(model.states(TOKENS, positions=torch.arange(3)[None]), model.states(TOKENS))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tokens": TOKENS + 9}, "tokens: 13 to 18 are not all ids of this model, whose ids are 0 to 12"),
        ({"tokens": TOKENS + 4}, "tokens: 8 to 13 are not all ids"),
        ({"tokens": TOKENS - 9}, "tokens: -5 to 0"),
        ({"tokens": TOKENS[0]}, r"tokens: should be whole numbers of shape \(rows, length\), not \(3,\) of int64"),
        ({"tokens": TOKENS.float()}, "of float32"),
        ({"tokens": [[3, 4, 5]]}, r"tokens: should be a tensor \(rows, length\), not a list; give torch.tensor"),
        ({"tokens": "the dog"}, r"tokens: .* not a str; give its ids: model.tokenizer.encode"),
        ({"real": [[1, 1, 1]]}, "real: should be a tensor"),
        ({"real": TOKENS[:, :2] > 0}, r"real: \(2, 2\) does not fit"),
        ({"segments": TOKENS}, "segments: 4 to 9 .* 0 to 1"),
        ({"positions": TOKENS + 90}, "positions: .* 0 to 19"),
        ({"source": TOKENS}, "source: this model does not read a source; leave source out"),
        ({"positions": TOKENS[:, :2]}, r"positions: \(2, 2\) does not fit tokens of shape \(2, 3\)"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, torch.Tensor], told: str) -> None:
    with pytest.raises(UserError, match=told):
        loaded(BertConfig(vocab=13, **SIZES)).states(**{"tokens": TOKENS, **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "source: this model has a source; give what it reads as source="),
        ({"source": TOKENS[:1]}, "source: has 1 rows, but tokens have 2"),
        ({"source": TOKENS + 90}, "source: 94 to 99"),
        ({"source": TOKENS, "source_real": TOKENS[:, :1] > 0}, "source_real: "),
    ],
)
def test_sources_too(given: dict[str, torch.Tensor], told: str) -> None:
    with pytest.raises(UserError, match=told):
        loaded(TransformerConfig(source_vocab=13, target_vocab=13, **SIZES)).logits(TOKENS, **given)
