"""A run is a directory of steps, each whole or absent, whatever moment the process is killed at.

    run/steps/000500/   what the caller saves, and manifest.json: size and SHA-256 of each file
    run/latest, best    one line, the name of a step; replaced in one move once that step is whole

A step is written in `steps/.half`, flushed to the disk, and then renamed. One that is replaced waits in `steps/.old`
until the new one has its name. What a kill leaves behind in either is settled by the next save. Nothing is pickled.
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
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import UserError

Content = bytes | dict[str, Any] | Callable[[Path], object]  # a dict is written as JSON; a function writes to the path

MANIFEST = "manifest.json"
FULL = {errno.ENOSPC, errno.EDQUOT}


# -- a run ------------------------------------------------------------------------------------------------------------


def save_step(run: Path, step: int, files: Mapping[str, Content], keep: int) -> Path:
    """Write a whole step, make it the latest, and drop all but the newest `keep` and those that have a mark."""
    assert keep >= 1
    assert MANIFEST not in files
    steps = run / "steps"
    half, whole = steps / ".half" / _name(step), steps / _name(step)
    with _writing(run):
        steps.mkdir(parents=True, exist_ok=True)
        _settle(steps)
        try:
            for name, content in files.items():
                _write(half / name, content)
            _write(half / MANIFEST, {"files": {name: _print(half / name) for name in files}})
            _sync_folders(half)
            _install(half, whole)
        finally:
            shutil.rmtree(steps / ".half", ignore_errors=True)
        set_pointer(run, "latest", step)
        _prune(run, keep)
    return whole


def set_pointer(run: Path, name: str, step: int) -> None:
    """Let `run/name` (latest, best) name this step, in one move."""
    assert (run / "steps" / _name(step)).is_dir(), f"step {step} is not saved"
    write_text(run / name, _name(step) + "\n")


def read_pointer(run: Path, name: str) -> str | None:
    """The name of the step that `run/name` names, if that mark is set."""
    if not (run / name).is_file():
        return None
    step = _read(run / name).decode(errors="replace").strip()
    if not step.isdecimal():
        raise UserError(f"{run / name}: contents changed: expected the name of a step, found {step[:20]!r}.")
    return step


def resolve(path: Path, pointers: Sequence[str] = ("best", "latest")) -> Path:
    """The verified directory of a step, given itself or its run; of a run, the step with the first mark that is set."""
    whole = Path(os.path.abspath(path))  # what `.` and `000500` are called depends on where one stands
    steps, name = whole.parent, whole.name
    if steps.name != "steps" and not (whole / MANIFEST).is_file():
        if not path.is_dir():
            raise UserError(f"{path}: no such directory; name a run, such as runs/dates.")
        named = next((step for step in (read_pointer(path, name) for name in pointers) if step), None)
        if named is None:
            raise UserError(f"{path}: holds no checkpoint; train into it first or name another run.")
        steps, name = whole / "steps", named
    found = next((place for place in (steps / name, steps / ".old" / name) if place.is_dir()), None)
    if found is None:
        raise UserError(f"{steps / name}: no such checkpoint; name another step or run.")
    verify(found)
    return found


def verify(folder: Path) -> None:
    """Refuse a step with a file that is missing, truncated or altered, by name."""
    manifest = read_json(folder / MANIFEST)
    prints = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(prints, dict) or not all(isinstance(one, dict) for one in prints.values()):
        raise UserError(f"{folder / MANIFEST}: contents changed. {_CURE}")
    for name, expected in prints.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: missing. {_CURE}")
        if path.stat().st_size != expected.get("size"):
            raise UserError(f"{path}: expected {expected.get('size')} bytes, found {path.stat().st_size}. {_CURE}")
        if _print(path) != expected:
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


def _print(path: Path) -> dict[str, Any]:
    """The fingerprint of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _install(half: Path, whole: Path) -> None:
    """Give a step its name. No system call swaps two directories everywhere, so an older one steps aside first."""
    old = whole.parent / ".old" / whole.name
    if whole.exists():
        old.parent.mkdir(exist_ok=True)
        os.rename(whole, old)
    os.rename(half, whole)
    _sync(whole.parent)
    shutil.rmtree(old.parent, ignore_errors=True)


def _settle(steps: Path) -> None:
    """Finish what a kill interrupted: a step that had stepped aside returns unless it was replaced; halves go."""
    for old in (steps / ".old").glob("*"):
        if not (steps / old.name).exists():
            os.rename(old, steps / old.name)
    for left in (".old", ".half"):
        shutil.rmtree(steps / left, ignore_errors=True)


def _prune(run: Path, keep: int) -> None:
    steps = run / "steps"
    names = sorted((path.name for path in steps.iterdir() if path.name.isdecimal()), key=int)
    kept = {*names[-keep:], read_pointer(run, "latest"), read_pointer(run, "best")}
    (steps / ".half").mkdir(exist_ok=True)
    for name in set(names) - kept:
        os.rename(steps / name, steps / ".half" / name)  # a kill in mid-deletion must not leave a step with holes
    shutil.rmtree(steps / ".half", ignore_errors=True)


# -- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` in one move when all went well, and is gone if not."""
    aside = path.with_name(f".{path.name}.half")
    try:
        with _writing(path):
            yield aside
            _sync(aside)
            os.replace(aside, path)
            _sync(path.parent)
    finally:
        with suppress(OSError):
            aside.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one move."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, obj: Any) -> None:
    """Replace a JSON file in one move."""
    write_text(path, _json(obj))


def read_json(path: Path) -> Any:
    """What a JSON file holds; one that is not there or cannot be read is refused by name."""
    data = _read(path)
    try:
        return json.loads(data)
    except ValueError as error:  # also what is no UTF-8
        raise UserError(f"{path}: damaged or not JSON ({error}). {_CURE}") from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Replace a safetensors file in one move. Tensors that share storage are written as copies, others as they are.

    ``about`` are words for the file's header, which some of its readers insist on.
    """
    apart: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        flat = tensor.detach().contiguous()
        place = flat.device, flat.untyped_storage().data_ptr()
        apart[name] = flat.clone() if place in seen else flat
        seen.add(place)
    with replacing(path) as aside:
        aside.touch()
        mode = aside.stat().st_mode
        save_file(apart, aside, dict(about or {}) or None)
        aside.chmod(mode)  # safetensors lets only the owner read; who else may is for the umask to say


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, on a device."""
    try:
        tensors: dict[str, Tensor] = load_file(path, device=str(device))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file.") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged or not safetensors ({error}). {_CURE}") from error
    return tensors


def append_line(path: Path, obj: Mapping[str, Any]) -> None:
    """Add one JSON object to a file of lines; a number that is not finite, which JSON cannot hold, is null."""
    finite = {key: None if isinstance(it, float) and not math.isfinite(it) else it for key, it in obj.items()}
    with _writing(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n")


def truncate_after(path: Path, step: int) -> None:
    """Drop the lines past a step, and what a kill left half-written, so that a resumed run continues the file."""
    if path.exists():
        lines = _read(path).decode(errors="replace").split("\n")
        write_text(path, "".join(f"{line}\n" for line in lines if _until(line, step)))


def _until(line: str, step: int) -> bool:
    try:
        return bool(json.loads(line).get("step", step) <= step)
    except (ValueError, TypeError, AttributeError):
        return False


def _json(obj: Any) -> str:
    return json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


def _sync(path: Path) -> None:
    """Wait until a file, or the list of names in a directory, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        _sync(Path(folder))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A disk that is full or a place that may not be written to is the user's to mend."""
    try:
        yield
    except SafetensorError as error:  # how safetensors reports a failed write
        raise UserError(f"{path}: cannot be written: {error}.") from error
    except OSError as error:
        cure = "free some space" if error.errno in FULL else "choose a directory that you may write to"
        raise UserError(f"{path}: cannot be written: {error.strerror or error}; {cure}.") from error
