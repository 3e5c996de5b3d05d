"""Checkpoints of a run: a directory of steps, each complete or absent even if the process is killed at any moment.

    run/steps/000500/   the files that the caller saves, and manifest.json: size and SHA-256 of each file
    run/latest, best    one line, the name of a step; replaced atomically after that step is complete

A step is written to `steps/.half`, flushed to the disk, and then renamed. A step that is replaced is kept in
`steps/.old` until the new one has its name. The next save cleans up both after a kill. Nothing is pickled.
"""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

Content = bytes | dict[str, Any] | Callable[[Path], object]  # a dict is written as JSON; a function writes to the path

MANIFEST = "manifest.json"
FORMAT = 2  # of the files of a run; runs of another format are refused
FULL = {errno.ENOSPC, errno.EDQUOT}


# -- a run ------------------------------------------------------------------------------------------------------------


def save_step(run: Path, step: int, files: Mapping[str, Content], keep: int) -> Path:
    """Write a complete step, point `latest` to it, and delete all but the newest `keep`, `latest` and `best`."""
    assert keep >= 1
    assert MANIFEST not in files
    steps = run / "steps"
    unfinished, final = steps / ".half" / _name(step), steps / _name(step)
    with _as_user_error(run):
        steps.mkdir(parents=True, exist_ok=True)
        for left in (steps / ".old").glob("*"):  # after a kill: move an old step back unless it was replaced
            if not (steps / left.name).exists():
                os.rename(left, steps / left.name)
        for name in (".old", ".half"):
            shutil.rmtree(steps / name, ignore_errors=True)
        try:
            for name, content in files.items():
                _write(unfinished / name, content)
            fingerprints = {name: _fingerprint(unfinished / name) for name in files}
            _write(unfinished / MANIFEST, {"format": FORMAT, "files": fingerprints})
            for folder, _, _ in os.walk(unfinished):
                _sync(Path(folder))
            old = steps / ".old" / final.name
            if final.exists():  # no portable system call swaps two directories
                old.parent.mkdir(exist_ok=True)
                os.rename(final, old)
            os.rename(unfinished, final)
            _sync(steps)
            shutil.rmtree(old.parent, ignore_errors=True)
        finally:
            shutil.rmtree(steps / ".half", ignore_errors=True)
        set_pointer(run, "latest", step)
        names = sorted((path.name for path in steps.iterdir() if path.name.isdecimal()), key=int)
        kept = {*names[-keep:], read_pointer(run, "latest"), read_pointer(run, "best")}
        (steps / ".half").mkdir(exist_ok=True)
        for name in set(names) - kept:
            os.rename(steps / name, steps / ".half" / name)  # so that a kill during deletion leaves no incomplete step
        shutil.rmtree(steps / ".half", ignore_errors=True)
    return final


def set_pointer(run: Path, name: str, step: int) -> None:
    """Point `run/name` (latest or best) to this step, atomically."""
    assert (run / "steps" / _name(step)).is_dir(), f"step {step} is not saved"
    write_text(run / name, _name(step) + "\n")


def read_pointer(run: Path, name: str) -> str | None:
    """The name of the step that `run/name` points to, or None."""
    if not (run / name).is_file():
        return None
    step = _read(run / name).decode(errors="replace").strip()
    if not step.isdecimal():
        raise UserError(f"{run / name}: contents changed: expected the name of a step, found {step[:20]!r}.")
    return step


def resolve(path: Path, pointers: Sequence[str] = ("best", "latest")) -> Path:
    """The verified directory of a step, given that directory or its run. For a run, the first pointer that is set."""
    absolute = Path(os.path.abspath(path))  # `.` and `000500` are relative to the current directory
    steps, name = absolute.parent, absolute.name
    if steps.name != "steps" and not (absolute / MANIFEST).is_file():
        if not path.is_dir():
            raise UserError(f"{path}: no such directory; name a run, such as runs/dates.")
        named = next((step for step in (read_pointer(path, name) for name in pointers) if step), None)
        if named is None:
            raise UserError(f"{path}: has no checkpoint; train into it first or name another run.")
        steps, name = absolute / "steps", named
    found = next((place for place in (steps / name, steps / ".old" / name) if place.is_dir()), None)
    if found is None:
        raise UserError(f"{steps / name}: no such checkpoint; name another step or run.")
    verify(found)
    return found


def check_format(path: Path, version: Any) -> None:
    """Raise ``UserError`` if a file of a run has another format than this version reads."""
    if version != FORMAT:
        raise UserError(
            f"{path}: a run of format {version}, but this version reads format {FORMAT}; train it again, or use the "
            "version of regard that wrote it."
        )


def verify(folder: Path) -> None:
    """Raise ``UserError`` if a file of a step is missing, truncated or changed."""
    manifest = read_json(folder / MANIFEST)
    fingerprints = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(fingerprints, dict) or not all(isinstance(one, dict) for one in fingerprints.values()):
        raise UserError(f"{folder / MANIFEST}: contents changed. {_CURE}")
    check_format(folder / MANIFEST, manifest.get("format", 1))
    for name, expected in fingerprints.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: missing. {_CURE}")
        if path.stat().st_size != expected.get("size"):
            raise UserError(f"{path}: expected {expected.get('size')} bytes, found {path.stat().st_size}. {_CURE}")
        if _fingerprint(path) != expected:
            raise UserError(f"{path}: contents changed. {_CURE}")


_CURE = "Restore the file or use another checkpoint."


def _name(step: int) -> str:
    return f"{step:06d}"


def _write(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else _json(content).encode())
    _sync(path)


def _fingerprint(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# -- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path to write to. It is renamed to `path` atomically on success, and deleted on failure."""
    temporary = path.with_name(f".{path.name}.half")
    try:
        with _as_user_error(path):
            yield temporary
            _sync(temporary)
            os.replace(temporary, path)
            _sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Writes a file atomically, and creates its parent folders."""
    path = Path(path)
    with atomic_write(path) as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, obj: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, _json(obj))


def read_json(path: Path) -> Any:
    """The contents of a JSON file; raises ``UserError`` with its path if it is missing or cannot be read."""
    data = _read(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # also if it is not UTF-8, or lists in lists without end
        raise UserError(f"{path}: damaged or not JSON ({error}). {_CURE}") from error


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", about: Mapping[str, str] | None = None) -> None:
    """Replace a safetensors file atomically. Tensors that share storage are written as separate copies.

    ``about`` is metadata for the file's header, which some programs require.
    """
    from safetensors.torch import save_file  # imports torch, which the other functions do not need

    separate: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        flat = tensor.detach().contiguous()
        place = flat.device, flat.untyped_storage().data_ptr()
        separate[name] = flat.clone() if place in seen else flat
        seen.add(place)
    with atomic_write(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(separate, temporary, dict(about or {}) or None)
        temporary.chmod(mode)  # safetensors allows only the owner to read; use the permissions of the umask


def load_tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of a safetensors file, on the CPU."""
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file.") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged or not safetensors ({error}). {_CURE}") from error
    return tensors


def check_finite(tensors: "Mapping[str, Tensor]", path: object) -> None:
    """Raise ``UserError`` with the name of the first tensor that has NaN or an infinite number."""
    import torch

    for name, tensor in tensors.items():
        # A sum is the fastest check. It may overflow where every number is finite, so each number is checked then.
        if tensor.is_floating_point() and not tensor.sum(dtype=torch.float32).isfinite():
            bad = int((~tensor.isfinite()).sum())
            if bad:
                found = f"{bad:,} of its {tensor.numel():,} numbers are NaN or infinite"
                raise UserError(f"{path}: {name}: {found}; use another checkpoint, such as an earlier step.")


def append_line(path: Path, obj: Mapping[str, Any]) -> None:
    """Append one JSON object to a file of lines; numbers that are not finite become null, as JSON has none."""
    finite = {key: None if isinstance(it, float) and not math.isfinite(it) else it for key, it in obj.items()}
    with _as_user_error(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n")


def truncate_after(path: Path, step: int) -> None:
    """Delete the lines after a step, and an incomplete last line, so that a resumed run continues the file."""
    if path.exists():
        kept = ""
        for line in _read(path).decode(errors="replace").split("\n"):
            with suppress(ValueError, TypeError, AttributeError):
                kept += f"{line}\n" if json.loads(line).get("step", step) <= step else ""
        write_text(path, kept)


def _json(obj: Any) -> str:
    return json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> bytes:
    try:
        if path.is_fifo():  # reading it would wait forever
            raise UserError(f"{path}: a pipe, not a file. {_CURE}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _as_user_error(path: Path) -> Iterator[None]:
    """Turn errors of writing, such as a full disk or missing permissions, into ``UserError``."""
    try:
        yield
    except SafetensorError as error:  # how safetensors reports a failed write
        raise UserError(f"{path}: cannot be written: {error}.") from error
    except OSError as error:
        cure = "free some space" if error.errno in FULL else "choose a directory that you may write to"
        raise UserError(f"{path}: cannot be written: {error.strerror or error}; {cure}.") from error
