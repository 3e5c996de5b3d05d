"""The engine of a page answers as Python does: models that are shipped, held-out lines, in Node and in Chromium."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "web"))
from engine import NODE, Case, answers
from user import User

from regard import ablate, look, translate
from regard.data.french import French
from regard.shipped import SHIPPED
from regard.verbs import Loaded
from regard.verbs.filling import fill
from regard.verbs.forced import token_logps

LINES, IN_CHROMIUM, CHANGED = 200, 20, 48
# Of log-probabilities below -1, LOGP is a part of their size: PyTorch's own, in float32, are 8e-6 away from those in
# float64 (stories, a log-probability of -15).
LOGP, WEIGHT = 1e-5, 2e-6
TRANSLATORS = ("dates", "dates-plain", "french")
CHANGES = {"off": "off", "uniform": "uniform", "one-hot": "one-hot", "first key": 0, "third key": 2}
Models = Callable[[str], Loaded]
in_node = pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")


def held_out(model: Loaded, count: int) -> list[Any]:
    """Test examples of the recipe of a model."""
    data = model.located_data
    if isinstance(data, French):  # its test sentences do not depend on the number of those for training
        return list(French(train=1, valid=1, test=count).load().test)
    return list(model.examples()[1])[:count]


def check(model: Loaded, lines: Sequence[str], found: Sequence[dict[str, Any]]) -> None:
    """Outputs, log-probabilities and weights of answers without changes."""
    assert len(found) == len(lines)
    for line, best, answer in zip(lines, translate(model, lines), found):
        assert answer["text"] == best.text, line
        scores = [token["score"] for token in answer["tokens"]][: len(best.logps)]
        close(scores, best.logps, line)
        compare_weights(model, line, answer)


def asked(model: Loaded, asks: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The answers of the engine in Node."""
    (messages,) = answers([Case("shipped", model, asks)], folder)
    return [message["answer"] for message in messages]


@in_node
@pytest.mark.parametrize("name", TRANSLATORS)
def test_outputs_log_probabilities_and_weights_in_node(name: str, model_of: Models, tmp_path: Path) -> None:
    model = model_of(name)
    examples = held_out(model, LINES)
    assert len(examples) == LINES
    lines = [one.source for one in examples]
    check(model, lines, asked(model, [{"text": line} for line in lines], tmp_path))
    pairs = [(model.source_tokenizer.encode(one.source), model.target_tokenizer.encode(one.target)) for one in examples]
    given = asked(model, [{"text": one.source, "target": one.target} for one in examples], tmp_path)
    for line, expected, answer in zip(lines, token_logps(model, pairs), given):
        close([token["score"] for token in answer["tokens"]], expected, line)


@in_node
@pytest.mark.skipif("stories" not in SHIPPED, reason="no stories")
def test_a_language_model_in_node(model_of: Models, tmp_path: Path) -> None:
    model = model_of("stories")
    lines = [one.text[:200] for one in held_out(model, LINES)]
    expected = token_logps(model, [([], tokens) for tokens in model.read(lines)])
    for line, logps, answer in zip(lines, expected, asked(model, [{"text": line} for line in lines], tmp_path)):
        scores = [token["score"] for token in answer["tokens"]]
        assert len(scores) == len(logps) or len(scores) == len(logps) - 1, line  # with or without an end
        close(scores, logps[: len(scores)], line)
        compare_weights(model, line, answer)


def close(found: Any, expected: Any, line: str) -> None:
    """Log-probabilities are those of Python."""
    away = np.abs(np.asarray(found, float) - np.asarray(expected, float))
    assert np.max(away / np.maximum(1, np.abs(expected)), initial=0) <= LOGP, line


def compare_weights(model: Loaded, line: str, answer: dict[str, Any]) -> None:
    """The weights of all layers and heads."""
    seen = look(model, line).layers
    if not seen:  # no attention
        return
    for part in answer["parts"]:
        for layer in part["layers"]:
            (weights,) = (one.weights for one in seen if (one.part, one.number) == (part["name"], layer.get("number")))
            assert np.abs(np.reshape(layer["weights"], weights.shape) - weights).max() <= WEIGHT, line


@in_node
@pytest.mark.skipif("blanks" not in SHIPPED, reason="no blanks")
def test_a_masked_model_in_node(model_of: Models, tmp_path: Path) -> None:
    model = model_of("blanks")
    mask = model.tokenizer.display_names[model.tokenizer.special_tokens.mask]
    lines = []
    for one in held_out(model, LINES):
        words = one.text.split()[:30]
        lines.append(" ".join([*words[:3], mask, *words[4:]]))
    for line, filled, answer in zip(
        lines, fill(model, lines), asked(model, [{"text": line} for line in lines], tmp_path)
    ):
        for guesses, found in zip(filled.masks, answer["candidates"], strict=True):
            logps = np.log([one.probability for one in guesses])
            close([one["score"] for one in found][: len(logps)], logps[: len(found)], line)
        compare_weights(model, line, answer)


@in_node
@pytest.mark.parametrize("name", ["dates", "french"])
def test_decodes_with_a_changed_head_are_those_of_ablate(name: str, model_of: Models, tmp_path: Path) -> None:
    """Five changes of 48 lines each: 480 decodes of the two models."""
    model = model_of(name)
    lines = [one.source for one in held_out(model, CHANGED)]
    head = {"part": "cross", "layer": 0, "head": 0}
    kinds: list[dict[str, Any]] = [
        {"kind": "one-hot", "key": change} if isinstance(change, int) else {"kind": change}
        for change in CHANGES.values()
    ]
    asks = [{"text": line, "heads": [{**head, **kind}]} for kind in kinds for line in lines]
    found = iter(asked(model, asks, tmp_path))
    different = 0
    for change in CHANGES.values():
        for line in lines:
            expected, answer = ablate(model, line, {"L0H0": change}), next(found)
            assert answer["text"] == expected.after.answer, (line, change)
            effect = answer["effect"]
            deltas = np.array(effect["scores"]) - [token["score"] for token in effect["tokens"]]
            assert np.abs(deltas - expected.deltas).max() <= 2 * LOGP, (line, change)
            different += expected.changed
    assert different > len(asks) / 4  # the changes do something


ASK = """async ([model, asks]) => {
    const text = (id) => document.getElementById(id).textContent;
    const worker = new Worker(URL.createObjectURL(new Blob([text("engine")], { type: "text/javascript" })));
    const weights = Uint8Array.from(atob(text("weights").trim()), (one) => one.charCodeAt(0)).buffer;
    const next = () => new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)));
    const ask = (message) => { const found = next(); worker.postMessage(message); return found; };
    await ask({ type: "load", model, weights });
    const found = [];
    for (const [at, one] of asks.entries()) found.push((await ask({ type: "ask", number: at + 1, ask: one })).answer);
    return found.map(({ text, tokens, parts }) => ({ text, tokens, parts: parts.map(({ name, layers }) =>
        ({ name, layers: layers.map(({ number, weights }) => ({ number, weights: Array.from(weights) })) })) }));
}"""


@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_same_in_chromium(
    name: str, model_of: Models, page_of: Callable[..., str], used: Callable[..., User]
) -> None:
    model = model_of(name)
    lines = [one.source for one in held_out(model, IN_CHROMIUM)]
    html = page_of(name, lines[0])
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)[1])
    found = used(html).page.evaluate(ASK, [data["live"], [{"text": line} for line in lines]])
    check(model, lines, found)
