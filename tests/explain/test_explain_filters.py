"""Filters and heads: kernels as pictures, the class that a filter supports, the weights of heads, and given runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import UserError
from regard.explain.filters import heads, kernels, ngrams, run, small_models
from regard.explain.grammar import Sentences, is_grammatical
from regard.explain.options import FiltersOptions
from regard.explain.topic import no_report
from regard.report.sections import Gallery, Heatmaps, Table, Text
from regard.verbs import Loaded

UNTRAINED = FiltersOptions(steps=0, text="a dog sees many boats .")


@pytest.fixture(scope="module")
def models() -> list[Loaded]:
    """The captioner, Kim's network and the language model, without training."""
    return small_models(UNTRAINED, no_report)


def test_the_class_of_a_sentence_is_the_number_of_its_subject() -> None:
    corpus = Sentences(50, valid=5).load()
    assert (len(corpus.train), len(corpus.valid)) == (50, 5)
    for example in corpus.train:
        words = example.text.split()
        assert is_grammatical(words)
        if words[0] != "the":  # the first determiner has the number of the subject
            assert example.label == ("singular" if words[0] in ("every", "a") else "plural")


def test_a_heat_map_has_the_colours_of_a_kernel_side_by_side(models: list[Loaded]) -> None:
    found = kernels(models[0])
    assert found is not None
    _, numbers, (maps, table) = found
    weights = numbers["weights"]
    assert torch.equal(weights, next(each for each in models[0].module.parameters() if each.dim() == 4))
    assert isinstance(maps, Heatmaps)
    assert isinstance(table, Table)
    assert len(maps.heatmaps) == len(table.rows) == len(weights) == 8
    for heatmap, kernel in zip(maps.heatmaps, weights):
        drawn = torch.as_tensor(heatmap.values)
        assert drawn.shape == (3, 11)
        for channel in range(3):
            assert torch.equal(drawn[:, 4 * channel : 4 * channel + 3], kernel[channel])
        assert drawn[:, [3, 7]].isnan().all()


def test_a_plain_kernel_has_no_edges_and_one_with_sum_zero_has_only_edges(models: list[Loaded]) -> None:
    weight: Any = next(each for each in models[0].module.parameters() if each.dim() == 4)
    before = weight.detach().clone()
    with torch.no_grad():
        weight[0], weight[1] = 0.3, torch.tensor([-1.0, 0.0, 1.0])
    found = kernels(models[0])
    weight.data.copy_(before)
    assert found is not None
    assert found[1]["edges"][:2].tolist() == pytest.approx([0.0, 1.0], abs=1e-5)


def test_a_filter_supports_the_class_with_its_largest_weight(models: list[Loaded]) -> None:
    found = ngrams(models[1])
    assert found is not None
    module: Any = models[1].module
    weights = module.readout_.weight.detach()  # (classes, filters)
    for at, each in enumerate(found[1]["filters"]):
        row = int(weights[:, at].argmax())
        assert each["supports"] == ("plural", "singular")[row]
        assert each["weight"] == pytest.approx(float(weights[row, at] - weights[:, at].mean()), abs=1e-6)
        assert each["size"] == (2, 2, 2, 2, 3, 3, 3, 3)[at]
        assert len(each["ngrams"]) <= 3


def test_heads_have_a_matrix_each_and_their_largest_weight(models: list[Loaded]) -> None:
    found = heads(models[2], UNTRAINED)
    assert found is not None
    _, numbers, (gallery, table) = found
    weights, pieces = numbers["weights"], numbers["pieces"]
    assert isinstance(gallery, Gallery)
    assert isinstance(table, Table)
    assert len(gallery.views) == len(weights) == 4
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, len(pieces)))
    for head, row in zip(weights, table.rows):
        best = max((float(head[q, k]), q, k) for q in range(len(pieces)) for k in range(1, q))
        assert row[-1] == f"{pieces[best[1]]} → {pieces[best[2]]} ({best[0]:.2f})"


def test_models_show_only_what_they_have(models: list[Loaded]) -> None:
    shown = [[part is not None for part in (kernels(m), ngrams(m), heads(m, UNTRAINED))] for m in models]
    assert shown == [[True, False, False], [False, True, False], [False, False, True]]


def test_runs_by_place_are_shown_in_their_order(models: list[Loaded], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {"runs/gpt": models[2], "runs/scenes": models[0]}
    paths = list(runs)
    monkeypatch.setattr("regard.explain.filters.load", lambda path, _: replace(runs[path], path=Path(path)))
    result = run(FiltersOptions(runs=tuple(paths), text=UNTRAINED.text))
    assert [type(each) for each in result.sections] == [Text, Gallery, Table, Heatmaps, Table]  # and no reading of them
    assert len(result.data["heads"][0]["statistics"]) == 5  # four heads, and uniform attention
    assert [one["model"] for part in ("heads", "kernels") for one in result.data[part]] == paths
    assert result.data["heads"][0]["pieces"][1:] == UNTRAINED.text.split()
    assert "ngrams" not in result.data
    assert all(path in result.about for path in paths)


def test_a_run_without_filters_and_heads_is_refused(bigram: Path) -> None:
    with pytest.raises(UserError, match="without filters and heads; give runs of"):
        run(FiltersOptions(runs=(str(bigram),)))


def test_a_run_with_heads_needs_a_text(models: list[Loaded]) -> None:
    with pytest.raises(UserError, match='text=: language model has heads; give what it reads, such as text="a line'):
        heads(models[2], FiltersOptions(runs=("language model",)))
