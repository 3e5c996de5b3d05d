"""Teacher forcing and exposure bias: errors by position, their means and spreads, and given runs."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch

from regard.data.batches import IGNORED, Batch
from regard.data.example import Corpus, Pair
from regard.errors import UserError
from regard.explain import forcing
from regard.explain.forcing import _by_position, _chance, name_of
from regard.explain.options import ForcingOptions
from regard.objectives import Exposure, MaskedTokens, TeacherForcing


def test_means_and_spreads_over_seeds() -> None:
    runs = [
        Exposure([], [], forced_error=[0.2, 0.4], free_error=[0.2, 0.8], count=[3, 1]),
        Exposure([], [], forced_error=[0.4, 0.4], free_error=[0.6, 0.6], count=[3, 1]),
    ]
    found = _by_position("ratio 1", runs)
    assert found.forced == pytest.approx([0.3, 0.4])
    assert found.free == pytest.approx([0.4, 0.7])
    assert found.free_spread == pytest.approx([stdev([0.2, 0.6]), stdev([0.8, 0.6])])
    assert found.all_free == pytest.approx([(3 * 0.2 + 0.8) / 4, (3 * 0.6 + 0.6) / 4])
    assert mean(found.all_forced) == pytest.approx((0.25 + 0.4) / 2)
    assert _by_position("ratio 1", runs[:1]).free_spread == [0.0, 0.0]


def test_chance_is_the_error_of_the_commonest_token_of_a_position() -> None:
    targets = torch.tensor([[5, 7, IGNORED], [5, 8, 2], [6, 9, 2]])
    assert _chance([Batch({"targets": targets})]) == pytest.approx([1 / 3, 2 / 3, 0.0])


def test_names_of_objectives() -> None:
    assert name_of(TeacherForcing(ratio=0.5)) == "ratio 0.5"
    assert name_of(TeacherForcing(schedule="linear", floor=0.25)) == "ratio 1 → 0.25"
    assert name_of(MaskedTokens()) == "MaskedTokens"


def test_a_trained_run_is_measured_on_its_validation_data(translator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, corpus = translator(), Corpus(train=[], valid=[Pair("ab", "ba"), Pair("ba", "abb")], test=[])
    monkeypatch.setattr("regard.data.sources.Pairs.load", lambda self: corpus)
    result = forcing.run(ForcingOptions(runs=(str(run), str(run))))
    (model,) = result.data["models"]
    assert (model.name, model.runs) == ("ratio 1", 2)
    assert model.forced_spread == [0.0] * len(model.forced)
    assert str(run) in result.about


def test_a_run_without_text_is_refused(classifier: Path) -> None:
    with pytest.raises(UserError, match="not a run that generates text"):
        forcing.run(ForcingOptions(runs=(str(classifier),)))
