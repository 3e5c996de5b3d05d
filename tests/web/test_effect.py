"""What changes of heads do to an answer, in the engine of a page, is what `ablate` and `rank_heads` say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import NODE, Case, answers
from test_engine import translator
from test_transformers import MODELS, loaded

from regard.verbs.ablating import ablate, rank_heads
from regard.verbs.head_changes import heads_of

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="the engine of a page runs in Node, which is not installed"),
    pytest.mark.slow,
]  # `make journeys` runs it

KINDS = ("transformer", "gpt", "bert", "class-concat", "class-pair", "labels", "albert-groups")
TEXT = "3 février 2021"


def asked(model: Any, text: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Changes of heads as `ablate` takes them, and the question to the engine."""
    heads = heads_of(model)
    changes = [
        {head.name: kind for head in some} for some in (heads[:1], heads[-2:]) for kind in ("off", "one-hot", "uniform")
    ]
    places = {head.name: {"part": head.part, "layer": head.layer, "head": head.head} for head in heads}
    second = {"second": "c b"} if model.joined_text is not None else {}
    made = [[{**places[name], "kind": kind} for name, kind in change.items()] for change in changes]
    return [(change, {"text": text, "heads": ask, **second}) for change, ask in zip(changes, made)]


def test_the_effect_of_changed_heads_is_that_of_ablate(tmp_path: Path) -> None:
    models = {name: loaded(name, MODELS[name], seed) for seed, name in enumerate(KINDS)}
    # a window belongs to the score: a change of a head gives weights outside of it, too
    models["window"] = translator(1, decoder="luong", window="local-m", radius=2)
    questions = {name: asked(model, TEXT) for name, model in models.items()}
    ranks = [{"text": TEXT}]
    cases = [
        Case(name, model, [ask for _, ask in questions[name]], [] if name == "class-pair" else ranks)
        for name, model in models.items()
    ]
    for case, messages in zip(cases, answers(cases, tmp_path)):
        for (change, ask), message in zip(questions[case.name], messages):
            effect = message["answer"]["effect"]
            expected = ablate(case.model, (TEXT, ask["second"]) if "second" in ask else TEXT, change)
            scores = [token["score"] for token in effect["tokens"]]
            assert scores == pytest.approx(expected.before.logps, abs=1e-4), (case.name, change)
            assert effect["scores"] == pytest.approx(expected.after.logps, abs=1e-4), (case.name, change)
            assert (effect["after"], effect["changed"]) == (expected.after.answer, expected.changed), (
                case.name,
                change,
            )
        if case.ranks:
            found = {(one["part"], one["layer"], one["head"]): one for one in messages[-1]["damages"]}
            for one in rank_heads(case.model, TEXT):
                damage = found[one.part, one.layer, one.head]
                assert damage["changed"] == one.changed, (case.name, one)
                np.testing.assert_allclose(damage["difference"], one.delta, atol=2e-4, err_msg=f"{case.name} {one}")
