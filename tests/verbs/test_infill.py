"""Spans: what a model generated for each gap of a text, its probability, and the text with it."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from regard.data.tokenizers import Tokenizer, train_tokenizer
from regard.verbs import Filled, Guess, Translation
from regard.verbs.infilling import infill

LINES = ["the cute dog walks in the park", "the old dog sees a bird in the park and walks"]


def answered(tokenizer: Tokenizer, answers: list[str], monkeypatch: pytest.MonkeyPatch, text: str) -> Filled:
    """The text as `infill` fills it if the search finds these answers; each token has the probability 1/2."""

    def found(model: Any, texts: list[str], beam: int, nbest: int, **more: Any) -> list[Translation]:
        assert (beam, nbest) == (len(answers), len(answers))
        made = []
        for answer in answers:
            ids = tokenizer.encode(answer)
            logps = np.full(len(ids) + 1, np.log(0.5))
            made.append(Translation(0, answer, 0.0, 0.0, "end", [], ids, [], tokenizer.pieces(ids), logps))
        return made

    monkeypatch.setattr("regard.verbs.infilling.translate", found)
    model = cast(Any, SimpleNamespace(tokenizer=tokenizer, target_tokenizer=tokenizer))
    (one,) = infill(model, iter([text]), len(answers), None, 1)
    return one


@pytest.mark.parametrize("kind", ["word", "word-lower", "bpe", "byte-bpe"])
@pytest.mark.parametrize("text", ["the [MASK] walks in [MASK] park", "the <extra_id_0> walks in <extra_id_1> park"])
def test_each_gap_gets_the_span_of_the_best_answer(kind: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer(kind, LINES, 600, sentinels=5)
    answers = [
        "<extra_id_0> cute dog<extra_id_1> the<extra_id_2>",
        "<extra_id_0> old dog<extra_id_1> the<extra_id_2>",
    ]
    answers = [one.replace("<extra", " <extra").strip() for one in answers] if kind != "byte-bpe" else answers
    one = answered(tokenizer, answers, monkeypatch, text)
    assert one.text == "the cute dog walks in the park"
    assert [[guess.text for guess in mask] for mask in one.masks] == [["cute dog", "old dog"], ["the"]]


def test_the_probability_is_that_of_the_tokens_and_of_what_ends_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer("word", LINES, 600, sentinels=5)
    one = answered(tokenizer, ["<extra_id_0> cute dog <extra_id_1>"], monkeypatch, "the [MASK] walks")
    assert one.masks[0][0].probability == pytest.approx(0.5**3)
    assert one.masks[0][0].token == tokenizer.encode("cute")[0]
    assert one.masks[0][0].piece == "cute dog"


def test_a_span_inside_a_word_gets_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer("bpe", ["a b", "ab"], 30, sentinels=3)
    ids = [tokenizer.special_tokens.sentinels[0], tokenizer.pieces(range(tokenizer.size)).index("b")]
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: ids)
    assert answered(tokenizer, ["x"], monkeypatch, "a [MASK] c").text == "ab c"


def test_a_span_that_no_answer_has_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer("word", LINES, 600, sentinels=5)
    one = answered(
        tokenizer, ["<extra_id_1> the <extra_id_1> a <extra_id_2>"], monkeypatch, "[MASK] dog in [MASK] park"
    )
    assert one.masks[0] == [Guess("", "", -1, 0.0)]
    assert [guess.text for guess in one.masks[1]] == ["the"]  # the first of a sentinel that is repeated
    assert one.text == " dog in the park"
