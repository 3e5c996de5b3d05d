"""Models of `transformers` in memory: `regard.load` takes them as it takes their directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from comparison import batch, close, our_outputs, reference_outputs, sources
from references import CASES, build
from torch import nn

import regard
from regard.errors import UserError
from regard.pretrained import CHECKPOINT_TYPES
from tiny_public import CONTEXT, ENCODER, LINES, bert, gpt2, marian, roberta, saved, transformers, wordpiece

PLAIN = {case.kind: case for name, case in CASES.items() if name.endswith("-plain")}


def test_every_type_has_a_case() -> None:
    assert {*PLAIN} == {*CHECKPOINT_TYPES}


@pytest.mark.parametrize("kind", PLAIN)
def test_outputs_are_equal_and_weights_are_recorded(kind: str) -> None:
    case = PLAIN[kind]
    reference = build(case)
    model = regard.load(reference, device="cpu")
    given, source = batch(case, reference, "right")
    with regard.record(model.module) as tape:
        found = our_outputs(case, model, given.tokens, given.real, **sources(source))
    close(found, reference_outputs(reference, given.tokens, given.real, **sources(source)), given.real)
    layers = [tape[name] for name in tape]
    assert layers
    for weights in layers:
        np.testing.assert_allclose(weights.sum(-1).max(), 1.0, atol=1e-5)


def classifier(folder: Path) -> Any:
    wordpiece(folder)
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    config = transformers.BertConfig(**ENCODER, vocab_size=200, max_position_embeddings=CONTEXT, **labels)
    return saved(transformers.BertForSequenceClassification(config), folder)


ANSWERS: dict[str, tuple[Callable[[Path], Any], Callable[[regard.Loaded], Any]]] = {
    "gpt2": (gpt2, lambda model: [one.text for one in regard.generate(model, LINES[:2], limit=5)]),
    "bert": (bert, lambda model: regard.embed(model, LINES).vectors.tolist()),
    "roberta": (roberta, lambda model: [one.masks for one in regard.fill(model, ["the <mask> stood"])]),
    "marian": (marian, lambda model: [one.text for one in regard.translate(model, LINES[:2], limit=5)]),
    "classifier": (classifier, lambda model: [one.labels for one in regard.classify(model, LINES[:2])]),
}


@pytest.mark.filterwarnings("ignore:Recommended")  # of MarianTokenizer: another package
@pytest.mark.parametrize("name", ANSWERS)
def test_with_its_tokenizer_it_answers_and_is_exported_as_from_disk(name: str, tmp_path: Path) -> None:
    make, answer = ANSWERS[name]
    reference = make(tmp_path / "public")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "public")
    memory, disk = regard.load(reference, "cpu", tokenizer=tokenizer), regard.load(tmp_path / "public", "cpu")
    assert answer(memory) == answer(disk)
    assert str(memory.path) == type(reference).__name__
    for model, place in ((memory, "memory"), (disk, "disk")):
        regard.export(model, tmp_path / place)
    for file in ("model.safetensors", *(["generation_config.json"] if disk.module.config.causal else [])):
        assert (tmp_path / "memory" / file).read_bytes() == (tmp_path / "disk" / file).read_bytes()


def test_weights_are_copied() -> None:
    reference = build(PLAIN["gpt2"])
    model, tokens = regard.load(reference, device="cpu"), torch.tensor([[5, 6, 7]])
    before = model.logits(tokens)
    with torch.no_grad():
        reference.transformer.wte.weight.zero_()
    assert torch.equal(model.logits(tokens), before)
    with pytest.raises(UserError, match=r"GPT2LMHeadModel: has no tokenizer; .*load\(model, tokenizer=…\)"):
        regard.generate(model, ["a"])


def test_other_modules_are_refused() -> None:
    with pytest.raises(UserError, match="Linear: is no model of transformers"):
        regard.load(nn.Linear(2, 2))
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    llama = transformers.LlamaConfig(vocab_size=9, **sizes)
    with pytest.raises(UserError, match="LlamaModel: model_type=llama: this type is not supported"):
        regard.load(transformers.LlamaModel(llama))
    with pytest.raises(UserError, match="tokenizer: a str is none of transformers"):
        regard.load(build(PLAIN["gpt2"]), tokenizer="gpt2")
    with pytest.raises(UserError, match="device: dict is no name"):  # a tokenizer without its keyword
        regard.load(nn.Linear(2, 2), {})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tokenizer: some/where has its own"):
        regard.load("some/where", tokenizer="gpt2")


@pytest.mark.parametrize("function", [regard.record, regard.watch])
def test_recording_a_foreign_module_names_the_cure(function: Any) -> None:
    for module in (build(PLAIN["gpt2"]), nn.MultiheadAttention(4, 2)):
        message = (
            rf"{type(module).__name__} has no attention module of Regard; load a model of transformers with regard"
        )
        with pytest.raises(UserError, match=message), function(module):
            pass
