"""The engine of a page computes what PyTorch computes: log-probabilities, weights, outputs, changes of heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine import NODE, Case, answers, untrained

from regard.data.fields import InputText, LabelField, TargetText
from regard.data.tokenizers import EOS, train_tokenizer
from regard.heads import ClassHeadConfig
from regard.models import HeadedConfig, RecurrentLmConfig, Seq2SeqConfig, StructuredConfig
from regard.readers import edit
from regard.render.formatting import escape_directions
from regard.render.page import PageData
from regard.render.view_data import Layer
from regard.tasks import CLASSIFY, LANGUAGE, TRANSLATE
from regard.verbs.forced import token_logps
from regard.verbs.generating import generate
from regard.verbs.labelling import classify
from regard.verbs.loaded import Loaded
from regard.verbs.looking import look
from regard.verbs.search import translate

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed"),
    pytest.mark.slow,
]  # `make journeys` runs it

SOURCES = ["3 février 2021", "12. März 1999", "1/2/03", "a b c", "ὁ λόγος 7"]
TARGETS = ["2021-02-03", "1999-03-12", "2003-02-01", "x y", "7"]
TEXTS = ["3 février 2021", "12. ?ärz 1999", "7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7", "🙂 é e\u0301 \u200f\u05d0"]


def translator(seed: int, tokens: str = "char", **settings: Any) -> Loaded:
    source, target = (train_tokenizer(tokens, lines, 300) for lines in (SOURCES, TARGETS))
    sizes = {"source_vocab": source.size, "target_vocab": target.size, "width": 12, "embed": 6, "capacity": 64}
    config = Seq2SeqConfig(**{**sizes, **settings})
    model = untrained(config, TRANSLATE, {"source": InputText(source), "target": TargetText(target)}, seed)
    with torch.no_grad():
        model.module.get_parameter("readout_.bias")[EOS] += 2.5  # most answers end before the limit
    return model


def seq2seq_cases() -> list[Case]:
    """All cells, decoders, scores and windows, and one or two layers."""
    settings: list[dict[str, Any]] = [
        {"cell": cell, "decoder": decoder, "layers": 1 + (number % 2)}
        for number, (cell, decoder) in enumerate(
            (cell, decoder)
            for cell in ("rnn", "lstm", "gru")
            for decoder in ("once", "every", "bahdanau", "luong", "luong-feeding")
        )
    ]
    settings += [
        {"score": score, "decoder": decoder, "window": window, "radius": 3}
        for score, decoder, window in (
            ("dot", "bahdanau", "none"),
            ("scaled_dot", "luong", "none"),
            ("general", "luong-feeding", "local-p"),
            ("cosine", "bahdanau", "local-m"),
            ("location", "luong", "none"),
            ("additive", "luong", "local-p"),
            ("location", "bahdanau", "local-m"),
        )
    ]
    settings += [{"tokens": tokens} for tokens in ("word", "word-lower", "bpe", "byte-bpe")]
    asks = [{"text": text, **more} for text in TEXTS[:2] for more in ({}, {"beam": 3})]
    asks += [
        {"text": TEXTS[0], "target": "2021-02"},
        {"text": TEXTS[2]},
        {"text": TEXTS[3]},
        {"text": TEXTS[0], "top": 0},
    ]
    return [Case(f"seq2seq {own}", translator(seed, **own), asks) for seed, own in enumerate(settings)]


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "off": lambda weights: weights * 0,
    "uniform": lambda weights: (weights > 0).float() / (weights > 0).sum(-1, keepdim=True),
    "one-hot": lambda weights: torch.zeros_like(weights).scatter_(-1, weights.argmax(-1, keepdim=True), 1.0),
}


def changed_cases() -> list[Case]:
    """The changes of the one head of a recurrent translator."""
    asks = [
        {"text": text, "heads": [{"part": "cross", "layer": 0, "head": 0, "kind": kind}]}
        for text in TEXTS[:3]
        for kind in CHANGES
    ]
    return [
        Case(f"changed {decoder}", translator(seed, decoder=decoder), asks, [{"text": TEXTS[0]}])
        for seed, decoder in enumerate(("bahdanau", "luong", "luong-feeding"))
    ]


def traced_cases() -> list[Case]:
    """One cell of each score, by the state before the step or at it, and scores in place of the model's own."""
    found, head = [], {"part": "cross", "layer": 0, "head": 0}
    for seed, score in enumerate(("dot", "scaled_dot", "general", "additive", "cosine", "location")):
        model = translator(seed, score=score, decoder=("luong", "bahdanau")[seed % 2])
        cell = {**head, "column": 2}
        asks: list[dict[str, Any]] = [
            {"text": TEXTS[0], "target": "2021", "cell": {**cell, "row": row}} for row in (0, 1)
        ]
        asks += [{**asks[0], "score": other} for other in ("dot", "scaled_dot")]
        asks.append({**asks[0], "masks": {"columns": [1, 3]}})
        found.append(Case(score, model, asks))
    found.append(Case("window", translator(7, window="local-p", radius=4), found[0].asks[:1]))
    return found


def language_cases() -> list[Case]:
    """Recurrent language models."""
    settings: list[dict[str, Any]] = [
        {"cell": "rnn", "tokens": "char"},
        {"cell": "lstm", "tokens": "byte-bpe", "tied": True, "embed": 10, "hidden": 7},
        {"cell": "gru", "tokens": "bpe", "layers": 3},
        {"cell": "lstm", "tokens": "word-lower", "layers": 1},
        {"cell": "gru", "tokens": "char", "layers": 2, "hidden": 13},
    ]
    found = []
    for seed, own in enumerate(settings):
        tokenizer = train_tokenizer(own.pop("tokens"), SOURCES, 300)
        config = RecurrentLmConfig(**{"vocab": tokenizer.size, "width": 10, "embed": 6, **own})
        model = untrained(config, LANGUAGE, {"text": TargetText(tokenizer)}, seed)
        asks: list[dict[str, Any]] = [{"text": text} for text in TEXTS]
        asks += [{"text": TEXTS[0], "limit": 12, **more} for more in ({}, {"beam": 3})]
        found.append(Case(f"language {own}", model, asks))
    return found


def structured_cases() -> list[Case]:
    """Classifiers by structured self-attention."""
    tokenizer, field = train_tokenizer("char", SOURCES, 300), LabelField(("good", "bad", "<b>"))
    found = []
    for seed, cell in enumerate(("rnn", "lstm", "gru")):
        config = StructuredConfig(vocab=tokenizer.size, labels=3, width=8, embed=5, cell=cell, attention=6, layers=2)
        model = untrained(config, CLASSIFY, {"text": InputText(tokenizer), "label": field}, seed)
        found.append(Case(f"structured {cell}", model, [{"text": text} for text in TEXTS], [{"text": TEXTS[0]}]))
    bodies = [
        RecurrentLmConfig(vocab=tokenizer.size, width=8, embed=5),
        StructuredConfig(vocab=tokenizer.size, labels=3, width=8, embed=5),
    ]
    for seed, body in enumerate(bodies):
        headed = HeadedConfig(body, ClassHeadConfig(labels=3, hidden="relu" if seed else "auto"))
        model = untrained(headed, CLASSIFY, {"text": InputText(tokenizer), "label": field}, seed)
        found.append(Case(f"a class of {type(body).__name__}", model, [{"text": text} for text in TEXTS]))
    return found


Answered = list[tuple[Case, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answered]:
    """The answers to all cases, by group."""
    groups = {
        "seq2seq": seq2seq_cases(),
        "changed": changed_cases(),
        "traced": traced_cases(),
        "language": language_cases(),
        "structured": structured_cases(),
    }
    found = iter(answers([case for group in groups.values() for case in group], tmp_path_factory.mktemp("engine")))
    return {name: [(case, next(found)) for case in group] for name, group in groups.items()}


def page(model: Loaded, text: str, **options: Any) -> dict[str, Any]:
    """The data that Python writes into the page of a text."""
    view = look(model, text, **options)
    matrix = view.matrix()
    shown = view.parts or {"": [Layer(matrix.label, matrix.weights[None], matrix.rows, matrix.columns)]}
    return PageData.fit(shown, view.frames or (), bool(view.layers)).to_json()


def close(found: Any, expected: Any, least: float) -> float:
    assert np.shape(found) == np.shape(expected)
    difference = float(np.max(np.abs(np.asarray(found, float) - np.asarray(expected, float)), initial=0.0))
    assert difference <= least, difference
    return difference


def compare_parts(found: dict[str, Any], expected: dict[str, Any], name: str) -> None:
    """The parts and frames of an answer are those that Python writes into a page."""
    assert [part["name"] for part in found["parts"]] == [part["name"] for part in expected["parts"]], name
    for mine, theirs in zip(found["parts"], expected["parts"]):
        for key in ("rows", "columns", "labels", "widest", "tall", "unknown", "special", "steps", "chain", "captions"):
            assert mine[key] == theirs[key], (name, key)
        for ours, layer in zip(mine["layers"], theirs["layers"], strict=True):
            assert [ours[key] for key in ("label", "number", "heads")] == [
                layer[key] for key in ("label", "number", "heads")
            ]
            weights = np.reshape(ours["weights"], np.shape(layer["weights"]))
            close(weights, layer["weights"], 2e-6)
            if layer["contexts"] is not None:
                close(ours["contexts"], layer["contexts"], 1e-5)
    for mine, theirs in zip(found["frames"], expected["frames"], strict=True):
        assert [mine["token"], mine["text"]] == [theirs["token"], theirs["text"]], name
        assert [piece for piece, *_ in mine["top"]] == [piece for piece, *_ in theirs["top"]], name
        close([numbers for _, *numbers in mine["top"]], [numbers for _, *numbers in theirs["top"]], 1e-4)
        close(mine["state"], theirs["state"], 1e-5)
        assert (mine["before"] is None) == (theirs["before"] is None)
        if mine["before"] is not None:
            close(mine["before"], theirs["before"], 1e-5)


def test_outputs_and_log_probabilities_are_those_of_pytorch(every: dict[str, Answered]) -> None:
    for case, messages in every["seq2seq"]:
        for ask, message in zip(case.asks, messages):
            answer = message["answer"]
            if "target" in ask:
                continue
            (best,) = translate(case.model, [ask["text"]], beam=ask.get("beam", 1))
            assert answer["text"] == best.text, (case.name, ask)
            scores = [token["score"] for token in answer["tokens"]][: len(best.logps)]
            # a beam of Python gives the differences of sums, each of which is rounded
            close(scores, best.logps, 1e-5 if ask.get("beam", 1) == 1 else 1e-4)
            assert bool(answer["notes"]) == (best.ended == "limit")
            if "distributions" in answer:
                close(np.exp(answer["distributions"]).sum(-1), np.ones(len(answer["tokens"])), 1e-5)


def test_the_parts_and_frames_are_those_of_the_page(every: dict[str, Answered]) -> None:
    """Also of beams, given targets, and models without a source."""
    for case, messages in (*every["seq2seq"], *every["language"], *every["structured"]):
        for ask, message in zip(case.asks, messages):
            if ask.get("top") != 0 and "limit" not in ask:
                options = {name: ask[name] for name in ("beam", "target") if name in ask}
                compare_parts(message["answer"], page(case.model, ask["text"], **options), f"{case.name} {ask}")


def test_changes_of_heads_are_those_of_edit(every: dict[str, Answered]) -> None:
    for case, messages in every["changed"]:
        for ask, message in zip(case.asks, messages):
            with edit(case.model.module, {"decoder.attention": CHANGES[ask["heads"][0]["kind"]]}):
                (best,) = translate(case.model, [ask["text"]])
                compare_parts(message["answer"], page(case.model, ask["text"]), f"{case.name} {ask}")
            assert message["answer"]["text"] == best.text, (case.name, ask)


def test_a_ranking_has_the_difference_that_a_head_makes(every: dict[str, Answered]) -> None:
    for case, messages in every["changed"]:
        (damage,) = messages[-1]["damages"]
        (best,) = translate(case.model, [case.ranks[0]["text"]])
        pair = best.source_tokens, best.tokens
        (whole,) = token_logps(case.model, [pair])
        with edit(case.model.module, {"decoder.attention": CHANGES["off"]}):
            (without,) = translate(case.model, [case.ranks[0]["text"]])
            (changed,) = token_logps(case.model, [pair])
        assert damage["changed"] == (without.text != best.text)
        assert damage["text"] == without.text
        close(damage["difference"], changed.sum() - whole.sum(), 1e-4)


def test_each_line_of_a_trace_follows_from_those_above(every: dict[str, Answered]) -> None:
    for case, messages in every["traced"]:
        for ask, message in zip(case.asks, messages):
            answer, column = message["answer"], ask["cell"]["column"]
            lines = {line["name"]: np.array(line["values"], float) for line in answer["trace"]["lines"]}
            named = {line["name"]: line for line in answer["trace"]["lines"]}
            frame = answer["frames"][ask["cell"]["row"]]
            state = frame["state"] if frame["before"] is None else frame["before"]
            close(lines["s"] if "s" in lines else lines["q"], state, 1e-7)
            score = ask.get("score", case.name if case.name != "window" else "additive")
            logit = logit_of(score, lines)
            close(logit, lines["logits"][named["logits"]["at"]], 1e-6)
            logits = lines.get("mask", lines["logits"])
            powers = np.exp(logits - logits.max())
            close(lines["softmax"], powers / powers.sum(), 1e-6)
            weights = lines.get("window", lines["softmax"])
            layer = answer["parts"][0]["layers"][0]
            row = np.reshape(layer["weights"], (len(answer["frames"]), -1))[ask["cell"]["row"]]
            close(weights, row, 1e-7)
            close(lines["weight · v"], weights[column] * lines["v"], 1e-6)
            close(lines["Σ over keys"], lines["weight · v"] + lines["the other keys"], 1e-6)
            close(lines["Σ over keys"], layer["contexts"][0][ask["cell"]["row"]], 1e-6)
            if "masks" in ask:
                assert row[1] == row[3] == 0


def logit_of(score: str, lines: dict[str, Any]) -> float:
    """The logit of a cell, computed again from the lines of its trace."""
    if score == "location":
        return float(lines["(Wq)ⱼ"][0])
    if score == "additive":
        close(lines["tanh"], np.tanh(lines["Wq"] + lines["Uk"]), 1e-6)
        close(lines["Σ"], [(lines["v ⊙ tanh"]).sum()], 1e-6)
        return float((lines["vector v"] * lines["tanh"]).sum())
    total = float((lines["q"] * lines["k"]).sum())
    close(lines["q ⊙ k"].sum(), total, 1e-6)
    close(lines["Σ"][0], total, 1e-6)
    return total / len(lines["q"]) ** 0.5 if score == "scaled_dot" else total


def test_a_ranking_of_a_classifier_has_the_difference_of_its_class(every: dict[str, Answered]) -> None:
    for case, messages in every["structured"][:3]:
        (damage,) = messages[-1]["damages"]
        (whole,) = classify(case.model, [TEXTS[0]])
        with edit(case.model.module, {"attention": CHANGES["off"]}):
            (without,) = classify(case.model, [TEXTS[0]])
        assert damage["text"] == without.label
        close(damage["difference"], np.log(without.labels[whole.label] / whole.probability), 1e-5)


def test_a_language_model_goes_on_after_the_text(every: dict[str, Answered]) -> None:
    for case, messages in every["language"]:
        for ask, message in zip(case.asks, messages):
            if "limit" not in ask:
                continue
            answer, beam = message["answer"], ask.get("beam", 1)
            (expected,) = generate(case.model, [ask["text"]], limit=ask["limit"], beam=beam)
            given = answer["given"]
            ids = [token["id"] for token in answer["tokens"]]
            assert ids[:given] == case.model.tokenizer.encode(ask["text"]), case.name
            assert answer["text"] == ask["text"] + expected.text, (case.name, ask)
            assert len(answer["frames"]) == len(ids) == len(answer["candidates"])


def test_classes_and_their_probabilities(every: dict[str, Answered]) -> None:
    for case, messages in every["structured"]:
        for ask, message in zip(case.asks, messages):
            (expected,) = classify(case.model, [ask["text"]])
            answer = message["answer"]
            assert [answer["text"], answer["tokens"][0]["piece"]] == [expected.label] * 2
            found = {token["piece"]: np.exp(token["score"]) for token in answer["candidates"][0]}
            close([found[name] for name in expected.labels], list(expected.labels.values()), 1e-6)


HOSTILE = [
    "  a  b \n c\td\r\n",
    "e\u0301 o\u0308\u0323 \u0323\u0308o \u1100\u1161\u11a8 \u212b \ufb01 \u0345\u03b1 \u0344",
    "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 👍🏽",
    "\u05e9\u05dc\u05d5\u05dd \u0639\u0644\u064a\u0643\u0645 \u200f\u202eabc\u202c \u2066x",
    "a\x00b\x07\x1b[31m\x7f\x85\u2028z\x1c",
    "\u00a0x\u00a0y\u2003z\u3000w\u200bv\ufeff",
    "ÄÖÜ ẞ İ I ΣΑΣ ΌΣΟΣ ǅ ½ ² Ⅷ ٣٤٥",
    "日本語 中文字 한국어 ภาษาไทย हिन्दी",
    "don't I'll we've it's they're'd 's 'S",
    "<eos> <s> < pad > [MASK] [MASK]a  [MASK]b",
    "▁a ▁▁ b▁ \ue000\U0010ffff\ufffe",
    "ab" * 2000 + " " * 100 + "é" * 5000,
]
MOST = 512  # the tokens of a text that a page reads


def test_tokenizers_give_equal_ids_and_texts(tmp_path: Path) -> None:
    cases = []
    for kind in ("char", "word", "word-eos", "word-lower", "bpe", "byte-bpe"):
        mask = "[MASK]" if kind in ("word", "bpe", "byte-bpe") else None
        tokenizer = train_tokenizer(kind, [*SOURCES, *HOSTILE[:8]], 400, mask=mask)
        config = RecurrentLmConfig(vocab=tokenizer.size, cell="rnn", width=2, embed=2, layers=1)
        model = untrained(config, LANGUAGE, {"text": TargetText(tokenizer)}, 1)
        texts = [*HOSTILE[: None if kind == "bpe" else -1], "".join(HOSTILE[:3])]  # the last one is long
        cases.append(Case(kind, model, [{"text": text, "top": 1} for text in texts]))
    for case, messages in zip(cases, answers(cases, tmp_path)):
        tokenizer = case.model.tokenizer
        for ask, message in zip(case.asks, messages):
            ids = tokenizer.encode(ask["text"].strip())[:MOST]
            wrapped = tokenizer.special_tokens.wrap_target(ids)
            answer = message["answer"]
            assert answer["source"]["ids"] == wrapped, (case.name, ask)
            assert answer["text"] == tokenizer.decode(ids), (case.name, ask)
            texts = [token["text"] for token in answer["tokens"]]
            assert texts == [escape_directions(part) for part in tokenizer.parts(wrapped)[1:]], (case.name, ask)
