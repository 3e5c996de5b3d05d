"""`regard export`, from the command line: what it writes, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

from regard.data.fields import TargetText
from regard.data.tokenizers import train_tokenizer
from regard.file_io import load_tensors
from regard.models import BertConfig, GptConfig
from regard.verbs import Loaded
from regard.verbs.exporting import _tokenizer_files

Said = Any


@pytest.fixture
def run(regard: Callable[..., Said], pairs: Path) -> str:
    """A Transformer that was trained for a moment, with its last two steps."""
    tokens = [f"data.train={pairs}", "data.source_tokens=char", "data.target_tokens=char"]
    shape = ["model=transformer", "model.width=16", "model.heads=2", "model.layers=1", "model.inner=24"]
    plan = ["plan.steps=4", "plan.evaluate=2", "plan.keep=2", "plan.threads=1", "plan.batch_tokens=256"]
    said = regard("train", "translate", *tokens, *shape, *plan, "--out", "runs/mine")
    assert said.code == 0, said.err
    return "runs/mine"


def test_a_directory_for_transformers(regard: Callable[..., Said], run: str) -> None:
    said = regard("export", run, "out")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("wrote out: pegasus; config.json, generation_config.json, model.safetensors")
    again = regard("export", run, "out")
    assert again.code == 2
    assert again.err == "error: out: is there already; give another name, or --overwrite (in Python: overwrite=True).\n"
    found = json.loads(regard("export", run, "out", "--overwrite", "--average", "2", "--json").out)
    assert (found["path"], found["to"], found["kind"], found["averaged"]) == ("out", "transformers", "pegasus", 2)
    assert "tokenizer.json" in found["files"]
    steps = [load_tensors(Path(run) / "steps" / f"00000{step}" / "weights.safetensors") for step in (2, 4)]
    mean = sum(step["encoder.blocks.0.feed.up.bias"] for step in steps) / 2
    assert load_tensors(Path("out/model.safetensors"))["model.encoder.layers.0.fc1.bias"].allclose(mean)


def test_a_directory_for_the_engine(regard: Callable[..., Said], run: str) -> None:
    pytest.importorskip("ctranslate2")
    said = regard("export", run, "out", "--to", "ctranslate2")
    assert said.code == 0, said.err
    assert {"model.bin", "config.json", "tokenizer.json"} <= {path.name for path in Path("out").iterdir()}


def test_mistakes(regard: Callable[..., Said], run: str, language: Path, translator: Callable[..., Path]) -> None:
    mistakes = {
        ("export", run, "out", "--to", "onnx"): "--to onnx (in Python: to): no such tool.",
        ("export", run, "out", "--average", 3): "has 2 of its newest steps (plan.keep=2), not 3",
        ("export", language, "out"): "model=lstmn: no public checkpoint type has such a model",
        ("export", language, "out", "--to", "ctranslate2"): "--to ctranslate2 is for translators",
        ("export", translator(), "out", "--to", "ctranslate2"): "--to ctranslate2: only translation Transformers",
        ("export", run, run, "--overwrite"): "is no exported model, and is not overwritten",
        ("export", "nowhere", "out"): "nowhere",
    }
    for arguments, expected in mistakes.items():
        said = regard(*arguments)
        assert said.code == 2
        assert expected in said.err
        assert said.err.count("\n") == 1
        assert not Path("out").exists()


def test_the_settings_of_an_exported_tokenizer() -> None:
    """Padding is on the left of a text that is continued, and the special tokens are those that the model reads."""
    tokenizer = train_tokenizer("char", ["abc"], 20)
    special = tokenizer.special_tokens
    shape = {"vocab": tokenizer.size, "width": 8, "heads": 2, "layers": 1, "inner": 8, "context": 9}
    left, right = GptConfig(**shape), BertConfig(**shape)  # type: ignore[arg-type]
    unlimited = replace(left, positions="none")
    for config, side, inputs, longest, around in (
        (left, "left", ["input_ids", "attention_mask"], 9, [special.bos]),
        (unlimited, "left", ["input_ids", "attention_mask"], unlimited.longest, [special.bos]),
        (right, "right", ["input_ids", "token_type_ids", "attention_mask"], 9, []),
        (replace(right, segments=0), "right", ["input_ids", "attention_mask"], 9, []),
    ):
        loaded = Loaded(Path("a"), config.build(), torch.device("cpu"), {"text": TargetText(tokenizer)})
        files = _tokenizer_files(tokenizer, loaded)
        settings = json.loads(files["tokenizer_config.json"])
        assert (settings["padding_side"], settings["model_input_names"]) == (side, inputs)
        assert settings.get("model_max_length") == longest
        found = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode()).encode("abc").ids
        assert found == [*around, *tokenizer.encode("abc")]
