"""Checkpoints of the first GPT: differences from GPT-2. test_parity compares its outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from references import CASES, GPT, build
from safetensors.torch import load_file

from regard.errors import UserError
from regard.models import SIZES, GptConfig
from regard.pretrained import CHECKPOINT_TYPES, read_model, read_settings, write_model
from regard.pretrained.checkpoint_type import ConfigReader
from regard.pretrained.folder import find_type

TOKENS = torch.tensor([[5, 9, 4, 11], [3, 3, 8, 20]])


def read_config(settings: dict[str, Any]) -> Any:
    return CHECKPOINT_TYPES["openai-gpt"].read_config(ConfigReader(Path("config.json"), settings), frozenset())


@pytest.mark.parametrize(
    ("afn", "activation"), [("gelu", "gelu-tanh"), ("relu", "relu"), ("silu", "silu"), ("swish", "silu")]
)
def test_its_gelu_is_the_approximation(afn: str, activation: str) -> None:
    assert read_config({"afn": afn}).activation == activation


def test_settings_that_are_left_out_are_those_of_the_published_model() -> None:
    assert replace(read_config({}), attention_dropout=0.0) == SIZES["gpt1"]


@pytest.mark.parametrize("setting", [{"afn": "gelu_new"}, {"pruned_heads": {"0": [1]}}, {"n_embd": "wide"}], ids=str)
def test_unsupported_settings_are_named(setting: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(setting))):
        read_config(setting)


def test_only_configs_that_read_back_the_same_are_written() -> None:
    config = SIZES["gpt1"]
    assert isinstance(config, GptConfig)
    assert find_type(config) == "openai-gpt"
    assert find_type(replace(config, norm_place="pre")) == "gpt2"
    for other in ({"inner": 5}, {"head_width": 7, "heads": 5}, {"activation": "gelu"}):
        with pytest.raises(UserError, match="no public type has this model"):
            find_type(replace(config, **other))


@torch.no_grad()
def test_a_head_of_its_own(tmp_path: Path) -> None:
    case = replace(CASES["openai-gpt-plain"], settings={**GPT, "tie_word_embeddings": False}, own_head=True)
    reference = build(case)
    reference.save_pretrained(tmp_path)
    model = read_model(tmp_path, read_settings(tmp_path)).eval()
    assert not model.config.tied
    features, _ = model.advance(TOKENS, model.start(rows=2, capacity=4))
    torch.testing.assert_close(model.readout(features), reference(TOKENS).logits, atol=1e-5, rtol=0)
    back = tmp_path / "back"
    back.mkdir()
    write_model(model, back, {})
    theirs, ours = load_file(tmp_path / "model.safetensors"), load_file(back / "model.safetensors")
    assert set(theirs) == set(ours)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
