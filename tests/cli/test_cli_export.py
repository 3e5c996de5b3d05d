"""`regard export`, from the command line: what it writes, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.file_io import load_tensors

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
