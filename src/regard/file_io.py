"""Reading and writing of files: atomic writes, JSON, tensors, locks. Errors name the file; nothing is pickled.

A file is created exclusively under a random name, flushed to the disk, and then renamed. No symbolic link is followed
when something is written or deleted.
"""

import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from safetensors import SafetensorError

from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

FULL = {errno.ENOSPC, errno.EDQUOT}
HALF = ".*half"  # the names of temporary files and folders
ASIDE = ".aside"  # the end of the name of a locked temporary folder
RANDOM = 8  # bytes in the name of a temporary file or folder
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
RESTORE = "restore the file or use another checkpoint"  # the end of a message about a damaged file


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


def named_path(path: str | Path) -> Path:
    """A path that a user names, which need not be there; one that no file can have is refused, as is an empty one."""
    if not str(path):
        raise UserError('"": this path is empty; name a file or a directory (. is the current one).')
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long, or with a character that no name may have
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(path)[:60]!r}: cannot be used as a path ({reason}); check it.") from error
    return Path(path)


def check_writable(path: Path, is_file: bool = False) -> None:
    """Raise ``UserError`` if a file or folder cannot be made, or replaced, at this path: before work that is for it.

    Permissions do not tell: the user may be root, and the disk read-only. So a folder is made there, and removed.
    """
    with as_user_error(path):
        if is_file:
            _check_replaceable(path)
        place = path if path.is_dir() else path.absolute().parent
        while not os.path.lexists(place):
            place = place.parent
        trial = temporary_path(place / "trial")
        trial.mkdir()
        trial.rmdir()


def temporary_path(path: Path) -> Path:
    """A path beside `path` with a random name, which no other process can have chosen or prepared."""
    return path.with_name(f".{path.name}.{os.urandom(RANDOM).hex()}.half")


@contextmanager
def atomic_write(path: Path, cure: str = "choose a directory that you may write to") -> Iterator[IO[bytes]]:
    """A new temporary file, whose `name` is its path. It is renamed to `path` on success, and deleted on failure.

    Every file outside a new folder is written by this function. A symbolic link at `path` is replaced, not followed.
    """
    temporary = temporary_path(path)
    try:
        with as_user_error(path, cure):
            _check_replaceable(path)
            with open(temporary, "xb") as file:  # x: exclusive creation, which follows no link
                yield file
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except BaseException:
        remove(temporary)
        raise


def _check_replaceable(path: Path) -> None:
    """Refuse to write a file in the place of a folder, a pipe or a device."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: cannot be written: it is no plain file; give another name.")


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_file(path: str | Path, content: str | bytes) -> Path:
    """Replace a file atomically, and create its parent folders."""
    path = Path(path)
    with as_user_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def write_json(path: Path, obj: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json_text(obj))


def json_text(obj: Any) -> str:
    """JSON with indentation, as files have it."""
    return json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def append_line(path: Path, obj: Mapping[str, Any]) -> None:
    """Append one JSON object to a file of lines; numbers that are not finite become null, as JSON has none."""
    finite = {key: None if isinstance(it, float) and not math.isfinite(it) else it for key, it in obj.items()}
    line = json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n"
    with as_user_error(path), open(path, "ab", opener=_open_no_follow) as file:
        file.write(line.encode())


def _open_no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | NO_FOLLOW, 0o666)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """The contents of a file; raises ``UserError`` with its path if it is missing or cannot be read."""
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
        raise UserError(f"{path}: a folder, a pipe or a device, not a file; {RESTORE}.")


def read_json(path: Path) -> Any:
    """The contents of a JSON file; raises ``UserError`` with its path if it is missing or cannot be read."""
    data = read_bytes(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # also if it is not UTF-8, or lists in lists without end
        raise UserError(f"{path}: damaged or not JSON ({error}); {RESTORE}.") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file of settings; raises ``UserError`` if the file has anything else."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: should be an object of settings; restore the file.")
    return found


def is_whole(value: Any) -> bool:
    """Whether a value of a JSON file is a whole number that is not negative."""
    return type(value) is int and value >= 0


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a number: neither NaN nor infinite."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


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
        raise UserError(f"{path}: damaged or not safetensors ({error}); {RESTORE}.") from error
    return tensors


def check_finite(
    tensors: "Mapping[str, Tensor]", path: object, cure: str = "use another checkpoint, such as an earlier step"
) -> None:
    """Raise ``UserError`` with the name of the first tensor that has NaN or an infinite number."""
    if wrong := finite_error(tensors):
        raise UserError(f"{path}: {wrong}; {cure}.")


def finite_error(tensors: "Mapping[str, Tensor]") -> str | None:
    """The first tensor that has NaN or an infinite number, as text for an error; None if there is none."""
    import torch

    for name, tensor in tensors.items():
        # A sum is the fastest check. It may overflow where every number is finite, so each number is checked then.
        if tensor.is_floating_point() and not tensor.sum(dtype=torch.float32).isfinite():
            bad = int((~tensor.float().isfinite()).sum())  # as in the model: 1e300 of float64 is infinite there
            if bad:
                return f"{name}: {bad:,} of its {tensor.numel():,} numbers are NaN or infinite"
    return None


def discard(paths: Sequence[Path]) -> None:
    """Delete files and directories of one folder; each is renamed first, so that a kill leaves none of them in part."""
    if paths:
        aside = temporary_path(paths[0])
        aside.mkdir()
        for path in paths:
            os.rename(path, aside / path.name)
        remove(aside)


def _temporary_names(path: Path, end: str) -> str:
    """The pattern of the names of `temporary_path`: those of `x` are not those of `x.y`."""
    return f".{escape(path.name)}.{'[0-9a-f]' * 2 * RANDOM}{end}"


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A new folder beside `path` to write in; it is removed afterwards, with those that killed processes have left.

    It is locked inside the block: a folder that nobody has locked is of a process that has ended. Where the file system
    has no locks, those of other processes stay.
    """
    while True:
        folder = temporary_path(path).with_suffix(ASIDE)
        with as_user_error(path):
            folder.mkdir(parents=True)
            handle = os.open(folder, os.O_RDONLY)
        lock_file(handle)
        if folder.exists():
            break
        os.close(handle)  # before it was locked, another process took it for one that was left
    try:
        yield folder
        with _unlocked(folder) as free:
            has_locks = not free
        for other in path.parent.glob(_temporary_names(path, ASIDE)) if has_locks else ():
            with suppress(OSError), _unlocked(other) as free:
                if free:
                    remove(other)
    finally:
        os.close(handle)
        remove(folder)


@contextmanager
def _unlocked(folder: Path) -> Iterator[bool]:
    """Whether nobody has locked a folder; if so, it is locked inside the block."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
    try:
        yield lock_file(handle, wait=False)
    finally:
        os.close(handle)


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes have left of a file that they wrote; the caller must hold the lock of the file."""
    for left in path.parent.glob(_temporary_names(path, ".half")):
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
    """Whether a relative path stays inside its directory, and may be the name of a file."""
    return not PurePath(name).is_absolute() and ".." not in PurePath(name).parts and "\0" not in name
