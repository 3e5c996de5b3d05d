"""The files of a run are known by their contents: they may be moved, renamed or packed, and not be changed."""

import gzip
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from regard.checks import doctor
from regard.cli import main
from regard.config import override
from regard.data.run_files import RunFile, located, named_paths, run_files
from regard.data.sources import Pairs
from regard.data.text2text import Mixture, TaskFiles
from regard.errors import UserError
from regard.file_io import load_tensors, read_json, write_json
from regard.recipes import KINDS
from regard.stored import stored, stored_recipe
from regard.training.run import Run
from regard.verbs import load


@pytest.fixture
def here(recipe, tmp_path, monkeypatch):
    """A run that was stopped at step 4 of 8, in a folder with its three files, which have relative names."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    lines = (tmp_path / "pairs.tsv").read_text().splitlines(keepends=True)
    for name, some in (("pairs", lines), ("valid", lines[:9]), ("test", lines[9:21])):
        Path(f"{name}.tsv").write_text("".join(some))
    whole = recipe("data.train=pairs.tsv", "data.valid=valid.tsv", "data.test=test.tsv")
    list(Run(whole, "whole"))
    events = iter(Run(whole, "run"))
    assert next(event for event in events if event.__class__.__name__ == "Saved" and event.step == 4)
    events.close()
    return whole


def weights(run):
    return load_tensors(Path(run) / "steps/000008/weights.safetensors")


def equal(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_run_stores_the_path_the_place_and_the_digest_of_each_file(here):
    files = stored(Path("run")).files
    assert {name: [file.path for file in several] for name, several in files.items()} == {
        "data.train": ["pairs.tsv"],
        "data.valid": ["valid.tsv"],
        "data.test": ["test.tsv"],
    }
    (test,) = files["data.test"]
    assert test.absolute == str(Path("test.tsv").absolute())
    assert stored_recipe(Path("run")).data == here.data


def test_moved_files_are_named_when_the_run_is_resumed(here):
    Path("there").mkdir()
    for name in ("pairs", "valid", "test"):
        Path(f"{name}.tsv").rename(f"there/{name}-2.tsv")
    with pytest.raises(UserError, match=r"data.train=pairs.tsv: no such file; .* give data.train=PATH to regard eval"):
        Run(None, "run", "resume")
    moved = [f"data.{part}=there/{name}-2.tsv" for part, name in (("train", "pairs"), ("valid", "valid"))]
    with pytest.raises(UserError, match=r"data.test=test.tsv: no such file"):
        Run(override(stored_recipe(Path("run")), moved, KINDS), "run", "resume")
    list(Run(override(stored_recipe(Path("run")), [*moved, "data.test=there/test-2.tsv"], KINDS), "run", "resume"))
    assert equal(weights("run"), weights("whole"))
    assert load("run").examples()[0] == "test"  # the run has the new paths
    assert len(load("run").examples("valid")[1]) == 9
    again = Run(None, "run", "resume")
    assert again.recipe.data.train == "there/pairs-2.tsv"


def test_a_run_is_used_from_any_folder(here, tmp_path, monkeypatch):
    """Also from one where other files have the names of its files."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for part, count in (("test", 12), ("valid", 9)):
        assert len(load("../home/run").examples(part)[1]) == count
    for name in ("pairs", "valid", "test"):
        Path(f"{name}.tsv").write_text("a\tb\nb\tc\n")
    assert [example.source for example in load("../home/run").examples()[1]] != ["a", "b"]
    assert len(load("../home/run").examples()[1]) == 12
    list(Run(None, "../home/run", "resume"))
    assert equal(weights("../home/run"), weights("../home/whole"))
    assert stored_recipe(Path("../home/run")).data.train == "pairs.tsv"  # as it was given


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_other_contents_are_refused(here, part):
    path = Path(getattr(here.data, part))
    path.write_text(path.read_text().replace("b", "d", 1))
    with pytest.raises(UserError, match=rf"data.{part}={path}: the contents of {path} are not what the run"):
        Run(None, "run", "resume")
    with pytest.raises(UserError, match=rf"data.{part}={path}: .* are not what the run was started with; restore it"):
        load("run").examples()
    Path("more.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=rf"data.{part}=more.tsv: the contents of more.tsv are not what the run"):
        Run(override(here, [f"data.{part}=more.tsv"], KINDS), "run", "resume")


def test_a_file_that_is_left_out_or_added_is_refused(here, recipe):
    with pytest.raises(UserError, match=r"data.test=: the run in run was started with test.tsv; resume with"):
        Run(replace(here, data=replace(here.data, test="")), "run", "resume")
    list(Run(recipe("plan.steps=1", "data.train=pairs.tsv"), "bare"))
    with pytest.raises(UserError, match=r"data.test=test.tsv: the run in bare was started with no value"):
        Run(recipe("plan.steps=1", "data.train=pairs.tsv", "data.test=test.tsv"), "bare", "resume")


def test_a_packed_file_is_the_same_and_a_table_of_another_kind_is_not(here):
    Path("pairs.tsv.gz").write_bytes(gzip.compress(Path("pairs.tsv").read_bytes()))
    Path("pairs.tsv").rename("pairs.csv")
    with pytest.raises(UserError, match=r"pairs.csv is not read as pairs.tsv is, because of its ending; restore it"):
        Run(override(here, ["data.train=pairs.csv"], KINDS), "run", "resume")
    list(Run(override(here, ["data.train=pairs.tsv.gz"], KINDS), "run", "resume"))
    assert equal(weights("run"), weights("whole"))


def test_the_files_of_a_run_of_an_earlier_version_may_be_named_anew(here):
    """It has only the digest of its training batches."""
    content = read_json(Path("run/recipe.json"))
    del content["files"], content["asked"], content["version"]
    write_json(Path("run/recipe.json"), content)
    Path("pairs.tsv").rename("moved.tsv")
    Path("valid.tsv").rename("moved-too.tsv")
    new = ["data.train=moved.tsv", "data.valid=moved-too.tsv"]
    with pytest.raises(UserError, match="the training data is not what the run was started with"):
        Run(override(here, ["data.train=test.tsv", new[1]], KINDS), "run", "resume")
    with pytest.raises(UserError, match=r"data.valid=: the run in run was started with valid.tsv"):
        Run(override(here, [new[0], "data.valid="], KINDS), "run", "resume")
    list(Run(override(here, new, KINDS), "run", "resume"))
    assert equal(weights("run"), weights("whole"))
    assert stored(Path("run")).files["data.train"][0].path == "moved.tsv"


def test_a_repeated_command_finds_a_file_at_its_new_place(here):
    Path("pairs.tsv").rename("moved.tsv")
    run = Run(override(stored_recipe(Path("run")), ["data.train=moved.tsv"], KINDS), "run", "resume")
    list(run)
    again = Run(here, "run", "auto")  # which says pairs.tsv
    assert again.recipe.data.train == "moved.tsv"
    assert Run(override(here, ["data.train=moved.tsv"], KINDS), "run", "auto").recipe.data.train == "moved.tsv"
    Path("other.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"data.train=other.tsv: the contents of other.tsv are not what"):
        Run(override(here, ["data.train=other.tsv"], KINDS), "run", "auto")


def test_training_says_that_it_reads_a_file_from_where_it_was(here, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    started = next(iter(Run(None, "../home/run", "resume")))
    assert f"data.train=pairs.tsv: read from {tmp_path}/home/pairs.tsv" in started.warnings


@pytest.mark.parametrize(
    "files",
    [[], {"data.train": {}}, {"data.train": [1]}, {"data.train": [{"path": "a"}]}, {"data.train": [None]}, 7],
)
def test_damaged_entries_of_files_are_an_error(here, files):
    content = read_json(Path("run/recipe.json"))
    write_json(Path("run/recipe.json"), {**content, "files": files or {"data.train": 3}})
    with pytest.raises(UserError, match=r"recipe.json: files: expected the paths and digests of the data; restore"):
        stored(Path("run"))


def test_parallel_files_and_tasks_of_a_mixture_are_known_one_by_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b.tsv", "src.txt", "tgt.txt", "two.tsv"):
        Path(name).write_text(name)
    data = Mixture(one=TaskFiles(train="src.txt, tgt.txt", valid="a,b.tsv"), two=TaskFiles(train="two.tsv"))
    assert dict(named_paths(data)) == {
        "data.one.train": "src.txt, tgt.txt",
        "data.one.valid": "a,b.tsv",
        "data.two.train": "two.tsv",
    }
    files = run_files(data)
    assert {name: len(several) for name, several in files.items()} == {
        "data.one.train": 2,
        "data.one.valid": 1,
        "data.two.train": 1,
    }
    Path("tgt.txt").rename("words.txt")
    moved = replace(data, one=replace(data.one, train="src.txt,words.txt"))
    assert located(moved, files)[0] == moved
    with pytest.raises(UserError, match=r"data.one.train=src.txt: the run was started with src.txt,tgt.txt; "):
        located(replace(data, one=replace(data.one, train="src.txt")), files)
    os.mkdir("away")
    monkeypatch.chdir("away")
    with pytest.raises(UserError, match=r"data.one.train=words.txt: no such file; restore"):
        located(moved, files)  # named anew, so where it was is not looked at
    Path("../words.txt").rename("../tgt.txt")
    found, _ = located(data, files)
    assert found.one == TaskFiles(train=f"{tmp_path}/src.txt,{tmp_path}/tgt.txt", valid=f"{tmp_path}/a,b.tsv")
    os.remove("../two.tsv")
    with pytest.raises(UserError, match=r"two.tsv: no such file, nor .*/two.tsv; restore it, or if it was moved, give"):
        located(data, files)


@dataclass(frozen=True)
class Folds:
    """Data of a user's own, whose settings have the names of files and are none."""

    train: int = 3
    valid: str = "fold 7"


def test_settings_that_are_no_files_have_no_digest():
    assert run_files(Folds()) == {}
    assert located(Folds(), {}) == (Folds(), {})
    assert run_files(Pairs()) == {}


def test_a_packed_file_that_grows_without_measure_is_refused_before_it_is_prepared(here, monkeypatch):
    with gzip.open("bomb.tsv.gz", "wb") as file:
        file.write(b"ab\tba\n" * 100_000)
    Path("bomb.tsv.gz").write_bytes(20 * Path("bomb.tsv.gz").read_bytes())  # 20 parts, of which each could be read
    monkeypatch.setattr(sys.modules["regard.data.files"], "MOST_UNPACKED", 2**20)
    monkeypatch.setattr(sys.modules["regard.training.run"], "prepare", lambda *given, **named: pytest.fail("prepared"))
    with pytest.raises(UserError, match=r"bomb\.tsv\.gz: unpacks to more than"):
        Run(replace(here, data=replace(here.data, train="bomb.tsv.gz")), "bomb")


def test_a_packed_file_is_read_once_for_its_digest(here, monkeypatch):
    Path("pairs.tsv.gz").write_bytes(gzip.compress(Path("pairs.tsv").read_bytes()))
    module, read = sys.modules["regard.data.run_files"], []
    contents_sha256 = module.contents_sha256
    monkeypatch.setattr(module, "contents_sha256", lambda path: read.append(path) or contents_sha256(path))
    run = Run(replace(here, data=replace(here.data, train="pairs.tsv.gz")), "packed")
    assert read == ["pairs.tsv.gz", "valid.tsv", "test.tsv"]
    assert run.files["data.train"][0].sha256 == stored(Path("run")).files["data.train"][0].sha256


def test_a_file_that_changes_while_it_is_read_is_refused(here, monkeypatch):
    module = sys.modules["regard.training.run"]
    prepare = module.prepare

    def prepare_and_change(*given, **named):
        found = prepare(*given, **named)
        with open("valid.tsv", "a") as file:
            file.write("more\tthan before\n")
        return found

    monkeypatch.setattr(module, "prepare", prepare_and_change)
    with pytest.raises(UserError, match=r"valid\.tsv: changed while it was read; start again"):
        Run(here, "new")
    assert not Path("new").exists()


def test_a_file_of_questions_is_read_by_its_ending():
    file = RunFile("squad.json", "/squad.json", "0")
    assert file.is_read_like("moved.json")
    assert not file.is_read_like("squad.data")
    assert not RunFile("pairs.tsv", "/pairs.tsv", "0").is_read_like("pairs.json")


def test_the_doctor_reads_the_files_of_the_run(here, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("pairs.tsv").write_text("not a pair\n")
    findings = {found.check: found for found in doctor(load("../home/run", "cpu"))}
    assert findings["resumed"].status == "passed", findings["resumed"]


def test_a_file_that_is_named_to_eval_is_at_that_path_or_refused(here, tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("test.tsv").write_text("ab\tba\n")
    assert main(["eval", "../home/run", "data.test=test.tsv"]) == 2
    assert "data.test=test.tsv: the contents of test.tsv are not what" in capsys.readouterr().err
    assert main(["eval", "../home/run"]) == 0
    assert f"data.test=test.tsv: read from {tmp_path / 'home/test.tsv'}" in capsys.readouterr().err
