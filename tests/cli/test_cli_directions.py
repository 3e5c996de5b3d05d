"""Language models of each direction from the command line: trained, asked, measured. And `regard train hello`."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.verbs import load

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
    assert set(json.loads(said.out)["fill"]) == {"tokens", "before", "after", "both", "product"}
    assert "from both: p(x | before) · p(x | after) / p(x)" in regard("eval", "run", "--fill").out
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


def test_a_wide_table_of_states_is_left_to_the_report(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 4, encoding="utf-8")
    command = ["train", "text", "data.train=lines.txt", "data.valid=lines.txt", "data.tokens=word", "model=gru", *TINY]
    assert "Every step" not in regard(*command, "--out", "run").out  # eight units and eight tokens
    assert "Every step: states and probabilities" in (tmp_path / "run/report.html").read_text(encoding="utf-8")


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
        assert sum(value for name, value in step.items() if name.startswith("p(")) == pytest.approx(1, abs=1e-5)


def sigmoid(number: float) -> float:
    return 1 / (1 + math.exp(-number))


def lstm_by_hand(x: list[float], h: list[float], c: float) -> dict[str, float]:
    """One unit of an LSTM, from its products with the input and with the state: those of i, f, g and o."""
    i, f, g, o = (one + two for one, two in zip(x, h))
    cell = sigmoid(f) * c + sigmoid(i) * math.tanh(g)
    state = sigmoid(o) * math.tanh(cell)
    return {"i": sigmoid(i), "f": sigmoid(f), "g": math.tanh(g), "o": sigmoid(o), "c": cell, "h": state}


def gru_by_hand(x: list[float], h: list[float], before: float) -> dict[str, float]:
    """One unit of a GRU, from its products with the input and with the state: those of r, z and n."""
    r, z = sigmoid(x[0] + h[0]), sigmoid(x[1] + h[1])
    n = math.tanh(x[2] + r * h[2])
    return {"r": r, "z": z, "n": n, "h": (1 - z) * n + z * before}


@pytest.mark.parametrize(("kind", "by_hand"), [("lstm", lstm_by_hand), ("gru", gru_by_hand)])
def test_hello_prints_the_gates_that_follow_from_the_weights(regard: Regard, kind: str, by_hand: Any) -> None:
    said = json.loads(
        regard("train", "hello", f"model={kind}", "plan.steps=9", "plan.evaluate=9", "--out", "run", "--json").out
    )
    model = load("run", "cpu")
    module: Any = model.module
    stored, embedding = module.rnn.onward[0], module.embedding.weight.tolist()
    w, u, b, d = (getattr(stored, f"{name}_l0").tolist() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    last, kept, expected = [0.0] * 3, [0.0] * 3, []
    for letter in "hell":
        x, before = embedding[model.target_tokenizer.encode(letter)[0]], last
        for unit in range(3):
            rows = range(unit, len(w), 3)  # of this unit, in each gate
            of_x = [sum(one * two for one, two in zip(w[row], x)) + b[row] for row in rows]
            of_h = [sum(one * two for one, two in zip(u[row], before)) + d[row] for row in rows]
            step = by_hand(of_x, of_h, kept[unit])
            kept[unit] = step.get("c", step["h"])
            expected.append({"reads": letter, "unit": unit + 1, **step})
        last = [step["h"] for step in expected[-3:]]
    assert [[*row] for row in said["gates"]] == [[*row] for row in expected]  # the same names in the same order
    for found, wanted in zip(said["gates"], expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)
    # The states of the other table are those of torch's fused kernel.
    fast = [step[f"h{unit}"] for step in said["steps"] for unit in (1, 2, 3)]
    assert [row["h"] for row in said["gates"]] == pytest.approx(fast, abs=1e-6)


def test_hello_prints_the_gates_in_the_terminal_and_in_the_report(regard: Regard, tmp_path: Path) -> None:
    said = regard("train", "hello", "model=gru", "plan.steps=2", "plan.evaluate=2", "--out", "run")
    assert re.search(r"^reads +unit +r +z +n +h$", said.out, re.MULTILINE)
    assert "h is the state, (1 − z) · n + z · (h before)" in " ".join(said.out.split())
    assert "Every step: the gates of each unit" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    said = regard("train", "hello", "plan.steps=2", "plan.evaluate=2", "--out", "rnn", "--json")
    assert "gates" not in json.loads(said.out)  # an RNN has none


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_hello_is_learnt(regard: Regard, kind: str) -> None:
    said = json.loads(regard("train", "hello", f"model={kind}", "--out", "run", "--json").out)
    assert [step["best"] for step in said["steps"]] == ["e", "l", "l", "o"]
    assert all(step[f"p({step['target']})"] > 0.9 for step in said["steps"])


def test_a_transformer_xl_is_measured_with_other_memories(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("the dog sees a cat and a cat sees the dog " * 60, encoding="utf-8")
    sizes = [
        "model=transformer-xl",
        "model.width=8",
        "model.heads=2",
        "model.layers=1",
        "model.inner=8",
        "model.memory=8",
    ]
    data = ["data=book", "data.train=book.txt", "data.tokens=word", "data.window=8", "data.order=contiguous"]
    plan = ["plan.steps=20", "plan.batch_tokens=32", "plan.evaluate=20", "plan.rate=1e-2", "plan.warmup=0"]
    assert regard("train", "text", *data, *sizes, *plan, "--out", "run").code == 0
    found = json.loads(regard("eval", "run", "--memory", "0,8,16", "--json").out)
    losses = {length: scores["loss"] for length, scores in found["memory"].items()}
    assert losses["8"] == found["scores"]["loss"]  # the memory of its training
    assert len({*losses.values()}) == len(losses) == 3
    assert "By length of the memory, in tokens" in regard("eval", "run", "--memory", "0").out
    said = regard("eval", "run", "--memory", "8,many")
    assert (said.code, "--memory 8,many: give numbers of tokens, such as 0,70,140" in said.err) == (2, True)


def test_a_model_without_segments_has_no_memory_to_measure(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the dog sees a cat\na cat sees the dog\n" * 20, encoding="utf-8")
    assert regard("train", "text", "data.train=lines.txt", "model=gru", *TINY, "--out", "run").code == 0
    said = regard("eval", "run", "--memory", "8")
    assert (said.code, "has no memory of earlier segments, only a Transformer-XL" in said.err) == (2, True)
    small = ["model=gpt", "model.width=8", "model.heads=2", "model.layers=1", "model.inner=8", *TINY[3:]]
    assert regard("train", "text", "data.train=lines.txt", *small, "--out", "gpt").code == 0
    assert "--memory 0,5: a language model has no memory" in regard("eval", "gpt", "--memory", "0,5").err
