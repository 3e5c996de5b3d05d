"""A run directory is whole whatever happens: kills at any moment, full disks, damaged files."""

import errno
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import checkpoint, file_io
from regard.checkpoint import read_pointer, read_step, resolve, save_step, set_pointer, truncate_after, verify
from regard.errors import UserError
from regard.file_io import (
    append_line,
    atomic_write,
    load_tensors,
    read_json,
    save_tensors,
    write_file,
    write_json,
    write_text,
)


def contents(step: int, version: int = 0) -> dict[str, Any]:
    """Files whose contents all name the step and version, so that a mixture would be seen."""
    return {
        "model.json": {"step": step, "version": version},
        "weights.safetensors": lambda path: save_tensors(path, {"w": torch.full((64,), float(step))}),
        "tokenizer.json": b"%d %d" % (step, version) * 500,
        "training/state.json": {"step": step, "version": version},
    }


def save(run: Path, step: int, version: int = 0, keep: int = 2) -> Path:
    return save_step(run, step, contents(step, version), keep)


def check_whole(folder: Path) -> int:
    """The step this directory holds, after checking that all of its files come from one save."""
    model = read_json(folder / "model.json")
    assert folder.name == f"{model['step']:06d}"
    assert read_json(folder / "training/state.json") == model
    assert (folder / "tokenizer.json").read_bytes() == b"%d %d" % (model["step"], model["version"]) * 500
    assert torch.equal(load_tensors(folder / "weights.safetensors")["w"], torch.full((64,), float(model["step"])))
    return int(model["step"])


def everything(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def step_names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "steps").iterdir())


# -- saving and finding -----------------------------------------------------------------------------------------------


def test_a_saved_step_is_found_and_nothing_else_is_there(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    assert save(run, 500) == run / "steps" / "000500"
    assert resolve(run) == run / "steps" / "000500" == resolve(run / "steps" / "000500")
    assert check_whole(resolve(run)) == 500
    names = ("manifest.json", "model.json", "weights.safetensors", "tokenizer.json", "training/state.json")
    assert everything(run) == {"latest", *(f"steps/000500/{name}" for name in names)}
    assert (run / "latest").read_text() == "000500\n"


def test_best_comes_before_latest_unless_asked_otherwise(tmp_path: Path) -> None:
    save(tmp_path, 1)
    set_pointer(tmp_path, "best", 1)
    save(tmp_path, 2)
    assert (read_pointer(tmp_path, "best"), read_pointer(tmp_path, "latest"), read_pointer(tmp_path, "other")) == (
        "000001",
        "000002",
        None,
    )
    assert resolve(tmp_path).name == "000001"
    assert resolve(tmp_path, ("latest",)).name == "000002"


def test_a_step_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    save_step(tmp_path, 1, {"a": b"old"}, keep=1)

    def read(folder: Path) -> bytes:
        found = (folder / "a").read_bytes()
        if found == b"old":
            save_step(tmp_path, 1, {"a": b"new"}, keep=1)
        return found

    assert read_step(tmp_path, read) == b"new"


def test_old_steps_go_but_never_a_marked_one(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10, 1_000_000, 1_000_001):
        save(tmp_path, step, keep=2)
        if step == 2:
            set_pointer(tmp_path, "best", 2)
    assert step_names(tmp_path) == ["000002", "1000000", "1000001"]
    save(tmp_path, 5, keep=1)  # a run taken up again from an earlier step: what it saves is the latest
    assert step_names(tmp_path) == ["000002", "000005", "1000001"]
    assert resolve(tmp_path, ("latest",)).name == "000005"


def test_a_step_saved_again_is_replaced_whole(tmp_path: Path) -> None:
    save(tmp_path, 7, version=1)
    (tmp_path / "steps/000007/model.json").unlink()
    save(tmp_path, 7, version=2)
    assert read_json(resolve(tmp_path) / "model.json")["version"] == 2
    assert step_names(tmp_path) == ["000007"]


@pytest.mark.parametrize("path", ["missing", "empty", "run/steps/000002", "file"])
def test_what_holds_no_checkpoint_is_refused_by_name(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    save(tmp_path / "run", 1)
    with pytest.raises(UserError) as error:
        resolve(tmp_path / path)
    assert str(error.value).startswith(f"{tmp_path / path}: ")


def test_a_run_or_a_step_is_found_from_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    for step in (1, 2):
        save(run, step)
    places = {
        tmp_path: ("run", "run/steps/000002", "./run/."),
        run: (".", "steps/000002", "../run"),
        run / "steps": ("000002", "..", "./000002"),
        run / "steps/000002": (".", "../..", "../000002"),
        run / "steps/000001": ("../000002",),
    }
    for place, names in places.items():
        monkeypatch.chdir(place)
        for name in names:
            found = resolve(Path(name))
            assert found == run / "steps/000002", (place, name)
            assert check_whole(found) == 2
    with pytest.raises(UserError, match=r"^nowhere: no such directory"):
        resolve(Path("nowhere"))
    shutil.copytree(run, tmp_path / "steps/mine")  # a run in a directory with the name "steps"
    assert resolve(tmp_path / "steps/mine") == tmp_path / "steps/mine/steps/000002"


# -- damage -----------------------------------------------------------------------------------------------------------

NAMES = ["model.json", "weights.safetensors", "tokenizer.json", "training/state.json", "manifest.json"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1) / name
    path.unlink()
    with pytest.raises(UserError, match=rf"^{path}: (missing|no such file)"):
        resolve(tmp_path)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_truncated_file_is_named_with_both_sizes(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1) / name
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(UserError, match=rf"^{path}: expected {size} bytes, found {size - 1};"):
        resolve(tmp_path)


@settings(max_examples=60)
@given(st.sampled_from(NAMES[:-1]), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_any_flipped_bit_is_refused(saved: Path, name: str, where: float, bit: int) -> None:
    path = saved / name
    original = path.read_bytes()
    flipped = bytearray(original)
    flipped[int(where * len(original))] ^= 1 << bit
    path.write_bytes(flipped)
    with pytest.raises(UserError, match=rf"^{path}: contents changed"):
        verify(saved)
    path.write_bytes(original)
    verify(saved)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("run"), 1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"model.json": 3}}', "\udcff"])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, 1) / "manifest.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=rf"^{path}: (damaged|contents changed)"):
        resolve(tmp_path)


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "latest").write_text("../../elsewhere")
    with pytest.raises(UserError, match=r"latest: contents changed"):
        resolve(tmp_path)


# -- kills ------------------------------------------------------------------------------------------------------------

fork = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the child only writes files


def forked(target: Callable[..., None], *args: Any) -> Any:
    """A child that has everything imported already."""
    process = multiprocessing.get_context("fork").Process(target=target, args=args, daemon=True)
    process.start()
    return process


def plain(step: int, version: int) -> dict[str, Any]:
    """As `contents`, without torch, which had better not run in a forked child."""
    return {**contents(step, version), "weights.safetensors": b"%d %d" % (step, version) * 5000}


def check_plain(folder: Path) -> int:
    model = read_json(folder / "model.json")
    mixed = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "weights.safetensors")}
    assert {tuple(value.split()[:1]) for value in mixed.values()} == {(str(model["step"]).encode(),)}
    assert read_json(folder / "training/state.json") == model
    assert folder.name == f"{model['step']:06d}"
    return int(model["step"])


def save_for_ever(run: Path, first: int) -> None:
    for step in range(first, first + 1_000_000):
        save_step(run, step, plain(step, 1), keep=2)
        save_step(run, step, plain(step, 2), keep=2)  # again: the step it replaces is the latest
        set_pointer(run, "best", step - step % 3 or step)


def killed(deadly: int, work: Callable[..., None], *args: Any) -> None:
    """Do some work and die for real just before the `deadly`-th call that changes what is on the disk."""
    calls = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call

    for name in ("rename", "replace", "fsync", "rmdir", "unlink", "mkdir"):
        setattr(os, name, dying(getattr(os, name)))
    work(*args)


@fork
def test_killed_after_a_random_number_of_calls_the_run_is_always_whole(tmp_path: Path) -> None:
    """No clock: a process is killed after so many calls, however long the disk takes for each."""
    rng, latest = random.Random(20), 1
    save_step(tmp_path, 1, plain(1, 1), keep=2)
    for _ in range(12):
        child = forked(killed, rng.randrange(1, 300), save_for_ever, tmp_path, latest)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        check_plain(resolve(tmp_path))
        found = check_plain(resolve(tmp_path, ("latest",)))
        assert found >= latest
        latest = found
    assert latest > 5  # the kills fell among many saves
    save_step(tmp_path, latest + 1, plain(latest + 1, 1), keep=1)
    assert all(name.isdecimal() for name in step_names(tmp_path)), "what the kills left behind is gone"


@fork
@pytest.mark.parametrize("step", [4, 5])  # 4: the latest itself is replaced; 5: a new step, and 4 is pruned
def test_killed_before_each_single_call_the_run_is_whole(tmp_path: Path, step: int) -> None:
    survived = False
    for deadly in range(1, 100):
        run = tmp_path / str(deadly)
        save_step(run, 4, plain(4, 1), keep=1)
        child = forked(killed, deadly, save_step, run, step, plain(step, 2), 1)
        child.join()
        found = check_plain(resolve(run))
        assert found in (4, step)
        save_step(run, 6, plain(6, 1), keep=9)
        assert {f"{found:06d}", "000006"} <= set(step_names(run)) <= {"000004", "000005", "000006"}
        for name in step_names(run):
            check_plain(resolve(run / "steps" / name))
        if survived := child.exitcode == 0:
            break
    assert survived
    assert deadly > 15


# -- disks that refuse ------------------------------------------------------------------------------------------------


def full(path: Path) -> None:
    path.write_bytes(b"some of it")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_and_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = everything(tmp_path)
    for step in (1, 2):
        with pytest.raises(UserError) as error:
            save_step(tmp_path, step, {**contents(step, 9), "last": full}, keep=1)
        assert str(error.value) == f"{tmp_path}: cannot be written: No space left on device; free some space."
        assert everything(tmp_path) == before
        assert step_names(tmp_path) == ["000001"]
        assert check_whole(resolve(tmp_path)) == 1


def save_large(run: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Save where no file may pass 4 KiB; exit with 0 if that is refused as it should be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    for content in (lambda path: save_tensors(path, tensors), b"x" * 5000):
        with pytest.raises(UserError, match=r"cannot be written: .*File too large"):
            save_step(run, 2, {"weights.safetensors": content}, keep=1)
    for write in (lambda path: write_text(path, "new" * 9000), lambda path: write_json(path, ["new"] * 9000)):
        with pytest.raises(UserError, match=r"latest: cannot be written: .*File too large"):
            write(run / "latest")


@fork
def test_a_write_that_really_fails_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = everything(tmp_path)
    child = forked(save_large, tmp_path, {"w": torch.zeros(9000)})
    child.join()
    assert child.exitcode == 0
    assert everything(tmp_path) == before
    assert check_whole(resolve(tmp_path)) == 1


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (lambda path: save(path, 1), lambda path: append_line(path / "metrics.jsonl", {"step": 1})):
        with pytest.raises(UserError, match=r"cannot be written: .*choose a directory that you may write to"):
            write(tmp_path / "file" / "run")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_an_unwritable_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(self: Path, *args: Any, **options: Any) -> None:
        raise OSError(code, os.strerror(code), str(self))

    save(tmp_path, 1)
    before = everything(tmp_path)
    monkeypatch.setattr(Path, "mkdir", refuse)  # permissions do not bind root, who may be running this
    with pytest.raises(UserError, match=rf"^{tmp_path}: cannot be written: {os.strerror(code)}; choose a directory"):
        save(tmp_path, 2)
    assert everything(tmp_path) == before


def test_any_other_error_leaves_nothing_half_written(tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = everything(tmp_path)
    with pytest.raises(ZeroDivisionError):
        save_step(tmp_path, 2, {**contents(2), "last": lambda path: 1 // 0}, keep=1)
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "latest") as aside:
        aside.write(b"half" * (1 // 0))
    assert everything(tmp_path) == before
    assert step_names(tmp_path) == ["000001"]


# -- links ------------------------------------------------------------------------------------------------------------


def test_no_link_is_followed_when_a_file_is_written(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("mine")
    out = tmp_path / "out.html"
    for name in (".out.html.half", "out.html"):
        (tmp_path / name).symlink_to(victim)
    write_file(out, "page")
    save_tensors(tmp_path / "link.safetensors", {"w": torch.zeros(1)})
    (tmp_path / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be written"):
        append_line(tmp_path / "metrics.jsonl", {"step": 1})
    assert (out.is_symlink(), out.read_text(), victim.read_text()) == (False, "page", "mine")


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"pipe: cannot be written: it is no plain file; give another name"):
        write_file(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


def test_no_link_is_followed_when_a_step_is_saved_or_pruned(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in ("000001", "000002"):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "thesis.tex").write_text("mine")
    linked, hidden = tmp_path / "linked", tmp_path / "hidden"
    for place in (linked / "steps", hidden / "steps/.old", hidden / "steps/.half", hidden / "steps/000003"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"linked/steps: is a symbolic link"):
        save(linked, 3, keep=1)
    for step in (3, 4):
        save(hidden, step, keep=1)
    assert step_names(hidden) == ["000004"]
    assert everything(elsewhere) == {"000001/thesis.tex", "000002/thesis.tex"}


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/../../../secret"])
def test_a_manifest_names_no_file_outside_its_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    path = save(tmp_path, 1) / "manifest.json"
    manifest = read_json(path)
    manifest["files"][name] = manifest["files"]["model.json"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf"^{path}: {name}: is outside the directory"):
        resolve(tmp_path)


# -- tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_come_back_bit_equal(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": torch.randn(3, 4).to(dtype), "b.c": torch.randn(()).to(dtype), "none": torch.empty(0, 2).to(dtype)}
    save_tensors(tmp_path / "t.safetensors", tensors)
    back = load_tensors(tmp_path / "t.safetensors")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensors[name]) and back[name].dtype == dtype for name in tensors)


def test_every_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    mode = (tmp_path / "plain").stat().st_mode
    folder = save(tmp_path, 1)
    assert {path.stat().st_mode for path in folder.rglob("*") if path.is_file()} == {mode}


def test_shared_and_strided_tensors_are_written_in_full(tmp_path: Path) -> None:
    base = torch.randn(4, 6, requires_grad=True)
    tensors = {"base": base, "same": base, "row": base[1], "turned": base.T, "columns": base[:, ::2]}
    save_tensors(tmp_path / "t.safetensors", tensors)
    back = load_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert not any(tensor.requires_grad for tensor in back.values())


@pytest.mark.parametrize("data", [b"", b"not tensors at all", b"\x80\x04\x95pickle", b"\xff" * 64])
def test_a_file_that_holds_no_tensors_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.safetensors"
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"^{path}: damaged or not safetensors"):
        load_tensors(path)
    with pytest.raises(UserError, match="no such file"):
        load_tensors(tmp_path / "other")


# -- lines ------------------------------------------------------------------------------------------------------------


def test_lines_are_appended_and_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    truncate_after(path, 3, 3)  # nothing there yet: nothing to do
    assert not path.exists()
    for step in range(5):
        append_line(path, {"step": step, "loss": 0.5, "note": "é\u2028\n"})
    append_line(path, {"begun": "today", "loss": float("nan")})
    with path.open("a") as file:
        file.write("[" * 100_000 + '\n{"step": 2, "lo')
    truncate_after(path, 2, 2)
    kept = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    assert [line.get("step") for line in kept] == [0, 1, 2, None]
    assert kept[0] == {"step": 0, "loss": 0.5, "note": "é\u2028\n"}
    assert kept[-1] == {"begun": "today", "loss": None}
    append_line(path, {"step": 3})
    assert len(path.read_text().split("\n")) == 6


def test_the_line_of_an_evaluation_that_was_not_saved_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in (2, 4):
        append_line(path, {"step": step, "kind": "train"})
        append_line(path, {"step": step, "kind": "valid"})
    truncate_after(path, 4, 2)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["kind"]) for line in kept] == [(2, "train"), (2, "valid"), (4, "train")]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9), max_size=8), st.integers(0, 9), st.integers(0, 12))
def test_cutting_back_twice_is_cutting_back_once(cut: Path, steps: list[int], step: int, bite: int) -> None:
    path = cut / "lines.jsonl"
    path.unlink(missing_ok=True)
    for each in steps:
        append_line(path, {"step": each})
    if steps:
        os.truncate(path, max(0, path.stat().st_size - bite % len('{"step": 0}\n')))  # a kill in the last line
    truncate_after(path, step, step)
    once = path.read_bytes() if path.exists() else b""
    truncate_after(path, step, step)
    assert (path.read_bytes() if path.exists() else b"") == once
    whole = steps[:-1] if steps and bite % 12 > 1 else steps
    assert [json.loads(line)["step"] for line in once.splitlines()] == [each for each in whole if each <= step]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=50)
@given(json_values)
def test_json_files_bring_back_what_was_written(cut: Path, obj: Any) -> None:
    try:
        write_json(cut / "any.json", obj)
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    assert read_json(cut / "any.json") == obj


def test_json_files_have_no_numbers_that_json_lacks(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"é": 1.5})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "é": 1.5\n}\n'
    for number in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "a.json", {"loss": number})
    assert read_json(tmp_path / "a.json") == {"é": 1.5}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_no_pickle_is_ever_read() -> None:
    for module in (checkpoint, file_io):
        source = Path(module.__file__).read_text()
        assert "torch.load" not in source
        assert "import pickle" not in source


def test_a_run_copied_elsewhere_is_still_whole(tmp_path: Path) -> None:
    save(tmp_path / "a", 1)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert check_whole(resolve(tmp_path / "b")) == 1
