"""The model of a page: what it holds, and why a page stays still."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine import NODE, Case, answers, live, untrained

from regard.data.fields import InputText, TagsField, TargetText
from regard.data.tokenizers import SpecialTokens, train_tokenizer
from regard.data.word_pieces import PieceText
from regard.heads import TagHeadConfig
from regard.models import BertConfig, GptConfig, HeadedConfig, RecurrentLmConfig, Seq2SeqConfig, TransformerConfig
from regard.tasks import LANGUAGE, TASKS, TRANSLATE
from regard.verbs import ablate, living, look_ablated
from regard.verbs.generating import generate
from regard.verbs.living import Still, live_model
from regard.verbs.loaded import Loaded

TOKENS = train_tokenizer("char", ["a b c", "cab"], 40)


def translator(**settings: Any) -> Loaded:
    sizes = {"source_vocab": TOKENS.size, "target_vocab": TOKENS.size, "width": 8, "embed": 4}
    config = Seq2SeqConfig(**{**sizes, **settings})
    return untrained(config, TRANSLATE, {"source": InputText(TOKENS), "target": TargetText(TOKENS)}, 1)


def language(**settings: Any) -> Loaded:
    config = RecurrentLmConfig(**{"vocab": TOKENS.size, "width": 8, "embed": 8, **settings})
    return untrained(config, LANGUAGE, {"text": TargetText(TOKENS)}, 1)


def why(model: Loaded) -> str:
    found = live_model(model)
    assert isinstance(found, Still)
    return found.why


def test_a_page_says_why_it_stays_still(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "long=window its end" in why(replace(language(), long="window"))
    assert why(language(softmax="adaptive", cutoffs=(4,))) == "the engine of a page has no softmax=adaptive"
    public = replace(TOKENS, kind="sentencepiece", special_tokens=SpecialTokens(0, 1, 2))
    assert why(replace(language(), fields={"text": TargetText(public)})) == (
        "the engine of a page has no public tokenizer (sentencepiece)"
    )
    bert = BertConfig(vocab=TOKENS.size, width=8, heads=2, layers=1, context=12)
    pieces = {"text": PieceText(TOKENS), "tags": TagsField(("a", "b"))}
    tagger = untrained(HeadedConfig(bert, TagHeadConfig(labels=2)), TASKS["tag"], pieces, 1)
    assert why(tagger) == "the engine of a page has no tags of words that are read in pieces (char)"
    model = translator()
    monkeypatch.setattr(living, "MOST_PARAMETERS", 100)
    assert why(model) == f"{model.parameter_count:,} parameters; a page computes models of up to 100"


def test_a_page_has_the_weights_once_and_no_path() -> None:
    model = language(tied=True, embedding="/home/me/vectors.txt")
    found = live(model)
    assert len(found.weights) == 4 * sum(parameter.numel() for parameter in model.module.parameters())
    place = found.data["tensors"]["embedding.weight"]
    stored = np.frombuffer(found.weights, "<f4")[place["offset"] :][: np.prod(place["shape"])]
    weight = model.module.get_parameter("embedding.weight").detach()
    assert np.array_equal(stored.reshape(place["shape"]), weight.numpy())
    assert str(Path.home()) not in json.dumps(found.data)
    assert "vectors.txt" not in json.dumps(found.data)
    assert found.about == f"{model.parameter_count:,} parameters in float32, 0.0 MB"


@pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")
def test_large_weights_are_float16_and_their_difference_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The engine computes with the rounded weights what PyTorch computes with them."""
    monkeypatch.setattr(living, "MOST_EXACT", 100)
    model = translator(decoder="luong")
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    found = live_model(model, ["a b cab"])
    assert not isinstance(found, Still)
    assert len(found.weights) == 2 * model.parameter_count
    assert found.difference is not None
    assert 0 < found.difference < 0.1
    assert f"differ by at most {found.difference:.1g}" in found.about
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.module.state_dict().items())
    (messages,) = answers([Case("float16", model, [{"text": "a b cab", "target": "abc", "top": 0}])], tmp_path)
    with torch.no_grad():
        for tensor in model.module.state_dict().values():
            tensor.copy_(tensor.half())
    monkeypatch.undo()
    (exact,) = answers([Case("rounded", model, [{"text": "a b cab", "target": "abc", "top": 0}])], tmp_path)
    assert messages[0]["answer"]["distributions"] == exact[0]["answer"]["distributions"]


@pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")
def test_odd_questions_have_an_answer_or_a_message(tmp_path: Path) -> None:
    head = {"part": "cross", "layer": 0, "head": 0}
    asks: list[dict[str, Any]] = [
        {"text": " \n "},
        {"text": "abc", "forced": [99]},
        {"text": "abc", "forced": [5, 6], "limit": 1},
        {"text": "abc", "forced": [2, 5]},
        {"text": "abc", "masks": {"columns": [0, 1, 2]}},
        {"text": "abc", "masks": {"columns": [-1, 10**6], "window": 0, "causal": True}},
        {
            "text": "abc",
            "heads": [{**head, "kind": "row", "row": 0, "weights": [7]}, {**head, "kind": "one-hot", "key": 9}],
        },
        {"text": "abc", "heads": [{"part": "decoder", "layer": 9, "head": 9, "kind": "off"}]},
        {"text": "abc", "cell": {**head, "row": 0, "column": 999}},
        {"text": "abc", "target": "", "top": 1000},
        {"text": "abc", "hidden": [0], "second": "x", "beam": 9, "limit": 3},
        {"text": "abc", "target": "cab", "heads": [{**head, "kind": "off"}]},
        {"text": "\ud800 <b>&\x00" + "a" * 10_000},
    ]
    (found,) = answers([Case("odd", translator(), asks)], tmp_path)
    messages = [each.get("message", "") for each in found]
    assert messages[:2] == ['the text is empty; write one, such as "3 March 2021"', "the model has no token 99"]
    assert not any(messages[2:]), [message for message in messages if message]
    hidden = found[4]["answer"]["parts"][0]["layers"][0]
    assert not any(hidden["weights"])
    assert hidden["masked"][0] == [[0, 3]]
    assert found[2]["answer"]["tokens"][0]["id"] == 5
    assert [token["id"] for token in found[3]["answer"]["tokens"]] == [2]
    given = found[-2]["answer"]["effect"]  # a given target is no answer of the model
    assert (given["given"], given["after"]) == (True, "cab")
    assert "given" not in found[6]["answer"]["effect"]
    assert found[-1]["answer"]["notes"][0].endswith("but the model reads at most 256: the rest is left out")


@pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")
def test_a_language_model_stops_at_the_end_of_its_context(tmp_path: Path) -> None:
    config = GptConfig(vocab=TOKENS.size, width=8, heads=2, layers=1, context=12)
    model = untrained(config, LANGUAGE, {"text": TargetText(TOKENS)}, 1, scale=1.0)
    asks = [{"text": "a b c", "limit": 100}, {"text": "abc" * 10, "limit": 100}]
    (found,) = answers([Case("context", model, asks)], tmp_path)
    (expected,) = generate(model, ["a b c"], limit=100)
    assert found[0]["answer"]["text"] == "a b c" + expected.text
    assert len(found[1]["answer"]["tokens"]) == 12


@pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")
def test_the_page_of_a_changed_model_computes_the_changed_model(tmp_path: Path) -> None:
    """Also where a query may not look at the key that a head is set to, and with weights given for all queries."""
    size: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "context": 40}
    pair = TransformerConfig(source_vocab=TOKENS.size, target_vocab=TOKENS.size, **size)
    fields = {"source": InputText(TOKENS), "target": TargetText(TOKENS)}
    gpt = GptConfig(vocab=TOKENS.size, width=16, heads=2, layers=2, context=40)
    models = [
        (untrained(pair, TRANSLATE, dict(fields), 3), {"cross:L0H1": 2, "L1H0": "uniform", "decoder:L1H1": 3}, 3),
        (untrained(gpt, LANGUAGE, {"text": TargetText(TOKENS)}, 4), {"L0H0": 3, "L1H1": (0.5, 0.25)}, 1),
    ]
    views = [look_ablated(model, "a b cab", heads, beam) for model, heads, beam in models]
    asks = []
    for view, (_, _, beam) in zip(views, models):
        assert view.origin is not None
        assert view.origin.beam == beam
        asks.append({"text": view.origin.texts[0], "beam": beam, "heads": view.origin.heads})
    cases = [Case(f"changed {at}", model, [ask]) for at, (ask, (model, _, _)) in enumerate(zip(asks, models))]
    for (model, heads, beam), view, (message,) in zip(models, views, answers(cases, tmp_path)):
        answer, expected = message["answer"], ablate(model, "a b cab", heads, beam)
        drawn = {layer.label: layer for layer in view.layers}
        for part in answer["parts"]:
            for layer in part["layers"]:
                shape = drawn[layer["label"]].weights.shape
                np.testing.assert_allclose(
                    np.reshape(layer["weights"], shape), drawn[layer["label"]].weights, atol=2e-6
                )
        assert answer["effect"]["after"] == expected.after.answer
        assert answer["effect"]["scores"] == pytest.approx(expected.after.logps, abs=2e-5)
        assert abs(expected.delta) > 1e-3
