"""Checkpoints that older versions of `transformers` wrote: other names, copies of tensors, missing settings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import batch, close, our_outputs, reference_outputs, sources
from references import CASES
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard

Tensors = dict[str, Tensor]


def old_layer_norms(tensors: Tensors) -> Tensors:
    """BERT as first published: norms with gamma and beta, and the position ids among the weights."""
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, old in names.items():
        tensors = {key.replace(new, old): tensor for key, tensor in tensors.items()}
    return tensors | {"bert.embeddings.position_ids": torch.arange(24)[None]}


def no_prefix(tensors: Tensors) -> Tensors:
    """GPT-2 as first published: a language model with the names of its body, and with its masks."""
    masks = {"h.0.attn.bias": torch.ones(1, 1, 24, 24).tril(), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    return {key.removeprefix("transformer."): tensor for key, tensor in tensors.items()} | masks


def repeated_head(word: str, head: str, *bias: str) -> Callable[[Tensors], Tensors]:
    """A tied head as older versions saved it: the embedding a second time, and its bias too."""

    def written(tensors: Tensors) -> Tensors:
        twice = {head: tensors[word].clone()}
        if bias:
            twice[bias[1]] = tensors[bias[0]].clone()
        return tensors | twice

    return written


def t5_copies(tensors: Tensors) -> Tensors:
    """T5 as first published: the embedding three times, and an unused table of distances."""
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    return tensors | {name: tensors["shared.weight"].clone() for name in copies} | {unused: torch.randn(8, 3)}


def marian_tables(tensors: Tensors) -> Tensors:
    """Marian as first published: the sinusoids of both sides among the weights."""
    angles = torch.arange(24)[:, None] * 10000 ** (-torch.arange(0, 12, 2) / 12)
    table = torch.cat([angles.sin(), angles.cos()], 1)
    return tensors | {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}


def same(tensors: Tensors) -> Tensors:
    return tensors


WORDS = "embeddings.word_embeddings.weight"
OLDER: dict[str, tuple[str, Callable[[Tensors], Tensors], dict[str, Any]]] = {
    "bert-gammas": ("bert-plain", old_layer_norms, {"position_embedding_type": "absolute"}),
    "bert-head": (
        "bert-plain",
        repeated_head(
            f"bert.{WORDS}", "cls.predictions.decoder.weight", "cls.predictions.bias", "cls.predictions.decoder.bias"
        ),
        {},
    ),
    "roberta-head": (
        "roberta-plain",
        repeated_head(f"roberta.{WORDS}", "lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"),
        {},
    ),
    "distilbert-head": ("distilbert-plain", repeated_head(f"distilbert.{WORDS}", "vocab_projector.weight"), {}),
    "albert-head": ("albert-plain", repeated_head(f"albert.{WORDS}", "predictions.decoder.weight"), {}),
    "electra-head": ("electra-plain", repeated_head(f"electra.{WORDS}", "generator_lm_head.weight"), {}),
    "gpt2-names": ("gpt2-plain", no_prefix, {"n_ctx": 24}),
    "openai-gpt-names": ("openai-gpt-plain", no_prefix, {}),
    "t5-copies": ("t5-plain", t5_copies, {"scale_decoder_outputs": None, "tie_word_embeddings": None}),
    "t5-own-head": ("t5-published", same, {"scale_decoder_outputs": None, "tie_word_embeddings": False}),
    "marian-tables": ("marian-plain", marian_tables, {"static_position_embeddings": True, "normalize_before": False}),
}


@pytest.mark.parametrize("name", OLDER)
def test_files_of_older_versions(name: str, public: Callable[[str], Any], tmp_path: Path) -> None:
    of, change, settings = OLDER[name]
    case, made = CASES[of], public(of)
    shutil.copytree(made.path, tmp_path / "old")
    save_file(change(load_file(made.path / "model.safetensors")), tmp_path / "old" / "model.safetensors")
    config = json.loads((made.path / "config.json").read_text()) | settings
    config = {key: value for key, value in config.items() if not (key in settings and value is None)}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    given, source = batch(case, made.reference, "right")
    found = our_outputs(case, regard.load(tmp_path / "old", device="cpu"), given.tokens, given.real, **sources(source))
    close(found, reference_outputs(made.reference, given.tokens, given.real, **sources(source)), given.real)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.is_body])
def test_settings_left_at_their_defaults(name: str, public: Callable[[str], Any], tmp_path: Path) -> None:
    """Older versions leave settings with default values out of config.json."""
    case, made = CASES[name], public(name)
    shutil.copytree(made.path, tmp_path / "short")
    config = json.loads((made.path / "config.json").read_text())
    defaults = type(made.reference.config)().to_dict()
    kept = {key: value for key, value in config.items() if key == "model_type" or value != defaults.get(key, ...)}
    if case.kind == "t5" and not config["scale_decoder_outputs"]:
        kept["tie_word_embeddings"] = False  # older files imply it by this setting
    (tmp_path / "short" / "config.json").write_text(json.dumps(kept))
    given, source = batch(case, made.reference, "right")
    found = our_outputs(
        case, regard.load(tmp_path / "short", device="cpu"), given.tokens, given.real, **sources(source)
    )
    close(found, reference_outputs(made.reference, given.tokens, given.real, **sources(source)), given.real)
