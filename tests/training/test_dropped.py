"""Runs that were stored with settings which models do not have any more (`stored.DROPPED`)."""

import shutil
from pathlib import Path

import pytest

import regard
from regard import stored
from regard.errors import UserError
from regard.file_io import read_json, write_json
from regard.stored import stored_config, stored_recipe
from regard.training.events import Finished
from regard.training.ladder.cells import Cell, measure
from regard.training.ladder.quality import evaluations, read_log
from regard.training.run import Run

FILES = Path(__file__).parent / "dropped"  # two runs of a small Transformer-XL, one of them with memory_zeros=true


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs and their texts, in the current directory."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_with_the_default_opens_and_has_its_numbers(place: Path) -> None:
    assert read_json(Path("plain/recipe.json"))["model"]["memory_zeros"] is False
    (found,) = regard.score(regard.load("plain", device="cpu"), ["the heron waits"])
    assert found.total == pytest.approx(-42.61337, abs=1e-4)


def test_a_run_with_the_default_resumes(place: Path) -> None:
    *_, finished = Run(stored_recipe(Path("plain")), Path("plain"), "resume")
    assert isinstance(finished, Finished)
    last = evaluations(read_log(Path("plain")))[-1]
    assert (last["step"], last["loss"]) == (4, pytest.approx(3.03741, abs=1e-4))
    assert "memory_zeros" not in read_json(Path("plain/steps/000004/model.json"))


def test_a_cell_of_a_ladder_with_the_default_is_read(place: Path) -> None:
    recipe = read_json(Path("plain/recipe.json"))
    del recipe["format"]
    cell = Cell("transformer-xl", 1, stored_recipe(Path("plain")), place / "cells/transformer-xl")
    cell.out.parent.mkdir()
    write_json(cell.result, {"beam": 1, "recipe": recipe, "curve": []})
    assert measure(cell, lambda run: pytest.fail("it is finished"))["curve"] == []


def test_a_run_that_used_the_setting_is_refused(place: Path) -> None:
    dropped = r"model\.memory_zeros=true: it was dropped with the public directories of Transformer-XL"
    with pytest.raises(UserError, match=rf"zeros/recipe\.json: {dropped}.*; train the model again without it\.$"):
        regard.load("zeros", device="cpu")
    with pytest.raises(UserError, match=rf"model\.json: {dropped}"):
        stored_config(Path("zeros/steps/000004"))
    headed = {"kind": "headed", "body": read_json(Path("zeros/steps/000004/model.json"))}
    with pytest.raises(UserError, match=dropped):
        stored.without_dropped(headed, Path("model.json"))


def test_a_setting_of_this_name_of_another_kind_stays() -> None:
    content = {"kind": "mine", "memory_zeros": True, "parts": [1]}
    assert stored.without_dropped(dict(content), Path("model.json")) == content
