"""Invalid directories: each raises a one-line error that names the file and the problem."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import close, our_outputs, reference_outputs, rows
from references import BODY, CASES, Case, build, transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import regard
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.pretrained.weight_table import WeightEntry, to_ours

Tensors = dict[str, Tensor]
Change = Callable[[Path], None]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def folder(public: Callable[[str], Any], tmp_path: Path) -> Callable[[str], Path]:
    """A function that copies a public checkpoint, so that a test can damage it."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(public(name).path, tmp_path / "public"))

    return copy


def refused(path: Path, message: str, **how: bool) -> None:
    with pytest.raises(UserError, match=message) as caught:
        regard.load(path, device="cpu", **how)
    assert "\n" not in str(caught.value)
    assert "public" in str(caught.value)  # the directory is named


def settings(path: Path, **changes: Any) -> None:
    """Change settings in config.json; `...` removes one."""
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def weights(path: Path, change: Callable[[Tensors], Tensors]) -> None:
    save_file(change(load_file(path / WEIGHTS)), path / WEIGHTS)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "gpt2-plain",
            {"model_type": "gpt5"},
            r"config\.json: model_type=gpt5: this type is not supported; the types that open: gpt2, .*electra",
        ),
        ("gpt2-plain", {"model_type": ...}, r"config\.json: has no model_type; the types that open: gpt2"),
        (
            "gpt2-plain",
            {"model_type": "transfo-xl"},
            r"config\.json: model_type=transfo-xl: directories of Transformer-XL .* model=gpt model\.positions=xl",
        ),
        ("gpt2-plain", {"vocab_size": ...}, r"wte\.weight is 29×12, but by config\.json it should be 50257×12"),
        ("gpt2-plain", {"vocab_size": None}, r"config\.json: vocab_size should be given, found None"),
        (
            "gpt2-plain",
            {"n_layer": "two"},
            r"config\.json: n_layer should be a whole number of at least 1, found 'two'",
        ),
        ("gpt2-plain", {"n_layer": -1}, r"config\.json: n_layer should be a whole number of at least 1, found -1"),
        ("gpt2-plain", {"n_layer": 3}, r"the tensor transformer\.h\.2\.ln_1\.weight is missing"),
        ("gpt2-plain", {"n_layer": 1}, r"transformer\.h\.1\.\S+ and 11 more: this model has no such tensor"),
        ("gpt2-plain", {"n_head": 5}, r"config\.json: n_head=5: n_embd=12 is not a multiple of it; restore"),
        ("gpt2-plain", {"n_inner": 0}, r"config\.json: n_inner should be a whole number of at least 1, found 0"),
        ("gpt2-plain", {"n_inner": 20}, r"c_fc\.weight is 48×12, but by config\.json it should be 20×12"),
        ("gpt2-plain", {"activation_function": "gelu_10"}, r"activation_function=gelu_10: no such activation"),
        ("gpt2-plain", {"resid_pdrop": 1.5}, r"config\.json: resid_pdrop should be at least 0 and below 1, found 1\.5"),
        ("gpt2-plain", {"scale_attn_by_inverse_layer_idx": 1}, r"inverse_layer_idx should be true or false, found 1"),
        ("gpt2-plain", {"add_cross_attention": True}, r"add_cross_attention=True: is not supported"),
        ("gpt2-plain", {"tie_word_embeddings": "no"}, r"tie_word_embeddings should be true or false, found 'no'"),
        ("gpt2-plain", {"tie_word_embeddings": False}, r"the tensor lm_head\.weight is missing"),
        ("marian-plain", {"d_model": 16}, r"but by config\.json it should be"),
        ("marian-plain", {"normalize_before": True}, r"normalize_before=True: is not supported, only False is"),
        (
            "marian-plain",
            {"decoder_vocab_size": "many"},
            r"decoder_vocab_size should be a whole number of at least 1, found",
        ),
        ("marian-plain", {"decoder_vocab_size": 30}, r"not vocab_size=29 and decoder_vocab_size=30"),
        ("marian-plain", {"encoder_attention_heads": 5}, r"config\.json: encoder_attention_heads=5: d_model=12 is not"),
        ("marian-plain", {"decoder_attention_heads": 5}, r"config\.json: decoder_attention_heads=5: d_model=12 is not"),
        ("t5-plain", {"num_layers": 0}, r"config\.json: num_layers should be a whole number of at least 1, found 0"),
        ("t5-plain", {"num_decoder_layers": "two"}, r"num_decoder_layers should be a whole number .* found 'two'"),
        (
            "t5-plain",
            {"relative_attention_num_buckets": 2},
            r"config\.json: relative_attention_num_buckets=2: must be at least 4",
        ),
        (
            "t5-plain",
            {"relative_attention_max_distance": 4},
            r"config\.json: relative_attention_max_distance=4: leaves",
        ),
        ("t5-plain", {"feed_forward_proj": "gated-mish"}, r"feed_forward_proj=gated-mish: is not supported"),
        ("t5-plain", {"feed_forward_proj": ["relu"]}, r"feed_forward_proj=\['relu'\]: is not supported"),
        ("openai-gpt-plain", {"afn": ["gelu"]}, r"afn=\['gelu'\]: is not supported"),
        ("albert-plain", {"num_hidden_layers": 10**9}, r"config\.json: .*layers=1000000000: must be at most 1000"),
        ("bert-plain", {"hidden_size": 13}, r"num_attention_heads=2: hidden_size=13 is not a multiple"),
        ("bert-plain", {"is_decoder": True}, r"is_decoder=True: is not supported"),
    ],
)
def test_wrong_settings(name: str, changes: dict[str, Any], message: str, folder: Callable[[str], Path]) -> None:
    path = folder(name)
    settings(path, **changes)
    refused(path, message)


def test_a_class_name_that_is_no_text_is_left_out(folder: Callable[[str], Path]) -> None:
    path = folder("t5-plain")
    settings(path, architectures=[["T5EncoderModel"]])
    assert regard.load(path, device="cpu").module.config.reads_source


def test_settings_that_are_no_object(folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    (path / "config.json").write_text("[1, 2]")
    refused(path, r"config\.json: should be an object of settings")
    (path / "config.json").write_text("{")
    refused(path, r"config\.json: damaged or not JSON")


QUERY = "model.encoder.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda all: {k: v for k, v in all.items() if k != QUERY}, rf"the tensor {QUERY} is missing"),
        (lambda all: all | {"model.extra": torch.ones(2)}, r"model\.extra: this model has no such tensor"),
        (lambda all: all | {QUERY: torch.ones(9, 12)}, r"k_proj\.weight is 12×12, but \S+q_proj\.weight is 9×12"),
        (
            lambda all: all | {QUERY: torch.ones(())},
            r"q_proj\.weight is one number, but it should",
        ),
        (lambda all: all | {"model.shared.weight": torch.ones(30, 12)}, r"shared\.weight is 30×12, but .* be 29×12"),
        (lambda all: all | {"final_logits_bias": torch.ones(1, 30)}, r"final_logits_bias is 30, but .* should be 29"),
    ],
    ids=["missing", "leftover", "queries", "scalar", "shape", "row"],
)
def test_wrong_tensors(change: Callable[[Tensors], Tensors], message: str, folder: Callable[[str], Path]) -> None:
    path = folder("marian-plain")
    weights(path, change)
    refused(path, message)


def test_parts_that_do_not_stack_are_named() -> None:
    tensors = {"q": torch.ones(2, 2), "k": torch.ones(3, 2), "v": torch.ones(2, 2)}
    with pytest.raises(UserError, match=r"here: k is 3×2, but q is 2×2"):
        to_ours([WeightEntry(("q", "k", "v"), "qkv")], tensors, "here")


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("bert-plain", r"classifier\.bias and 1 more"),
        ("gpt2-plain", r"classifier\.bias and 1 more"),
        ("albert-groups", r"classifier\.bias and 1 more"),
    ],
)
def test_a_head_for_another_task_and_the_advice(name: str, head: str, tmp_path: Path) -> None:
    kind, settings = CASES[name].kind, CASES[name].settings
    build(Case(kind, "AutoModelForTokenClassification", settings)).save_pretrained(tmp_path / "public")
    config = json.loads((tmp_path / "public" / "config.json").read_text()) | {"architectures": ["AnotherForRanking"]}
    (tmp_path / "public" / "config.json").write_text(json.dumps(config))
    refused(tmp_path / "public", rf"{head}\S*: this model has no such tensor.*AutoModel\.from_pretrained")
    body = transformers.AutoModel.from_pretrained(tmp_path / "public").eval()
    body.save_pretrained(tmp_path / "body")
    given = rows((7, 4), "right", 0, 1)
    found = our_outputs(Case(kind, BODY), regard.load(tmp_path / "body", device="cpu"), given.tokens, given.real)
    close(found, reference_outputs(body, given.tokens, given.real), given.real)


def test_an_encoder_alone(folder: Callable[[str], Path]) -> None:
    path = folder("t5-plain")
    weights(path, lambda all: {name: tensor for name, tensor in all.items() if not name.startswith("decoder.")})
    refused(path, r"config\.json: the weights are those of an encoder alone; .*T5EncoderModel")


# -- files ------------------------------------------------------------------------------------------------------------


def test_no_weights(folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    (path / WEIGHTS).unlink()
    refused(path, r"has no model\.safetensors")


@pytest.mark.parametrize("kept", [0, 5, 0.5])
def test_truncated_weights(kept: float, folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    refused(path, r"model\.safetensors: damaged or not safetensors")


def sharded(path: Path) -> dict[str, Tensor]:
    """The weights in two files and an index."""
    tensors = load_file(path / WEIGHTS)
    (path / WEIGHTS).unlink()
    places = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: tensors[name] for name, place in places.items() if place == file}, path / file)
    (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return tensors


def test_shards(folder: Callable[[str], Path], public: Callable[[str], Any]) -> None:
    path = folder("gpt2-plain")
    sharded(path)
    tokens = torch.tensor([[5, 6, 7]])
    whole = regard.load(public("gpt2-plain").path, device="cpu").logits(tokens)
    assert torch.equal(regard.load(path, device="cpu").logits(tokens), whole)
    (path / "model-00002-of-00002.safetensors").unlink()
    refused(path, r"model-00002-of-00002\.safetensors: no such file")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"wte.weight": "../elsewhere.safetensors"}}, r"\.\./elsewhere\.safetensors is outside"),
        ({"weights": {}}, r"index\.json: should have a weight_map"),
        ([], r"index\.json: should have a weight_map"),
        ({"weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}}, r"the tensor \S+ is missing"),
    ],
    ids=["outside", "no-map", "list", "one-of-two"],
)
def test_a_wrong_index(index: Any, message: str, folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    sharded(path)
    (path / INDEX).write_text(json.dumps(index))
    refused(path, message)


# -- pickles ----------------------------------------------------------------------------------------------------------


class Malicious:
    """An object that runs a command when it is unpickled."""

    def __init__(self, evidence: Path) -> None:
        self.evidence = evidence

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.evidence}",)


def test_pickled_weights_only_where_they_are_allowed(folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    tokens = torch.tensor([[5, 6, 7]])
    expected = regard.load(path, device="cpu").logits(tokens)
    torch.save(load_file(path / WEIGHTS), path / "pytorch_model.bin")
    (path / WEIGHTS).unlink()
    refused(path, r"pytorch_model\.bin: pickled weights can run code .* --allow-pickle")
    assert torch.equal(regard.load(path, device="cpu", allow_pickle=True).logits(tokens), expected)


@pytest.mark.parametrize("old", [False, True])
def test_a_pickle_never_runs(old: bool, folder: Callable[[str], Path], tmp_path: Path) -> None:
    path, evidence = folder("gpt2-plain"), tmp_path / "evidence"
    (path / WEIGHTS).unlink()
    torch.save({"wte.weight": Malicious(evidence)}, path / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    refused(path, "--allow-pickle")
    refused(path, r"pytorch_model\.bin: damaged, or holds more than tensors", allow_pickle=True)
    assert not evidence.exists()


@pytest.mark.parametrize("content", [[1, 2], {"wte.weight": 3}])
def test_a_pickle_of_something_else(content: Any, folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    (path / WEIGHTS).unlink()
    torch.save(content, path / "pytorch_model.bin")
    refused(path, r"pytorch_model\.bin: should hold tensors by name", allow_pickle=True)
    (path / "pytorch_model.bin").write_bytes(b"not a pickle at all")
    refused(path, r"pytorch_model\.bin: damaged", allow_pickle=True)


# -- tokenizers -------------------------------------------------------------------------------------------------------


def test_a_tokenizer_with_more_ids_than_the_vocabulary(folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    many = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz0123456789"], 60)
    for name, data in many.files().items():
        (path / name).write_bytes(data)
    refused(path, r"the tokenizer has 40 ids, but the model's vocabulary 29")


def test_a_damaged_tokenizer(folder: Callable[[str], Path]) -> None:
    path = folder("gpt2-plain")
    (path / "tokenizer.json").write_text("{}")
    refused(path, r"tokenizer\.json: damaged, or of another kind of tokenizer")


# -- tied weights -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_four_matrices_of_which_one_is_unused() -> None:
    """Untied Marian also saves a shared embedding that it does not use: it must not be read."""
    from regard.pretrained import CHECKPOINT_TYPES

    tensors = build(CASES["marian-untied"]).state_dict()
    public = CHECKPOINT_TYPES["marian"].with_settings({"tie_word_embeddings": False})
    same = {name: torch.ones(29, 12) for name in tensors if name.endswith(("embed_tokens.weight", "shared.weight"))}
    assert len(same) == 3
    found = public.normalized(tensors | same | {"lm_head.weight": torch.ones(29, 12)})
    assert "model.shared.weight" not in found
    assert {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"} <= found.keys()


def test_a_directory_of_ctranslate2_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"add_source_bos": false, "bos_token": "<s>"}')
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UserError, match=r"a directory of CTranslate2, .* open the run or the checkpoint"):
        regard.load(tmp_path)
