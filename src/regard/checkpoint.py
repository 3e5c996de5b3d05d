"""Checkpoints of a run: a directory of steps, each complete or absent even if the process is killed at any moment.

    run/steps/000500/   the files that the caller saves, and manifest.json: size and SHA-256 of each file
    run/latest, best    one line, the name of a step; replaced atomically after that step is complete

A step is written to `steps/.NAME.RANDOM.half`, flushed to the disk, and then renamed. A step that is replaced is kept
in `steps/.old` until the new one has its name. The next save cleans up both after a kill.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from regard.errors import UserError
from regard.file_io import (
    HALF,
    RESTORE,
    as_user_error,
    discard,
    is_inside,
    json_text,
    read_bytes,
    read_json,
    remove,
    sync,
    temporary_path,
    write_text,
)
from regard.shipped import no_such_run, run_named
from regard.version import __version__

T = TypeVar("T")
Content = bytes | dict[str, Any] | Callable[[Path], object]  # a dict is written as JSON; a function writes to the path

# What to do if the directory has a run already. auto: start it if there is none, resume it if it is this recipe's.
Existing = Literal["refuse", "resume", "overwrite", "auto"]

MANIFEST = "manifest.json"
# The format of the files of a run, and the oldest one that is read. What each of them changed is in
# `regard.migrations`.
FORMAT, OLDEST = 3, 2


def save_step(run: Path, step: int, files: Mapping[str, Content], keep: int) -> Path:
    """Write a complete step, point `latest` to it, and delete all but the newest `keep`, `latest` and `best`."""
    assert keep >= 1
    assert MANIFEST not in files
    steps = run / "steps"
    final, replaced = steps / _name(step), steps / ".old"
    unfinished = temporary_path(final)
    with as_user_error(run):
        check_steps(run)
        steps.mkdir(parents=True, exist_ok=True)
        if replaced.is_symlink():
            replaced.unlink()
        for left in replaced.glob("*"):  # after a kill: move an old step back unless it was replaced
            if not (steps / left.name).exists():
                os.rename(left, steps / left.name)
        for left in (replaced, *steps.glob(HALF)):
            remove(left)
        try:
            unfinished.mkdir()
            for name, content in files.items():
                _write(unfinished / name, content)
            fingerprints = {name: _fingerprint(unfinished / name) for name in files}
            _write(unfinished / MANIFEST, {"format": FORMAT, "version": __version__, "files": fingerprints})
            for folder, _, _ in os.walk(unfinished):
                sync(Path(folder))
            if os.path.lexists(final):  # no portable system call swaps two directories
                replaced.mkdir(exist_ok=True)
                os.rename(final, replaced / final.name)
            os.rename(unfinished, final)
            sync(steps)
            remove(replaced)
        finally:
            remove(unfinished)
        set_pointer(run, "latest", step)
    delete_old_steps(run, keep)
    return final


def delete_old_steps(run: Path, keep: int) -> None:
    """Delete all but the newest `keep` steps, `latest` and `best`, and what a killed process has left of a step."""
    steps = run / "steps"
    with as_user_error(run):
        for left in steps.glob(HALF):
            remove(left)
        names = sorted((path.name for path in steps.iterdir() if path.name.isdecimal()), key=int)
        kept = {*names[-keep:], read_pointer(run, "latest"), read_pointer(run, "best")}
        discard([steps / name for name in names if name not in kept])


def check_steps(run: Path) -> None:
    """Refuse a run whose steps are a symbolic link: saving would delete old steps in another directory."""
    if (run / "steps").is_symlink():
        raise UserError(f"{run / 'steps'}: is a symbolic link; put a directory in its place, or choose another --out.")


def set_pointer(run: Path, name: str, step: int) -> None:
    """Point `run/name` (latest or best) to this step, atomically."""
    assert (run / "steps" / _name(step)).is_dir(), f"step {step} is not saved"
    write_text(run / name, _name(step) + "\n")


def read_pointer(run: Path, name: str) -> str | None:
    """The name of the step that `run/name` points to, or None."""
    if not (run / name).is_file():
        return None
    step = read_bytes(run / name).decode(errors="replace").strip()
    if not step.isdecimal():
        raise UserError(f"{run / name}: contents changed: expected the name of a step, found {step[:20]!r}.")
    return step


def resolve(path: Path, pointers: Sequence[str] = ("best", "latest")) -> Path:
    """The verified directory of a step, given that directory or its run. For a run, the first pointer that is set."""
    return read_step(path, lambda folder: folder, pointers)


def read_step(path: Path, read: Callable[[Path], T], pointers: Sequence[str] = ("best", "latest")) -> T:
    """What `read` returns for the verified directory of a step, given that directory or its run.

    A process that trains the run may replace or delete the step meanwhile. Then the step is found and read again.
    """
    while True:
        folder = _find_step(path, pointers)
        try:
            handle = os.open(folder, os.O_RDONLY)  # an open directory keeps its inode, by which it is recognised
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{folder}: cannot be read: {error.strerror}.") from error
        try:
            verify(folder)
            found = read(folder)
        except (UserError, OSError):
            if _is_at(handle, folder):
                raise
        else:
            if _is_at(handle, folder):
                return found
        finally:
            os.close(handle)


def _find_step(path: Path, pointers: Sequence[str]) -> Path:
    path = run_named(path)
    absolute = Path(os.path.abspath(path))  # `.` and `000500` are relative to the current directory
    steps, name, named = absolute.parent, absolute.name, None
    is_step = steps.name == "steps" and name.isdecimal()  # else a run in a directory with the name "steps"
    if not is_step and not (absolute / MANIFEST).is_file():
        if not path.is_dir():
            raise no_such_run(path)
        named = next(filter(None, (read_pointer(path, pointer) for pointer in pointers)), None)
        if named is None:
            runs = sorted(one.name for one in path.iterdir() if any(read_pointer(one, each) for each in pointers))
            if runs:  # of regard train --seeds, or of a ladder
                raise UserError(f"{path}: a folder of several runs; name one of them, such as {path / runs[0]}.")
            raise UserError(f"{path}: has no checkpoint; train into it first or name another run.")
        steps, name = absolute / "steps", named
    for place in (steps / name, steps / ".old" / name, steps / name):  # in this order, as a step may be replaced now
        if place.is_dir():
            return place
    if named and named not in (read_pointer(path, pointer) for pointer in pointers):
        return _find_step(path, pointers)  # deleted since the pointer was read
    raise UserError(f"{steps / name}: no such checkpoint; name another step or run.")


def run_of(step: Path) -> Path:
    """The run of a step, given the directory of the step; a step that is being replaced is in `steps/.old`."""
    return step.parents[2] if step.parent.name == ".old" else step.parents[1]


def _is_at(handle: int, folder: Path) -> bool:
    """Whether an open directory still has this path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False


def check_format(path: Path, version: Any) -> int:
    """The format of a file of a run; raises ``UserError`` if it is none that this version reads."""
    if type(version) is not int or not OLDEST <= version <= FORMAT:
        raise UserError(
            f"{path}: a run of format {version!r:.40}, but this version reads formats {OLDEST} to {FORMAT}; train it "
            "again, or use the version of regard that wrote it."
        )
    return version


def format_of(step: Path) -> int:
    """The format of a verified step."""
    return check_format(step / MANIFEST, read_json(step / MANIFEST).get("format", 1))


def verify(folder: Path) -> None:
    """Raise ``UserError`` if a file of a step is missing, truncated or changed."""
    manifest = read_json(folder / MANIFEST)
    fingerprints = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(fingerprints, dict) or not all(isinstance(one, dict) for one in fingerprints.values()):
        raise UserError(f"{folder / MANIFEST}: contents changed; {RESTORE}.")
    check_format(folder / MANIFEST, manifest.get("format", 1))
    for name, expected in fingerprints.items():
        path = folder / name
        if not is_inside(name):
            raise UserError(f"{folder / MANIFEST}: {name}: is outside the directory; {RESTORE}.")
        if not path.is_file():
            raise UserError(f"{path}: missing; {RESTORE}.")
        if path.stat().st_size != expected.get("size"):
            raise UserError(f"{path}: expected {expected.get('size')} bytes, found {path.stat().st_size}; {RESTORE}.")
        if _fingerprint(path) != expected:
            raise UserError(f"{path}: contents changed; {RESTORE}.")


def _name(step: int) -> str:
    return f"{step:06d}"


def _write(path: Path, content: Content) -> None:
    """Write a file of a new folder, which is renamed as a whole."""
    path.parent.mkdir(exist_ok=True)
    if callable(content):
        content(path)
    else:
        with open(path, "xb") as file:
            file.write(content if isinstance(content, bytes) else json_text(content).encode())
    sync(path)


def _fingerprint(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def truncate_after(path: Path, step: int, evaluated: int) -> None:
    """Delete the lines that a run resumed after `step` writes again, and an incomplete last line.

    A run may be killed after it wrote the line of an evaluation, and before it saved that `step` is `evaluated`.
    """
    if path.exists():
        kept = ""
        for line in read_bytes(path).decode(errors="replace").split("\n"):
            with suppress(ValueError, TypeError, AttributeError, RecursionError):
                found = json.loads(line)
                last = evaluated if found.get("kind") == "valid" else step
                kept += f"{line}\n" if found.get("step", last) <= last else ""
        write_text(path, kept)
