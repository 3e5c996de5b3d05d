"""Subject, verb and object: the sentences, how heads and offsets are scored, and models that cannot read them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encoded import fields_for
from regard.data.tokenizers import train_tokenizer
from regard.explain.coreference import ANIMAL, evaluate_coreference, pairs
from regard.explain.roles import RELATIONS, Grammar, evaluate_roles, most_attended, role_sentences, score_relation
from regard.explain.tokenized import TokenizedText, tokenize_sentence
from regard.models import BertConfig, GptConfig
from regard.report.sections import LineGallery, Table
from regard.tasks import task_of
from regard.verbs.loaded import Loaded

TINY = {"width": 8, "heads": 2, "layers": 1, "inner": 8, "context": 64}
LINES = [" ".join(one.words) + " ." for one in role_sentences()]
LINES += [version.text for pair in pairs() for version in pair] + ["The animal didn't cross the street tired. wide."]


def model_of(kind: type[BertConfig] | type[GptConfig], lines: list[str] = LINES, outputs: bool = True) -> Loaded:
    tokenizer = train_tokenizer("bpe" if len(lines) > 30 else "word", lines, 300, "[MASK]")
    config = kind(**TINY, vocab=tokenizer.size)
    if not outputs:
        config = replace(config, outputs=())
    torch.manual_seed(0)
    module = config.build()
    return Loaded(Path("tiny"), module.eval(), torch.device("cpu"), fields_for(task_of(config), tokenizer, tokenizer))


def test_the_sentences_have_one_of_each_role_in_order() -> None:
    found = role_sentences()
    assert len(found) == len({one.words for one in found}) == 100
    for one in found:
        assert 0 < one.roles["subject"] < one.roles["verb"] < one.roles["object"] < len(one.words)
        assert not any(mark in word for word in one.words for mark in "/.")
    halves = [[one.roles["verb"] - one.roles["subject"] for one in found[at::2]] for at in (0, 1)]
    for near in range(1, 6):  # the halves are alike, so that an offset of one fits the other
        assert abs(halves[0].count(near) - halves[1].count(near)) <= 5


def test_the_word_with_the_largest_weight_is_another_word_and_no_punctuation_mark() -> None:
    model = model_of(BertConfig)
    text = tokenize_sentence(model, ("The", "dog", "sees", "a", "cat"), (1, 2))
    assert isinstance(text, TokenizedText)
    pieces_of = [[at for at, word in enumerate(text.words) if word == one] for one in range(5)]
    weights = torch.zeros(1, len(text.tokens), len(text.tokens))
    (dot,) = (at for at, (piece, one) in enumerate(zip(text.pieces, text.separators)) if one and "." in piece)
    for at in pieces_of[2]:
        weights[0, at, at] = weights[0, at, 0] = weights[0, at, dot] = 0.25  # itself, a special token, the full stop
        weights[0, at, pieces_of[1]] = 0.2 / len(pieces_of[1])
        weights[0, at, pieces_of[3]] = 0.1 / len(pieces_of[3])
    assert most_attended(weights, text, 2).tolist() == [1]
    (layer,) = text.lines_from("cat", next(iter(text.weights)), 0, 4).layers
    assert [at for at, row in enumerate(layer.weights[0]) if row.any()] == [at for at in pieces_of[4] if at != dot]


def test_head_and_offset_are_selected_on_one_half_and_judged_on_the_other() -> None:
    distances = torch.tensor([-1, -1, -1, -2, -2, -2] * 5)
    hits = torch.zeros(30, 2, dtype=torch.bool)
    hits[0::2, 0] = True  # right in the half that selects only
    found = score_relation(("verb", "subject"), hits, distances, [("a", 0), ("a", 1)])
    assert (found.layer, found.head, found.selection.rate, found.test.rate) == ("a", 0, 1.0, 0.0)
    assert (found.offset, found.offset_test.rate) == (-1, 1 / 3)
    assert (found.apart.successes, found.apart.count, found.verdict) == (0, 5, "offset")
    hits[:, 1] = True
    hits[0::2, 0] = False
    found = score_relation(("verb", "subject"), hits, distances, [("a", 0), ("a", 1)])
    assert (found.head, found.test.rate, found.apart.count, found.verdict) == (1, 1.0, 10, "head")
    hits[:, 1] = distances == -1
    assert score_relation(("verb", "subject"), hits, distances, [("a", 0), ("a", 1)]).verdict == "no clear difference"


@pytest.mark.parametrize("kind", [BertConfig, GptConfig])
def test_a_causal_model_has_the_relations_to_earlier_words_only(kind: type[BertConfig] | type[GptConfig]) -> None:
    found = evaluate_roles(model_of(kind))
    assert (found.sentences, found.skipped) == (100, 0)
    names = [(one.source, one.target) for one in found.relations]
    assert names == (list(RELATIONS) if kind is BertConfig else [RELATIONS[0], RELATIONS[3]])
    _, table, lines = found.sections()
    assert isinstance(table, Table)
    assert isinstance(lines, LineGallery)
    assert len(table.rows) == len(lines.views) == len(names)


def test_the_sentence_in_the_pictures_did_not_select_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the model cannot read a sentence before it, so that the halves are other sentences."""
    first = role_sentences()[0].words

    def tokenize(model: Loaded, words: tuple[str, ...], needed: list[int]) -> TokenizedText | None:
        return None if words == first else tokenize_sentence(model, words, needed)

    monkeypatch.setattr("regard.explain.roles.tokenize_sentence", tokenize)
    found = evaluate_roles(model_of(BertConfig))
    assert found.skipped == 1
    assert found.shown is not None
    assert [one.words for one in role_sentences()[1:]].index(found.shown[1].words) % 2 == 1


def test_a_model_that_cannot_read_the_sentences() -> None:
    found = evaluate_roles(model_of(BertConfig, ["a dog sees the cat"]))
    assert isinstance(found, Grammar)
    assert (found.sentences, found.skipped, len(found.sections())) == (0, 100, 1)
    assert "cannot be evaluated" in found.summary()


def test_the_animal_is_drawn_by_a_model_without_an_output_layer() -> None:
    model = model_of(BertConfig, outputs=False)
    assert not model.predicts("masked")
    found = evaluate_coreference(model)
    *_, table, lines = found.sections()
    assert isinstance(table, Table)
    assert isinstance(lines, LineGallery)
    assert [row[0] for row in table.rows] == ["… tired", "… wide"]
    assert [view.title for view in lines.views] == ["… tired", "… wide"]
    it = found.animal[0][1].pronoun
    for view, (text, _) in zip(lines.views, found.animal):
        assert [bool(row) for row in view.layers[0].weights[0].any(axis=1)] == [word == it for word in text.words]
    assert ANIMAL.replace("*", "").split(" |")[0] in found.animal[0][1].text
