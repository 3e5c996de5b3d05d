"""Language models of each direction from the command line: trained, asked, measured. And `regard train hello`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Regard = Callable[..., Any]
MODEL = ["model.width=8", "model.embed=8", "model.layers=1"]
TINY = [*MODEL, "plan.steps=2", "plan.evaluate=2", "plan.warmup=0", "plan.device=cpu"]


@pytest.mark.parametrize("model", ["gru", "bigram"])
def test_both_directions_from_the_command_line(regard: Regard, tmp_path: Path, model: str) -> None:
    (tmp_path / "lines.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 20, encoding="utf-8")
    settings = TINY if model == "gru" else ["plan.steps=2", "plan.evaluate=2"]
    command = ["train", "text", "data.train=lines.txt", "data.tokens=word", f"model={model}", *settings]
    assert regard(*command, "model.direction=both", "--out", "run").code == 0
    assert regard("fill", "run", "the [MASK] sees").out.startswith("the ")
    scored = json.loads(regard("score", "run", "--json", stdin="the dog\n").out)
    assert scored["pieces"] == ["the", "dog", "<eos>"]
    assert scored["backward"]["pieces"] == ["<bos>", "the", "dog"]
    table = regard("score", "run", "--tokens", stdin="the dog\n").out
    assert "p(piece | before)" in table
    assert "p(piece | after)" in table
    said = regard("eval", "run", "--fill", "--json")
    assert set(json.loads(said.out)["fill"]) == {"tokens", "before", "after", "both", "the product alone"}
    said = regard("generate", "run", "the")
    assert (said.code, "use: regard fill run" in said.err) == (2, True)


def test_a_backward_model_continues_to_the_left(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 20, encoding="utf-8")
    command = ["train", "bigram", "data.train=lines.txt", "model.direction=backward", "model.k=0.001", "--out", "run"]
    assert regard(*command).code == 0
    assert regard("generate", "run", "a cat", "--limit", "1").out == "sees a cat\n"
    assert "leave --stream out" in regard("generate", "run", "a cat", "--stream").err
    table = regard("score", "run", "--tokens", stdin="sees a cat\n").out
    assert [line.split()[0] for line in table.splitlines()[1:5]] == ["<bos>", "sees", "a", "cat"]


def test_hello_prints_every_state_and_probability(regard: Regard, tmp_path: Path) -> None:
    said = regard("train", "hello", "plan.steps=2", "plan.evaluate=2", "--out", "run")
    assert "Every step: states and probabilities" in said.out
    assert re.search(r"^reads +h1 .* p\(rest\)  best +target$", said.out, re.MULTILINE)  # it fits into 80 columns
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "<h2>Attention</h2>" not in page  # an RNN has none
    assert "Every step: states and probabilities" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    said = regard("train", "hello", "plan.steps=2", "plan.evaluate=2", "--out", "again", "--json")
    steps = json.loads(said.out)["steps"]
    assert [(step["reads"], step["target"]) for step in steps] == [("h", "e"), ("e", "l"), ("l", "l"), ("l", "o")]
    for step in steps:
        assert sum(float(value) for name, value in step.items() if name.startswith("p(")) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_hello_is_learnt(regard: Regard) -> None:
    said = json.loads(regard("train", "hello", "--out", "run", "--json").out)
    assert [step["best"] for step in said["steps"]] == ["e", "l", "l", "o"]
    assert all(float(step[f"p({step['target']})"]) > 0.9 for step in said["steps"])
