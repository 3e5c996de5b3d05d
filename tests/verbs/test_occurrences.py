"""Occurrences of words: their vectors in context, the nearest ones, and how well they tell senses apart."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import UserError, load
from regard.cli import main
from regard.data.fields import TargetText
from regard.data.tokenizers import word_tokenizer
from regard.models import GloveConfig
from regard.recipes import find_recipe
from regard.verbs import Loaded
from regard.verbs.neighbours import neighbours
from regard.verbs.occurrences import (
    Occurrence,
    centroid_accuracy,
    marked_occurrence,
    occurrence_layers,
    occurrence_neighbours,
    occurrences_of,
    project,
    static_neighbours,
)

LINES = ["ab ba cc", "cc ab", "bca ab cc ab", "a b c"]


def test_a_marked_word_and_its_occurrences() -> None:
    one = marked_occurrence("we *play* chess")
    assert (one.word, one.text, one.marked) == ("play", "we play chess", "we *play* chess")
    found = occurrences_of("play", ["Play it", "playing", "a play, a play"])
    assert [(one.text, one.start) for one in found] == [("Play it", 0), ("a play, a play", 2), ("a play, a play", 10)]
    for text in ("we play", "*we* *play*", "we *play"):
        with pytest.raises(UserError, match="asterisks"):
            marked_occurrence(text)


@pytest.mark.parametrize("tokens", ["word", "char", "bpe"])
def test_the_vectors_are_the_states_at_the_tokens_of_the_word(tokens: str, translator: Callable[..., Path]) -> None:
    """Of a translator, those of the encoder; the mean over the tokens of a word."""
    model = load(translator(tokens), "cpu")
    one, other = occurrences_of("ab", ["abc ab cab"])[0], Occurrence("abc ab cab", 0, 3)
    found = occurrence_layers(model, [one, other])
    module: Any = model.module
    ids = model.tokenizer.encode("abc ab cab")
    states = module.layers(torch.tensor([ids]))
    pieces = model.tokenizer.pieces(ids)
    owners = model.tokenizer.words(ids)
    for layer, expected in zip(found, states, strict=True):
        for row, word in ((0, 1), (1, 0)):
            places = [at for at, owner in enumerate(owners) if owner == word]
            mean = expected[0, places[0] : places[-1] + 1].mean(0)
            torch.testing.assert_close(layer[row], mean, msg=f"{pieces} {places}")


def test_the_nearest_occurrences_and_words(translator: Callable[..., Path]) -> None:
    model = load(translator("word"), "cpu")
    found = occurrence_neighbours(model, "cc *ab*", LINES, top=2)
    assert len(found.occurrences) == 3  # that of the question itself is left out
    vectors = occurrence_layers(model, [found.query, *found.occurrences])[-1]
    cosines = torch.cosine_similarity(vectors[1:], vectors[:1])
    best = cosines.argsort(descending=True)[:2].tolist()
    assert [one.occurrence for one in found.near] == [found.occurrences[at] for at in best]
    assert [one.cosine for one in found.near] == pytest.approx(cosines[best].tolist())
    assert len(found.points) == 4
    words = [one.word for one in static_neighbours(model, "ab", 3)]
    assert len(words) == 3
    assert "ab" not in words
    assert static_neighbours(model, "nowhere", 3) == []
    with pytest.raises(UserError, match="--text"):
        occurrence_neighbours(model, "a *zz*", LINES)


def test_the_static_neighbours_of_word_vectors_are_its_neighbours() -> None:
    """Of GloVe, by the sum of both vectors of a word, and not by one of them."""
    tokenizer = word_tokenizer(["ab", "ba", "cc", "-"])
    module = GloveConfig(vocab=tokenizer.size, width=3).build().requires_grad_(False)
    torch.manual_seed(1)
    module.embedding.weight.normal_()
    module.output.normal_()
    recipe = replace(find_recipe("glove"), model=module.config)
    model = Loaded(Path("glove"), module, torch.device("cpu"), {"text": TargetText(tokenizer)}, recipe)
    assert static_neighbours(model, "Ab", 3) == neighbours(model, "ab", 3)
    assert len(static_neighbours(model, "-", 3)) == 3  # a sign in a question of `neighbours`
    assert static_neighbours(model, "no where", 3) == []
    alone = torch.cosine_similarity(module.embedding.weight[5:], module.embedding.weight[4:5])
    assert {round(one.cosine, 4) for one in neighbours(model, "ab", 3)} != {round(each, 4) for each in alone.tolist()}


def test_a_projection_has_the_distances_of_vectors_in_a_plane() -> None:
    flat = torch.randn(6, 2).double()
    axes, _ = torch.linalg.qr(torch.randn(5, 2).double())
    vectors = flat @ axes.T + 3.0
    torch.testing.assert_close(torch.cdist(project(vectors), project(vectors)), torch.cdist(flat, flat))
    assert project(torch.ones(1, 3)).tolist() == [[0.0, 0.0]]


def test_the_accuracy_of_the_nearest_mean() -> None:
    senses = ["a", "a", "a", "b", "b", "b"]
    apart = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    assert centroid_accuracy(apart, senses) == 1.0
    assert centroid_accuracy(torch.ones(6, 4) * 0.3, senses) == 0.5  # static vectors
    mixed = apart.clone()
    mixed[0] = 11.0  # nearer to the others' mean
    assert centroid_accuracy(mixed, senses) == pytest.approx(5 / 6)


def test_the_command_prints_and_draws_them(
    translator: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, page = tmp_path / "lines.txt", tmp_path / "page.html"
    text.write_text("\n".join([*LINES, "<b> ab"]), encoding="utf-8")
    run = str(translator("word"))
    assert main(["neighbours", run, "cc *ab*", "--text", str(text), "--top", "2", "-o", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "static neighbour" in shown
    drawn = page.read_text(encoding="utf-8")
    assert drawn.count("<circle") == 5
    assert "&lt;b&gt; *ab*" in drawn
    assert "the question: cc *ab*" in drawn
    assert main(["neighbours", run, "cc *ab*", "--text", str(text), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["occurrences"] == 4
    assert set(found["near"][0]) == {"text", "start", "end", "cosine"}
    assert main(["neighbours", run, "ab", "-o", str(page)]) == 2
    assert "--text" in capsys.readouterr().err
