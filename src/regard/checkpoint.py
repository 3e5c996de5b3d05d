"""Checkpoints of a run: a directory of steps, each complete or absent even if the process is killed at any moment.

    run/steps/000500/   the files that the caller saves, and manifest.json: size and SHA-256 of each file
    run/latest, best    one line, the name of a step; replaced atomically after that step is complete

A step is written to `steps/.NAME.RANDOM.half`, flushed to the disk, and then renamed. A step that is replaced is kept
in `steps/.old` until the new one has its name. The next save cleans up both after a kill. Files are created
exclusively, and no symbolic link is followed when something is written or deleted. Nothing is pickled.
"""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError

from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Content = bytes | dict[str, Any] | Callable[[Path], object]  # a dict is written as JSON; a function writes to the path

MANIFEST = "manifest.json"
FORMAT = 2  # of the files of a run; runs of another format are refused
FULL = {errno.ENOSPC, errno.EDQUOT}
HALF = ".*half"  # the names of temporary files and folders
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


# -- a run ------------------------------------------------------------------------------------------------------------


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
            _write(unfinished / MANIFEST, {"format": FORMAT, "files": fingerprints})
            for folder, _, _ in os.walk(unfinished):
                _sync(Path(folder))
            if os.path.lexists(final):  # no portable system call swaps two directories
                replaced.mkdir(exist_ok=True)
                os.rename(final, replaced / final.name)
            os.rename(unfinished, final)
            _sync(steps)
            remove(replaced)
        finally:
            remove(unfinished)
        set_pointer(run, "latest", step)
        names = sorted((path.name for path in steps.iterdir() if path.name.isdecimal()), key=int)
        kept = {*names[-keep:], read_pointer(run, "latest"), read_pointer(run, "best")}
        discard([steps / name for name in names if name not in kept])
    return final


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
    step = _read(run / name).decode(errors="replace").strip()
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
    absolute = Path(os.path.abspath(path))  # `.` and `000500` are relative to the current directory
    steps, name, named = absolute.parent, absolute.name, None
    is_step = steps.name == "steps" and name.isdecimal()  # else a run in a directory with the name "steps"
    if not is_step and not (absolute / MANIFEST).is_file():
        if not path.is_dir():
            raise UserError(f"{path}: no such directory; name a run, such as runs/dates.")
        named = next(filter(None, (read_pointer(path, pointer) for pointer in pointers)), None)
        if named is None:
            raise UserError(f"{path}: has no checkpoint; train into it first or name another run.")
        steps, name = absolute / "steps", named
    for place in (steps / name, steps / ".old" / name, steps / name):  # in this order, as a step may be replaced now
        if place.is_dir():
            return place
    if named and named not in (read_pointer(path, pointer) for pointer in pointers):
        return _find_step(path, pointers)  # deleted since the pointer was read
    raise UserError(f"{steps / name}: no such checkpoint; name another step or run.")


def _is_at(handle: int, folder: Path) -> bool:
    """Whether an open directory still has this path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False


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
        if not is_inside(name):
            raise UserError(f"{folder / MANIFEST}: {name}: is outside the directory. {_CURE}")
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
    """Write a file of a new folder, which is renamed as a whole."""
    path.parent.mkdir(exist_ok=True)
    if callable(content):
        content(path)
    else:
        with open(path, "xb") as file:
            file.write(content if isinstance(content, bytes) else _json(content).encode())
    _sync(path)


def _fingerprint(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# -- files ------------------------------------------------------------------------------------------------------------


def temporary_path(path: Path) -> Path:
    """A path beside `path` with a random name, which no other process can have chosen or prepared."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.half")


@contextmanager
def atomic_write(path: Path, cure: str = "choose a directory that you may write to") -> Iterator[IO[bytes]]:
    """A new temporary file, whose `name` is its path. It is renamed to `path` on success, and deleted on failure.

    Every file outside a new folder is written by this function. A symbolic link at `path` is replaced, not followed.
    """
    temporary = temporary_path(path)
    try:
        with as_user_error(path, cure):
            if path.exists() and not path.is_file():
                raise UserError(f"{path}: cannot be written: it is no plain file; give another name.")
            with open(temporary, "xb") as file:  # x: exclusive creation, which follows no link
                yield file
            _sync(temporary)
            os.replace(temporary, path)
            _sync(path.parent)
    except BaseException:
        remove(temporary)
        raise


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Writes a file atomically, and creates its parent folders."""
    path = Path(path)
    data = content if isinstance(content, bytes) else content.encode()
    with as_user_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)
    return path


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def discard(paths: Sequence[Path]) -> None:
    """Delete files and directories of one folder; each is renamed first, so that a kill leaves none of them in part."""
    if paths:
        aside = temporary_path(paths[0])
        aside.mkdir()
        for path in paths:
            os.rename(path, aside / path.name)
        remove(aside)


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes have left of a file that they wrote; the caller must hold the lock of the file."""
    for left in path.parent.glob(f".{escape(path.name)}.*.half"):
        remove(left)


def remove(path: Path) -> None:
    """Delete a directory or a file, if it exists and may be deleted; of a symbolic link only the link."""
    if path.is_symlink() or path.is_file():
        with suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def lock_file(handle: int, wait: bool = True) -> bool:
    """Lock an open file until it is closed or its process ends, even by a kill; False if another process has the lock.

    True without a lock on systems without `flock` and on file systems that refuse it, such as some network disks.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def is_inside(name: str) -> bool:
    """Whether a relative path stays inside its directory."""
    return not PurePath(name).is_absolute() and ".." not in PurePath(name).parts


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
    with atomic_write(path) as file:
        save_file(separate, file.name, dict(about or {}) or None)
        os.chmod(file.name, os.fstat(file.fileno()).st_mode)  # safetensors makes a file that only its owner may read


def load_tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of a safetensors file, on the CPU."""
    from safetensors.torch import load_file

    _check_plain(path)
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
            bad = int((~tensor.float().isfinite()).sum())  # as in the model: 1e300 of float64 is infinite there
            if bad:
                found = f"{bad:,} of its {tensor.numel():,} numbers are NaN or infinite"
                raise UserError(f"{path}: {name}: {found}; use another checkpoint, such as an earlier step.")


def append_line(path: Path, obj: Mapping[str, Any]) -> None:
    """Append one JSON object to a file of lines; numbers that are not finite become null, as JSON has none."""
    finite = {key: None if isinstance(it, float) and not math.isfinite(it) else it for key, it in obj.items()}
    line = json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n"
    with as_user_error(path), open(path, "ab", opener=_open_no_follow) as file:
        file.write(line.encode())


def truncate_after(path: Path, step: int) -> None:
    """Delete the lines after a step, and an incomplete last line, so that a resumed run continues the file."""
    if path.exists():
        kept = ""
        for line in _read(path).decode(errors="replace").split("\n"):
            with suppress(ValueError, TypeError, AttributeError, RecursionError):
                kept += f"{line}\n" if json.loads(line).get("step", step) <= step else ""
        write_text(path, kept)


def _json(obj: Any) -> str:
    return json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> bytes:
    try:
        _check_plain(path)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file.") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


def _check_plain(path: Path) -> None:
    """Refuse a folder, a pipe or a device (also by a symbolic link): reading a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: a folder, a pipe or a device, not a file. {_CURE}")


def _open_no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | NO_FOLLOW, 0o666)


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def as_user_error(path: Path, cure: str = "choose a directory that you may write to") -> Iterator[None]:
    """Turn errors of writing, such as a full disk or missing permissions, into ``UserError``."""
    try:
        yield
    except SafetensorError as error:  # how safetensors reports a failed write
        raise UserError(f"{path}: cannot be written: {error}.") from error
    except OSError as error:
        cure = "free some space" if error.errno in FULL else cure
        raise UserError(f"{path}: cannot be written: {error.strerror or error}; {cure}.") from error
