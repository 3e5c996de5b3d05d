"""The n-grams of filters: winners, effects and the strongest n-grams of many texts, by their definitions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import verbs
from regard.errors import UserError
from regard.verbs.filters import Ngram, look_filters, ngram_table, strongest_ngrams

TEXTS = ["ab ba", "cc", "ab ab ab ab ba cc", "ba cc ab", "cc ba ba ab cc ab ba", "ab ba"]


def features_of(model: verbs.Loaded, text: str) -> tuple[list[str], np.ndarray]:
    """The tokens of a text and the features of its windows, from the model alone."""
    ids = model.tokenizer.encode(text)
    with torch.no_grad():
        features = model.module.features(torch.tensor([ids]))[0]  # type: ignore[operator]
    return model.tokenizer.pieces(ids), features.numpy()


def test_the_winner_of_a_filter_is_the_window_with_its_maximum(kim: Path) -> None:
    model = verbs.load(kim)
    text = "cc ba ba ab cc ab ba"
    pieces, features = features_of(model, text)
    view = look_filters(model, text)
    assert view.pieces == tuple(pieces)
    np.testing.assert_allclose(view.features, features, atol=1e-6)
    for number, one in enumerate(view.winners):
        size, at = (2, 2, 2, 3, 3, 3)[number], int(features[:, number].argmax())
        window = range(at - (size - 1) // 2, at - (size - 1) // 2 + size)
        assert one.pieces == tuple(pieces[place] for place in window if 0 <= place < len(pieces))
        assert one.feature == pytest.approx(features[:, number].max())
        assert pieces[one.start] == one.pieces[0]


def test_the_effects_and_the_bias_are_the_logit(kim: Path) -> None:
    model = verbs.load(kim)
    view = look_filters(model, TEXTS[2])
    (found,) = verbs.classify(model, [TEXTS[2]])
    assert view.output == f"the logit of “{found.label}”"
    layer = model.module.readout_  # type: ignore[union-attr]
    row = ("bad", "good", "ugly").index(found.label)
    maxima = view.features.max(0)
    np.testing.assert_allclose(view.effects, layer.weight[row].detach().numpy() * maxima, atol=1e-6)
    logits = layer(torch.from_numpy(maxima)).detach()
    assert view.effects.sum() + float(layer.bias.detach()[row]) == pytest.approx(float(logits[row]), abs=1e-5)
    assert view.ranked == sorted(range(6), key=lambda number: -abs(view.effects[number]))


def test_a_token_of_the_picture_has_the_strongest_window_around_it(kim: Path) -> None:
    view = look_filters(verbs.load(kim), TEXTS[4])
    matrix = view.matrix(most=4)
    assert (len(matrix.rows), matrix.columns) == (4, view.pieces)
    for row, number in enumerate(view.ranked[:4]):
        before, size = (view.sizes[number] - 1) // 2, view.sizes[number]
        for token, cell in enumerate(matrix.weights[row]):
            windows = [at for at in range(len(view.pieces)) if at - before <= token < at - before + size]
            assert cell == pytest.approx(view.features[windows, number].max())


@pytest.mark.parametrize("top", [1, 3, 100])
def test_the_strongest_ngrams_are_the_best_of_all_windows(kim: Path, top: int) -> None:
    model = verbs.load(kim)
    expected: list[dict[tuple[str, ...], float]] = [{} for _ in range(6)]
    for text in TEXTS:
        pieces, features = features_of(model, text)
        for at, number in np.ndindex(features.shape):
            size = 2 if number < 3 else 3
            window = range(at - (size - 1) // 2, at - (size - 1) // 2 + size)
            ngram = tuple(pieces[place] for place in window if 0 <= place < len(pieces))
            if features[at, number] > 0:
                best = expected[number].get(ngram, 0.0)
                expected[number][ngram] = max(best, float(features[at, number]))
    found = strongest_ngrams(model, TEXTS, top)
    for ngrams, right in zip(found, expected):
        ranked = sorted(right.values(), reverse=True)[:top]
        assert [one.feature for one in ngrams] == pytest.approx(ranked, abs=1e-6)
        assert all(right[one.pieces] == pytest.approx(one.feature, abs=1e-6) for one in ngrams)
        assert len({one.pieces for one in ngrams}) == len(ngrams)
    assert any(found)
    assert ngram_table([[Ngram(0, ("ab", "ba"), 0.5)], []], (2, 3)).rows == [["#0", 2, "ab ba (0.50)"], ["#1", 3, "–"]]


def test_a_model_without_filters_is_refused(classifier: Path) -> None:
    with pytest.raises(UserError, match="has no filters over n-grams; use a run with model=kim"):
        strongest_ngrams(verbs.load(classifier), ["ab"])


def test_an_empty_text_is_refused(kim: Path) -> None:
    with pytest.raises(UserError, match="the text to look at is empty"):
        look_filters(verbs.load(kim), "  ")


def test_the_note_speaks_of_other_filters_and_short_ngrams_only_if_there_are_some(kim: Path) -> None:
    view = look_filters(verbs.load(kim), TEXTS[2])
    assert "--json" in view.table(1).note
    assert "--json" not in view.table(len(view.sizes)).note
    short = replace(view, sizes=(2,), features=view.features[:, :1], effects=view.effects[:1], pieces=("a",))
    assert "padding" in replace(short, features=short.features[:1]).table().note
    assert "padding" not in replace(short, sizes=(1,), features=short.features[:1]).table().note
