"""Occurrences of words: their vectors in context, the nearest ones, and how well they tell senses apart."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import UserError, load
from regard.cli import main
from regard.cli.neighbours import occurrence_sections
from regard.data.fields import TargetText
from regard.data.sources import Lines
from regard.data.tokenizers import train_tokenizer, word_tokenizer
from regard.models import ElmoConfig, GloveConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe, find_recipe
from regard.verbs import Loaded
from regard.verbs.neighbours import neighbours
from regard.verbs.occurrences import (
    Occurrence,
    marked_occurrence,
    occurrence_layers,
    occurrence_neighbours,
    occurrences_of,
    project,
    static_neighbours,
)
from regard.verbs.words import embed_words
from saved import save_run

LINES = ["ab ba cc", "cc ab", "bca ab cc ab", "a b c"]


def test_an_excerpt_is_cut_between_words_around_the_marked_one() -> None:
    one = marked_occurrence(f"{'far ' * 50}near the *bank* of {'it ' * 50}")
    assert one.excerpt(12).marked == "… near the *bank* of it it …"
    short = marked_occurrence("near the *bank*")
    assert short.excerpt(12).marked == short.marked


def test_a_marked_word_and_its_occurrences() -> None:
    one = marked_occurrence("we *play* chess")
    assert (one.word, one.text, one.marked) == ("play", "we play chess", "we *play* chess")
    found = occurrences_of("play", ["Play it", "playing", "a play, a play"])
    assert [(one.text, one.start) for one in found] == [("Play it", 0), ("a play, a play", 2), ("a play, a play", 10)]
    for text in ("we play", "*we* *play*", "we *play", "we * * play"):
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
    assert found.in_context
    words = [one.word for one in static_neighbours(model, "ab", LINES, 3)]
    assert len(words) == 3
    assert "ab" not in words
    assert static_neighbours(model, "nowhere", LINES, 3) == []
    assert occurrence_sections(found, "run", "lines.txt")[0].columns[2] == "static neighbour"
    alone = occurrence_sections(replace(found, static=[]), "run", "lines.txt")[0]
    assert alone.columns == ["cosine", "occurrence"]
    with pytest.raises(UserError, match="--text"):
        occurrence_neighbours(model, "a *zz*", LINES)


def test_static_neighbours_of_a_model_of_characters_are_words_of_the_texts(tmp_path: Path) -> None:
    """Its static vector of a word is the first layer, which is the same in every sentence."""
    tokenizer = train_tokenizer("word", ["ab"], 40)
    config = ElmoConfig(tokenizer.size, width=8, cells=8, embed=4, kernels=(1, 2), filters=(8, 8))
    recipe = Recipe("tiny", "tiny", Lines(), config, TeacherForcing(), Plan(), ("perplexity",))
    model = load(save_run(tmp_path / "run", recipe, config.directed(), {"text": TargetText(tokenizer)}), "cpu")
    words = list(dict.fromkeys(" ".join(LINES).split()))
    first = torch.from_numpy(np.concatenate([one.vectors for one in embed_words(model, words, "first")]))
    cosines = dict(zip(words, torch.cosine_similarity(first, first[words.index("bca")]).tolist()))
    found = occurrence_neighbours(model, "cc *bca*", LINES, top=3).static
    assert [one.word for one in found] == sorted(cosines, key=cosines.__getitem__, reverse=True)[1:4]
    assert [one.cosine for one in found] == pytest.approx([cosines[one.word] for one in found])


def test_the_vectors_of_a_file_are_not_called_vectors_in_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vectors.txt").write_text("ab 1 0\ncc 0 1\nba 1 1\n")
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    model, lines, page = (str(tmp_path / name) for name in ("vectors.txt", "lines.txt", "page.html"))
    assert main(["neighbours", model, "cc *ab*", "--text", lines, "-o", page]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "one vector for a spelling" in shown
    assert "in its sentence" not in shown
    assert "two dimensions" not in Path(page).read_text(encoding="utf-8")  # all occurrences are one point


def test_the_static_neighbours_of_word_vectors_are_its_neighbours() -> None:
    """Of GloVe, by the sum of both vectors of a word, and not by one of them."""
    tokenizer = word_tokenizer(["ab", "ba", "cc", "-"])
    module = GloveConfig(vocab=tokenizer.size, width=3).build().requires_grad_(False)
    torch.manual_seed(1)
    module.embedding.weight.normal_()
    module.output.normal_()
    recipe = replace(find_recipe("glove"), model=module.config)
    model = Loaded(Path("glove"), module, torch.device("cpu"), {"text": TargetText(tokenizer)}, recipe)
    assert static_neighbours(model, "Ab", LINES, 3) == neighbours(model, "ab", 3)
    assert len(static_neighbours(model, "-", LINES, 3)) == 3  # a sign in a question of `neighbours`
    assert static_neighbours(model, "no where", LINES, 3) == []
    alone = torch.cosine_similarity(module.embedding.weight[5:], module.embedding.weight[4:5])
    assert {round(one.cosine, 4) for one in neighbours(model, "ab", 3)} != {round(each, 4) for each in alone.tolist()}


def test_a_projection_has_the_distances_of_vectors_in_a_plane() -> None:
    flat = torch.randn(6, 2).double()
    axes, _ = torch.linalg.qr(torch.randn(5, 2).double())
    vectors = flat @ axes.T + 3.0
    found, parts = project(vectors)
    torch.testing.assert_close(torch.cdist(found, found), torch.cdist(flat, flat))
    torch.testing.assert_close(parts, found.var(0) / flat.var(0).sum())
    assert [each.tolist() for each in project(torch.ones(1, 3))] == [[[0.0, 0.0]], [0.0, 0.0]]


def test_the_command_prints_and_draws_them(
    translator: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, page = tmp_path / "lines.txt", tmp_path / "page.html"
    text.write_text("\n".join([*(f"  {line} " for line in LINES), "<b> ab"]), encoding="utf-8")
    run = str(translator("word"))
    assert main(["neighbours", run, "cc *ab*", "--text", str(text), "--top", "2", "-o", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "static neighbour" in shown
    drawn = page.read_text(encoding="utf-8")
    assert drawn.count('class="point') == 5 + 3  # and one of each group in the legend
    assert "component 2 (" in drawn
    assert "*" not in re.sub(r"<style>.*?</style>", "", drawn, flags=re.DOTALL)
    assert "cc <b>ab</b>" in drawn
    assert "&lt;b&gt; “ab”" in drawn
    assert "the question: cc “ab”" in drawn
    assert main(["neighbours", run, "cc *ab*", "--text", str(text), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["occurrences"] == 4
    assert set(found["near"][0]) == {"text", "start", "end", "cosine"}
    assert all(one["text"] == one["text"].strip() for one in found["near"])
    assert main(["neighbours", run, "ab", "-o", str(page)]) == 2
    assert "--text" in capsys.readouterr().err
