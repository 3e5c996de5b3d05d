"""The engine of a page computes what PyTorch computes: log-probabilities, weights, outputs, changes of heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import NODE, Case, answers, untrained
from regard.data.fields import InputText, TargetText
from regard.data.tokenizers import train_tokenizer
from regard.models import RecurrentLmConfig, Seq2SeqConfig
from regard.readers import edit
from regard.render.page import PageData
from regard.tasks import LANGUAGE, TRANSLATE
from regard.verbs.loaded import Loaded
from regard.verbs.looking import look
from regard.verbs.search import translate

pytestmark = pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed")

SOURCES = ["3 février 2021", "12. März 1999", "1/2/03", "a b c", "ὁ λόγος 7"]
TARGETS = ["2021-02-03", "1999-03-12", "2003-02-01", "x y", "7"]
TEXTS = ["3 février 2021", "12. ?ärz 1999", "7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7", "🙂 é e\u0301 \u200f\u05d0"]


def translator(seed: int, tokens: str = "char", **settings: Any) -> Loaded:
    source, target = (train_tokenizer(tokens, lines, 300) for lines in (SOURCES, TARGETS))
    sizes = {"source_vocab": source.size, "target_vocab": target.size, "width": 12, "embed": 6, "capacity": 64}
    config = Seq2SeqConfig(**{**sizes, **settings})
    return untrained(config, TRANSLATE, {"source": InputText(source), "target": TargetText(target)}, seed)


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
    return [
        Case(f"seq2seq {own}", translator(seed, **own), [{"text": text, "top": 0} for text in TEXTS])
        for seed, own in enumerate(settings)
    ]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, list[dict[str, Any]]]]:
    found = seq2seq_cases()
    return list(zip(found, answers(found, tmp_path_factory.mktemp("engine"))))


def page(model: Loaded, text: str, **options: Any) -> dict[str, Any]:
    """The data that Python writes into the page of a text."""
    view = look(model, text, **options)
    return json.loads(PageData.fit(view.parts, view.frames or (), bool(view.layers)).json())


def close(found: Any, expected: Any, least: float) -> float:
    assert np.shape(found) == np.shape(expected)
    difference = float(np.max(np.abs(np.asarray(found, float) - np.asarray(expected, float)), initial=0.0))
    assert difference <= least, difference
    return difference


def test_outputs_and_log_probabilities_are_those_of_pytorch(cases: list[tuple[Case, list[dict[str, Any]]]]) -> None:
    for case, messages in cases:
        for ask, message in zip(case.asks, messages):
            assert message["type"] == "answer", (case.name, ask, message)
            answer = message["answer"]
            (best,) = translate(case.model, [ask["text"]])
            assert answer["text"] == best.text, case.name
            scores = [token["score"] for token in answer["tokens"]][: len(best.logps)]
            close(scores, best.logps, 1e-5)
