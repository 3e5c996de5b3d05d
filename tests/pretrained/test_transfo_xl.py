"""Transformer-XL checkpoints give the outputs that the reference gave when the fixtures were made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
from regard.errors import UserError
from regard.models import SIZES, Gpt, GptConfig
from regard.pretrained import CHECKPOINT_TYPES, read_model
from regard.pretrained.checkpoint_type import ConfigReader
from regard.pretrained.folder import find_type

FIXTURES = Path(__file__).parent / "fixtures" / "transfo_xl"
NAMES = sorted(folder.name for folder in FIXTURES.iterdir())
WITH_MEMORY = [name for name in NAMES if name != "plain"]
SETTINGS = (
    "vocab_size",
    "cutoffs",
    "d_model",
    "d_embed",
    "n_head",
    "d_head",
    "d_inner",
    "div_val",
    "pre_lnorm",
    "n_layer",
)
SETTINGS += ("mem_len", "same_length", "clamp_len", "untie_r", "layer_norm_epsilon", "tie_projs")

every = pytest.mark.parametrize("name", NAMES)
with_memory = pytest.mark.parametrize("name", WITH_MEMORY)


def outputs(name: str) -> dict[str, Tensor]:
    return load_file(FIXTURES / name / "outputs.safetensors")


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@every
def test_one_segment(name: str) -> None:
    model, expected = regard.load(FIXTURES / name, device="cpu"), outputs(name)
    close(model.logits(expected["tokens"]), expected["logits"])
    close(model.states(expected["tokens"]), expected["states"])


@with_memory
@torch.no_grad()
def test_a_second_segment_remembers_the_first(name: str) -> None:
    module, expected = regard.load(FIXTURES / name, device="cpu").module, outputs(name)
    state = module.start(rows=2)
    _, state = module.advance(expected["tokens"], state)
    features, _ = module.advance(expected["second.tokens"], state)
    close(features, expected["second.states"])
    close(module.readout(features), expected["second.logits"])


@with_memory
@torch.no_grad()
def test_token_by_token(name: str) -> None:
    module, expected = regard.load(FIXTURES / name, device="cpu").module, outputs(name)
    state, logits = module.start(rows=2), []
    for tokens in torch.cat([expected["tokens"], expected["second.tokens"]], 1).unbind(1):
        step, state = module.step(tokens, state)
        logits.append(step)
    close(torch.stack(logits, 1), expected["steps.logits"])


@every
def test_log_probabilities_sum_to_one(name: str) -> None:
    logits = regard.load(FIXTURES / name, device="cpu").logits(outputs(name)["tokens"])
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(logits.shape[:2]))


@every
def test_export_writes_the_same_tensors(name: str, tmp_path: Path) -> None:
    """The installed `transformers` cannot open this type, so the files are compared."""
    regard.export(regard.load(FIXTURES / name, device="cpu"), tmp_path / "back", to="transformers")
    theirs, back = (load_file(folder / "model.safetensors") for folder in (FIXTURES / name, tmp_path / "back"))
    assert set(back) == set(theirs)
    for key, tensor in theirs.items():
        torch.testing.assert_close(back[key], tensor, atol=1e-6, rtol=1e-6)
    theirs, back = (json.loads((folder / "config.json").read_text()) for folder in (FIXTURES / name, tmp_path / "back"))
    assert back["model_type"] == "transfo-xl"
    assert back["architectures"] == ["TransfoXLLMHeadModel"]
    assert {key: back[key] for key in SETTINGS} == {key: theirs[key] for key in SETTINGS}
    assert back.get("tie_word_embeddings", True) == theirs.get("tie_word_embeddings", True)


def settings(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / name / "config.json").read_text())
    return found


def reread(name: str, tensors: dict[str, Tensor], folder: Path) -> Gpt:
    """The model with the settings of a fixture and other tensors."""
    save_file({key: tensor.clone() for key, tensor in tensors.items()}, folder / "model.safetensors")
    model = read_model(folder, settings(name)).eval()
    assert isinstance(model, Gpt)
    return model


def check_outputs(name: str, model: Gpt) -> None:
    expected = outputs(name)
    with torch.no_grad():
        features, _ = model.advance(expected["tokens"], model.start(rows=2))
        close(model.readout(features), expected["logits"])


@pytest.mark.parametrize("name", ["published", "projected"])
def test_a_file_that_repeats_its_tensors(name: str, tmp_path: Path) -> None:
    """As pickles of older versions do: tensors of the embedding again under the names of the softmax."""
    tensors = load_file(FIXTURES / name / "model.safetensors")
    for key, tensor in list(tensors.items()):
        copy = key.replace("transformer.word_emb.emb_", "crit.out_")
        if key.startswith("transformer.word_emb"):
            tensors.setdefault(copy, tensor)
    if name == "projected":  # all clusters share one table and one projection
        tensors |= {f"crit.out_projs.{i}": tensors["transformer.word_emb.emb_projs.0"] for i in (1, 2)}
    model = reread(name, tensors, tmp_path)
    assert model.config == read_model(FIXTURES / name, settings(name)).config
    check_outputs(name, model)


def test_biases_that_are_saved_once(tmp_path: Path) -> None:
    tensors = load_file(FIXTURES / "tied" / "model.safetensors")
    once = {key: tensor for key, tensor in tensors.items() if ".dec_attn.r_r_bias" not in key}
    once = {key: tensor for key, tensor in once.items() if ".dec_attn.r_w_bias" not in key}
    assert len(once) == len(tensors) - 6
    check_outputs("tied", reread("tied", once, tmp_path))


def test_shared_biases_are_trained_as_one() -> None:
    model = read_model(FIXTURES / "tied", settings("tied"))
    names = [name for name, _ in model.named_parameters() if "score.content" in name]
    assert names == ["stack.blocks.0.attention.read.score.content"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attn_type": 1}, "attn_type=1"),
        ({"sample_softmax": 100}, "sample_softmax=100"),
        ({"same_length": True, "mem_len": 0}, "mem_len.*same_length"),
        ({"same_length": True, "mem_len": 1}, "mem_len.*same_length"),
        ({"cutoffs": "6,14"}, "cutoffs"),
        ({"cutoffs": [14, 6]}, r"config\.json: cutoffs=14,6: must increase, from at least 1 to less than vocab_size="),
        ({"div_val": 0}, r"config\.json: div_val should be a whole number of at least 1"),
        ({"tie_projs": [True]}, "tie_projs"),
        ({"untie_r": "no"}, "untie_r"),
    ],
    ids=str,
)
def test_unsupported_settings_are_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_model(FIXTURES / "published", {**settings("published"), **changed})


def test_a_body_has_no_softmax(tmp_path: Path) -> None:
    tensors = load_file(FIXTURES / "published" / "model.safetensors")
    body = {key.removeprefix("transformer."): tensor for key, tensor in tensors.items() if "crit" not in key}
    with pytest.raises(UserError, match=r"crit\.out_layers\.0\.bias is missing"):
        reread("published", body, tmp_path)


def test_settings_that_are_left_out_are_those_of_the_published_model() -> None:
    reader = ConfigReader(Path("config.json"), {"model_type": "transfo-xl"})
    assert (
        CHECKPOINT_TYPES["transfo-xl"].read_config(reader, frozenset({"crit.out_projs.0"}))
        == SIZES["transformer-xl-large"]
    )


def test_only_configs_that_read_back_the_same_are_written() -> None:
    config = SIZES["transformer-xl-large"]
    assert isinstance(config, GptConfig)
    assert find_type(config) == "transfo-xl"
    with pytest.raises(UserError, match=r"transfo-xl.*memory_zeros=false"):
        find_type(replace(config, memory_zeros=False))


@torch.no_grad()
def test_a_window_as_long_as_the_memory_makes_segments_invisible() -> None:
    """However the text is split into segments, a token sees as many tokens as the memory has, itself included."""
    model, expected = read_model(FIXTURES / "published", settings("published")).eval(), outputs("published")
    for cut in range(1, 7):
        state, parts = model.start(rows=2), []
        for tokens in expected["tokens"].split([cut, 7 - cut], 1):
            features, state = model.advance(tokens, state)
            parts.append(features)
        close(torch.cat(parts, 1), expected["states"])


def test_sinusoids_cached_in_inference_mode_can_be_trained_on() -> None:
    """Sinusoids that were made in inference mode are also usable with gradients."""
    model, tokens = read_model(FIXTURES / "roomy", settings("roomy")), outputs("roomy")["tokens"]
    with torch.inference_mode():
        model.advance(tokens, model.start(rows=2))
    features, _ = model.advance(tokens, model.start(rows=2))
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.stack.parameters())
