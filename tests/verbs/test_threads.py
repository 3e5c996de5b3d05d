"""One model, many threads: every verb gives each thread what it gives a thread that is alone."""

from __future__ import annotations

import copy
import random
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from kept.answers import among
from regard import (
    ablate,
    align,
    answer,
    caption,
    classify,
    embed,
    fill,
    generate,
    generate_stream,
    look,
    rank_heads,
    score,
    translate,
)
from regard.data.example import Text
from regard.decode import Penalty
from regard.recording import record
from regard.verbs import Loaded, neighbours, tag
from regard.verbs.embedding import cosines
from regard.verbs.filters import look_filters, strongest_ngrams
from regard.verbs.labelling import choose, label_sets, rate, similarity
from regard.verbs.occurrences import marked_occurrence, occurrence_layers
from regard.verbs.prompting import Prompt, rank_labels
from regard.verbs.running import score_running
from regard.verbs.scoring import last_words
from regard.verbs.words import embed_words

KEPT = Path(__file__).parents[1] / "kept" / "format-2"
THREADS = 8
CALLS = 100
WORDS = ["the", "dog", "sees", "a", "small", "man", "likes", "old", "house", "red", "bird", "finds"]


def text(number: int, words: int = 5) -> str:
    """A text of its own for each thread."""
    return " ".join(random.Random(number).choices(WORDS, k=words))


def target(number: int) -> str:
    return " ".join(random.Random(number).choices(["der", "Hund", "sieht", "ein", "Haus", "Mann", "Vogel", "mag"], k=4))


def masked(number: int) -> str:
    return text(number, 3) + " [MASK] " + text(number + THREADS, 2)


def pair(number: int) -> tuple[str, str]:
    return text(number), text(number + THREADS)


PROMPT = Prompt("{text} {label}", {"good": "dog", "bad": "house"})

# A verb and its options → the kept run whose model has it, and the call of a thread.
CASES: Mapping[str, tuple[str, Callable[[Loaded, int], Any]]] = {
    "translate": ("seq2seq", lambda model, n: translate(model, [text(n)], limit=4)),
    "translate, transformer": (
        "transformer",
        lambda model, n: translate(model, [text(n), text(n + 8, 2)], beam=3, limit=8),
    ),
    "translate, coverage": (
        "seq2seq",
        lambda model, n: translate(model, [text(n)], beam=2, limit=8, penalty=Penalty(1.0, coverage=0.4)),
    ),
    "translate, convs2s": ("convs2s", lambda model, n: translate(model, [text(n)], limit=4)),
    "align": ("seq2seq", lambda model, n: align(model, [(text(n), target(n))])),
    "score, pairs": ("transformer", lambda model, n: score(model, [(text(n), target(n))])),
    "generate": ("gpt", lambda model, n: generate(model, [text(n, 2)], limit=3)),
    "generate, sampled": (
        "gru",
        lambda model, n: generate(model, [text(n, 2)], temperature=1.0, limit=6, seed=n),
    ),
    "generate, memory": ("transformer-xl", lambda model, n: generate(model, [text(n, 2)], limit=6)),
    "generate_stream": ("text", lambda model, n: list(generate_stream(model, text(n, 2), limit=6))),
    "score": ("gpt", lambda model, n: score(model, [text(n), text(n + 8, 3)])),
    "score, both directions": ("text-both", lambda model, n: score(model, [text(n)])),
    "score, replaced": ("electra", lambda model, n: score(model, [text(n)])),
    "score_running": ("book-lstm", lambda model, n: score_running(model, [Text(text(n, 40))])),
    "last_words": ("gpt", lambda model, n: last_words(model, [text(n)])),
    "rank_labels": ("gpt", lambda model, n: rank_labels(model, [text(n, 2)], PROMPT)),
    "fill": ("bert", lambda model, n: fill(model, [masked(n)])),
    "fill, albert": ("albert", lambda model, n: fill(model, [masked(n)])),
    "fill, contexts": ("context2vec", lambda model, n: fill(model, [masked(n)])),
    "fill, spans": ("t5", lambda model, n: fill(model, [f"{text(n, 2)} <extra_id_0> {text(n + 8, 1)}"])),
    "classify": ("classify", lambda model, n: classify(model, [text(n)])),
    "classify, headed": ("headed-gpt", lambda model, n: classify(model, [text(n)])),
    "classify, pairs": ("pair", lambda model, n: classify(model, [pair(n)])),
    "label_sets": ("multilabel", lambda model, n: label_sets(model, [text(n)])),
    "rate": ("rate", lambda model, n: rate(model, [text(n)])),
    "similarity": ("similarity", lambda model, n: similarity(model, [pair(n)])),
    "choose": ("choice", lambda model, n: choose(model, [(text(n, 2), *pair(n + 1))])),
    "tag": ("tag", lambda model, n: tag(model, [text(n)])),
    "tag, features": ("features", lambda model, n: tag(model, [text(n)])),
    "answer": ("answer", lambda model, n: answer(model, [("what does the dog see?", text(n, 9))])),
    "embed": ("embed", lambda model, n: embed(model, [text(n), text(n + 8, 3)])),
    "embed, layers": ("bert", lambda model, n: embed(model, [text(n)], pool="tokens", layers="all")),
    "embed_words": ("elmo", lambda model, n: embed_words(model, [text(n)])),
    "cosines": ("embed", lambda model, n: cosines(model, [pair(n)])),
    "neighbours": ("word2vec", lambda model, n: neighbours(model, WORDS[n])),
    "occurrence_layers": (
        "bert",
        lambda model, n: occurrence_layers(model, [marked_occurrence(f"{text(n, 2)} *{WORDS[n]}* {text(n, 1)}")]),
    ),
    "look": ("seq2seq", lambda model, n: look(model, text(n), target(n))),
    "look, transformer": ("transformer", lambda model, n: look(model, text(n), target(n))),
    "look, shared layers": ("albert", lambda model, n: look(model, text(n))),
    "ablate": ("transformer", lambda model, n: ablate(model, text(n), f"L0H{n % 2}")),
    "ablate, shared layers": ("albert", lambda model, n: ablate(model, masked(n), f"L{n % 2}H0")),
    "rank_heads": ("gpt", lambda model, n: rank_heads(model, text(n), "uniform")),
    "look_filters": ("kim", lambda model, n: look_filters(model, text(n)).__dict__),
    "strongest_ngrams": ("kim", lambda model, n: strongest_ngrams(model, [text(n), text(n + 8)])),
    "caption": ("scenes", lambda model, n: caption(model, [model.examples()[1][n % 3].image], limit=8)),
    "caption, hard": ("scenes-hard", lambda model, n: caption(model, [model.examples()[1][n % 3].image], limit=8)),
    "logits": ("xl-adaptive", lambda model, n: model.logits(torch.tensor(model.read([text(n)])))),
    "states": ("tcn", lambda model, n: model.states(torch.tensor(model.read([text(n)])))),
}
IN_MAKE_TEST = ("translate", "generate", "fill", "classify", "tag")


def together(work: Sequence[Callable[[], Any]], calls: int) -> None:
    """Each of these functions is called so many times in a thread of its own, all at once.

    All results must be those that it has alone.
    """
    alone = [function() for function in work]
    start, wrong = threading.Barrier(len(work)), list[str]()

    def repeat(number: int) -> None:
        start.wait()
        for call in range(calls):
            try:
                same = equal(work[number](), alone[number])
            except BaseException as error:  # also a failure of pytest
                wrong.append(f"thread {number}, call {call}: {error!r}")
            else:
                if not same:
                    wrong.append(f"thread {number}, call {call}: another result")

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"{len(wrong)} of {calls * len(work)} calls: {wrong[:5]}"


def equal(found: Any, expected: Any) -> bool:
    """Whether two results are equal, to the last bit."""
    if found is expected:
        return True
    if isinstance(expected, Tensor | np.ndarray):
        return found.shape == expected.shape and bool((found == expected).all())
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[name], expected[name]) for name in expected)
    if hasattr(expected, "__dataclass_fields__"):
        return all(equal(getattr(found, name), getattr(expected, name)) for name in expected.__dataclass_fields__)
    return bool(found == expected)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Loaded]:
    """Loads the model of a kept run."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))

    def load(name: str, device: str = "cpu") -> Loaded:
        with zipfile.ZipFile(KEPT / "stored" / f"{name}.zip") as packed:
            packed.extractall(tmp_path)
        return regard.load(tmp_path / "runs" / name, device, precision="float32")

    return load


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_MAKE_TEST else [pytest.mark.slow]) for name in CASES]
)
def test_threads_have_their_own_results(name: str, opened: Callable[..., Loaded]) -> None:
    run, call = CASES[name]
    model = opened(run)
    with among(KEPT):  # the made-up images of a captioner
        together([lambda number=number: call(model, number) for number in range(THREADS)], CALLS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [*IN_MAKE_TEST, "translate, transformer", "generate, sampled", "look"])
def test_threads_on_a_gpu_have_their_own_results(name: str, opened: Callable[..., Loaded]) -> None:
    """The first calls of each thread capture the steps, and the others replay them."""
    run, call = CASES[name]
    model = opened(run, "cuda")
    together([lambda number=number: call(model, number) for number in range(THREADS)], CALLS)


@pytest.mark.parametrize("run", ["seq2seq", "transformer"])
def test_threads_record_edit_look_and_call_at_once(run: str, opened: Callable[..., Loaded]) -> None:
    model = opened(run)

    def first_key(weights: Tensor) -> Tensor:
        return torch.zeros_like(weights).index_fill(-1, torch.tensor(0), 1.0)

    def edited(number: int) -> Any:
        with regard.edit(model.module, {"decoder.*": first_key}):
            return translate(model, [text(number)], limit=6)

    def recorded(number: int) -> Any:
        with record(model.module) as tape:
            found = translate(model, [text(number)], limit=6)
        return found, {name: tape[name] for name in tape}

    def both(number: int) -> Any:
        with regard.edit(model.module, {"decoder.*": first_key}), record(model.module, "decoder.*") as tape:
            found = score(model, [(text(number), target(number))])
        return found, {name: tape[name] for name in tape}

    def fails(number: int) -> Any:
        def broken(weights: Tensor) -> Tensor:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), regard.edit(model.module, {"*": broken}), record(model.module):
            translate(model, [text(number)], limit=6)
        return "raised"

    kinds = [
        lambda number: translate(model, [text(number)], limit=6),
        edited,
        recorded,
        both,
        lambda number: look(model, text(number), target(number)),
        lambda number: align(model, [(text(number), target(number))]),
        fails,
        lambda number: translate(model, [text(number)], beam=2, limit=6),
    ]
    assert not equal(edited(0), translate(model, [text(0)], limit=6))
    together([lambda number=number, kind=kind: kind(number) for number, kind in enumerate(kinds)], 25)


def test_a_model_that_has_searched_is_copied(opened: Callable[..., Loaded]) -> None:
    model = opened("seq2seq")
    lines = [text(number) for number in range(6)]
    found = translate(model, lines, limit=6)  # packs weights, which torch cannot copy
    assert equal(translate(copy.deepcopy(model), lines, limit=6), found)
