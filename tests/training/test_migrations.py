"""Runs of earlier formats: what a migration changes in settings, weights, the optimiser's state and the batch plan."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

import regard
from kept.answers import among, answers, differences, resumed, shortened
from regard import migrations
from regard.checkpoint import FORMAT, OLDEST, _fingerprint, read_pointer
from regard.errors import UserError
from regard.file_io import load_tensors, read_json, save_tensors, write_json
from regard.migrations import MIGRATIONS, Migration, migrated, renamed, renamed_state
from regard.stored import stored_config, stored_recipe
from regard.training.events import Finished
from regard.training.ladder.cells import Cell, measure
from regard.training.ladder.quality import evaluations, read_log
from regard.training.run import Run

FILES = Path(__file__).parent / "format-2"  # two runs of a small Transformer-XL, one of them with memory_zeros=true
KEPT = Path(__file__).parents[1] / "kept" / "format-2"


def test_every_earlier_format_has_a_migration() -> None:
    assert list(MIGRATIONS) == list(range(OLDEST, FORMAT))


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
    with pytest.raises(UserError, match=rf"^model\.json: {dropped}"):
        migrated(headed, 2, Path("model.json"))


def test_a_setting_of_this_name_of_another_kind_stays() -> None:
    content = {"kind": "mine", "memory_zeros": True, "parts": [1]}
    assert migrated(dict(content), 2, Path("model.json")) == content


def test_a_new_run_has_no_migration() -> None:
    content = {"kind": "gpt", "memory_zeros": True}
    assert migrated(dict(content), FORMAT, Path("model.json")) == content


def test_migrations_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is that of the format after it, and the settings that a migration reads are those of its own format."""

    def wider(node: dict) -> None:
        node["width"] = 2 * node.pop("size")

    table = {
        FORMAT: Migration(settings=wider, weight=lambda name, model: f"{name}.{model['size']}"),
        FORMAT + 1: Migration(
            weight=lambda name, model: None if name.startswith("old") else f"{name}.{model['width']}",
            digest=lambda batches: f"of {batches}",
        ),
    }
    monkeypatch.setattr(migrations, "MIGRATIONS", {**MIGRATIONS, **table})
    monkeypatch.setattr(migrations, "FORMAT", FORMAT + 2)
    model = {"kind": "mine", "size": 3}
    assert migrated(json.loads(json.dumps(model)), FORMAT, Path()) == {"kind": "mine", "width": 6}
    assert renamed({"a": 1, "old": 2}, FORMAT, model) == {"a.3.6": 1}
    assert renamed({"a": 1}, FORMAT + 1, {"kind": "mine", "width": 6}) == {"a.6": 1}
    state = {
        "optimizer/model.a/exp_avg": 1,
        "optimizer/model.old/exp_avg": 2,
        "optimizer/own.a/step": 3,
        "lanes/0/0": 4,
    }
    assert renamed_state(state, FORMAT, model) == {
        "optimizer/model.a.3.6/exp_avg": 1,
        "optimizer/own.a/step": 3,
        "lanes/0/0": 4,
    }
    assert migrations.stored_digest("batches", FORMAT) == "of batches"
    assert model == {"kind": "mine", "size": 3}


@pytest.mark.parametrize("name", ["transformer-tied", "text-tied", "professor"])
def test_a_run_with_other_names_and_another_digest_opens_and_resumes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if format 2 had called weights and a setting otherwise, and had counted its batches otherwise."""
    expected = json.loads((KEPT / "expected" / f"{name}.json").read_text(encoding="utf-8"))
    (tmp_path / "data").symlink_to(KEPT / "data")
    with zipfile.ZipFile(KEPT / "stored" / f"{name}.zip") as packed:
        packed.extractall(tmp_path)
    run, threads = tmp_path / "runs" / name, torch.get_num_threads()
    _rewrite_as_another_format_2(run)

    def width(node: dict) -> None:
        if "thickness" in node:
            node["width"] = node.pop("thickness")

    def weight(name: str, model: dict) -> str:
        assert model["thickness"] > 0
        return name.removeprefix("net/").replace("_of_the_", ".")

    other = Migration(settings=width, weight=weight, digest=lambda batches: _counted_otherwise(batches.digest))
    with among(tmp_path):
        with pytest.raises(UserError, match="thickness"):
            regard.load(run)
        monkeypatch.setitem(MIGRATIONS, 2, other)
        said = answers(run, expected["verb"], expected["given"], expected["targets"])
        assert not differences(expected["answers"], json.loads(json.dumps(shortened(said))))
        became = json.loads(json.dumps(shortened(resumed(run))))
        assert not differences(expected["resumed"], became)
        assert Run(None, run, "resume").state.step == became["step"]  # its data now has the present digest
    torch.set_num_threads(threads)
    last = run / "steps" / (read_pointer(run, "latest") or "")
    assert read_json(last / "manifest.json")["format"] == FORMAT
    assert became["weights"].keys() == expected["resumed"]["weights"].keys()  # the present names


def _rewrite_as_another_format_2(run: Path) -> None:
    """Give weights, the optimiser's state and the setting `width` other names, and the data another digest."""

    def other(name: str) -> str:
        return "net/" + name.replace(".", "_of_the_")

    def thick(node: object) -> None:
        for inner in node.values() if isinstance(node, dict) else ():
            thick(inner)
        if isinstance(node, dict) and "width" in node:
            node["thickness"] = node.pop("width")

    for path in (run / "recipe.json", *run.glob("steps/*/model.json")):
        content = read_json(path)
        thick(content)
        write_json(path, content)
    for step in run.glob("steps/*"):
        path = step / "weights.safetensors"
        save_tensors(path, {other(name): value for name, value in load_tensors(path).items()})
        path, begin = step / "training/trainer.safetensors", "optimizer/model."
        found = {}
        for place, value in load_tensors(path).items():
            weight, _, key = place.removeprefix(begin).rpartition("/")
            found[f"{begin}{other(weight)}/{key}" if place.startswith(begin) else place] = value
        assert any("net/" in place for place in found)
        save_tensors(path, found)
        state = read_json(step / "training/state.json")
        write_json(step / "training/state.json", {**state, "data": _counted_otherwise(state["data"])})
        manifest = read_json(step / "manifest.json")
        files = {file: _fingerprint(step / file) for file in manifest["files"]}
        write_json(step / "manifest.json", {**manifest, "files": files})


def _counted_otherwise(digest: str) -> str:
    return hashlib.sha256(f"otherwise {digest}".encode()).hexdigest()
