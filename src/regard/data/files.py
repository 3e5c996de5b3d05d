"""Files: text that is read whole, by lines or by number of a line; the folders of public data; writing to the cache.

A file that cannot be read or written raises a UserError with a cure.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import lzma
import mmap
import os
import shutil
import stat
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example import LazySequence, Pair
from regard.errors import UserError
from regard.file_io import NO_FOLLOW, as_user_error, lock_file

PACKED = (".gz", ".xz")  # the endings of compressed files
NEWLINE = 0x0A
PIECE = 2**24  # bytes that are searched for line ends at once
# Whether a byte is part of a whitespace character in UTF-8.
IN_SPACES = np.isin(
    range(256), [*{byte for point in range(0x3001) if chr(point).isspace() for byte in chr(point).encode()}]
)
LONGEST_LINE = 2**28  # the most bytes of a line
MOST_UNPACKED, MOST_RATIO = 2**26, 50  # an unpacked file may have this many bytes, or so many times its packed size


def read_text(path: str | Path) -> str:
    """Return the whole text of a UTF-8 file, which may be compressed (.gz or .xz)."""
    return "".join(_decoded(path))


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a text file without their line ends."""
    return list(iterate_lines(path))


def iterate_lines(path: str | Path) -> Iterator[str]:
    r"""Yield the lines of a text file without their line ends; the file is never in memory as a whole.

    Only \n and \r\n end a line. Other line separators of Unicode can occur inside a sentence, and to split there would
    shift the lines of parallel files.
    """
    return (line.removesuffix("\n").removesuffix("\r") for line in _decoded(path))


def split_paths(paths: str | Path) -> list[str]:
    """The paths of a setting: two or more of parallel files "src.txt,tgt.txt", else one, which may contain a comma."""
    if os.path.exists(os.path.expanduser(paths)):
        return [str(paths)]
    return [path.strip() for path in str(paths).split(",")]


def hash_text(text: str) -> int:
    """Return the SHA-256 of a text as a number, which decides the part of a corpus that the text belongs to."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest())


def read_parallel(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """Return the pairs of two parallel files: line n of one and line n of the other, both stripped."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        counts = f"{source_path} has {len(sources)} lines, {target_path} has {len(targets)}"
        raise UserError(f"{counts}; parallel files must correspond line for line.")
    return [Pair(source.strip(), target.strip()) for source, target in zip(sources, targets)]


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed according to its ending; raise a UserError if that fails.

    ~ is the home folder; the ~name of an unknown user is read as it is written.
    """
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    path = Path(os.path.expanduser(path))
    try:
        if path.is_fifo():  # opening it would wait until another program writes to it
            raise UserError(f"{path}: a pipe, not a file; give a file, or write the output of the pipe to one.")
        with openers.get(path.suffix, open)(path, "rb") as file:
            yield io.BufferedReader(_Unpacked(file, path)) if path.suffix in openers else file
    except (UserError, UnicodeError):  # errors about the content come from the code inside the with block
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check its name and folder.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; give a file in it.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); check its name and permissions.") from error


class _Unpacked(io.RawIOBase):
    """The unpacked content of a file. One that grows too much is refused: a few megabytes can hold terabytes."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path, self._bytes = file, path, 0
        self._most = max(MOST_UNPACKED, MOST_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._file.fileno())

    def readinto(self, buffer: Any) -> int:
        try:
            count = int(self._file.readinto(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
            kind = self._path.suffix[1:]
            raise UserError(f"{self._path}: damaged, or not {kind} at all ({error}); fetch it again.") from error
        self._bytes += count
        if self._bytes > self._most:
            size = f"unpacks to more than {self._most:,} bytes, {MOST_RATIO} times its size"
            raise UserError(f"{self._path}: {size}; text is never packed so well. If it is text, unpack it first.")
        return count


def not_utf8(path: str | Path, line: int, byte: int) -> UserError:
    """Return the error for a byte that is not valid UTF-8."""
    cure = "convert it, for example with: iconv -f latin1 -t utf-8"
    return UserError(f"{path}, line {line}: not UTF-8 (byte {byte:#04x}); {cure}")


def _decoded(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file with their line ends; raise a UserError if the file is empty, binary or not UTF-8."""
    blank, offset = True, 0  # are all lines so far blank? At which byte does the line start?
    with opened(path) as file:
        for number, data in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), 1):
            if len(data) > LONGEST_LINE:
                raise UserError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes; split the line.")
            if (zero := data.find(b"\0")) >= 0:
                found = f"byte {offset + zero} is zero, so this is a binary file or UTF-16"
                raise UserError(f"{path}: {found}; save it as UTF-8 text.")
            text = data.removeprefix(codecs.BOM_UTF8) if number == 1 else data
            blank = blank and not text.strip()
            offset += len(data)
            try:
                line = text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise not_utf8(path, number, text[error.start]) from error
            yield line
    if blank:
        raise UserError(f"{path}: the file is empty; give one with some text in it.")


# -- parallel files too large for memory: pairs are read from disk when they are indexed ------------------------------


class LinesOnDisk:
    """The lines of a plain text file by number; only the start and end of each line are in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise UserError(f"{path}: the file is empty; give one with a line of text per example.")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pieces = ((at, np.frombuffer(self._bytes[at : at + PIECE], np.uint8)) for at in range(0, size, PIECE))
        ends = [at + np.flatnonzero(piece == NEWLINE) for at, piece in pieces]
        last = [np.array([size])] if self._bytes[-1] != NEWLINE else []
        self._ends = np.concatenate([*ends, *last])
        self._starts = np.concatenate([[0], self._ends[:-1] + 1])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        data = self._bytes[self._starts[number] : self._ends[number]]
        try:
            return data.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise not_utf8(self.path, number + 1, data[error.start]) from error

    @property
    def blank(self) -> NDArray[np.bool_]:
        """Whether each line is blank: empty, or nothing but whitespace."""
        found = self._ends == self._starts
        content = np.frombuffer(self._bytes, np.uint8)
        maybe = ~found & IN_SPACES[content[self._starts]] & IN_SPACES[content[self._ends - 1]]
        maybe[0] = True  # it may be a byte order mark alone
        found[maybe] = [not self[number] for number in np.flatnonzero(maybe).tolist()]
        return found


class ParallelOnDisk(LazySequence[Pair]):
    """The pairs of two plain parallel files; pairs with an empty side are left out."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = LinesOnDisk(source), LinesOnDisk(target)
        if len(self._source) != len(self._target):
            counts = f"{source} has {len(self._source)} lines, {target} has {len(self._target)}"
            raise UserError(f"{counts}; parallel files must correspond line for line.")
        self._kept = np.flatnonzero(~(self._source.blank | self._target.blank))

    def __len__(self) -> int:
        return len(self._kept)

    def item(self, number: int) -> Pair:
        line = int(self._kept[number])
        return Pair(self._source[line], self._target[line])


def open_parallel(source: Path, target: Path) -> Sequence[Pair]:
    """The pairs of two parallel files: left on disk if both are plain, read into memory if one is packed."""
    if {source.suffix, target.suffix} & {*PACKED}:
        return [example for example in read_parallel(source, target) if example.source and example.target]
    return ParallelOnDisk(source, target)


class JoinedPairs(LazySequence[Pair]):
    """The pairs of several sequences, one after the other."""

    def __init__(self, parts: Sequence[Sequence[Pair]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def item(self, number: int) -> Pair:
        part = bisect_right(self._ends, number)
        return self._parts[part][number - self._ends[part]]  # counted from the end of the part


# -- folders ----------------------------------------------------------------------------------------------------------


def data_folder() -> Path | None:
    """Return the folder of public corpora: the value of REGARD_DATA, or None if it is not set."""
    return _folder("REGARD_DATA")


def cache_folder() -> Path:
    """Return the folder for downloads and computed files: the value of REGARD_CACHE, else ~/.cache/regard.

    Nothing is written to REGARD_DATA, which several users may share.
    """
    return _folder("REGARD_CACHE") or Path("~/.cache/regard").expanduser()


def find_data(name: str, cure: str = "") -> Path:
    """Return the path of a file in the data folder or the download folder, compressed with gzip or not."""
    folders = [folder for folder in (data_folder(), cache_folder()) if folder is not None]
    plain = name.removesuffix(".gz")
    for path in (folder / each for folder in folders for each in (name, plain, f"{plain}.gz")):
        if path.is_file():
            return path
    if data_folder() is None:
        raise UserError(f"{name}: not found, as REGARD_DATA is not set; set it to the folder that holds {name}{cure}")
    now = f"set REGARD_DATA (now {folders[0]}) to the folder that holds {name}{cure}"
    raise UserError(f"{folders[0] / name}: not found; {now}")


def _folder(variable: str) -> Path | None:
    """Return the folder in an environment variable, or None if the variable is not set."""
    folder = os.environ.get(variable)
    return Path(os.path.expanduser(folder)) if folder else None


# -- the cache --------------------------------------------------------------------------------------------------------

CACHE_CURE = "choose another folder with REGARD_CACHE=FOLDER"


def cached(kind: str, name: str) -> Path:
    """The path of a file in a folder of the cache; the folder is created if it does not exist."""
    folder = cache_folder() / kind
    with as_user_error(folder, CACHE_CURE):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def require_space(path: Path, needed: int) -> None:
    """Raise an error if the disk has not enough space for a file."""
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        cure = "free some space, or choose a folder on another disk with REGARD_CACHE=FOLDER"
        raise UserError(f"{path}: needs about {needed:,} bytes, but {free:,} are free there; {cure}.")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock `path` against other processes; wait for the process that has the lock."""
    with as_user_error(path, CACHE_CURE):
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666)
    try:
        lock_file(handle)
        yield
    finally:
        os.close(handle)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file of the cache for reading; a symbolic link or a device is refused."""
    handle = os.open(path, os.O_RDONLY | NO_FOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a plain file")
    return open(handle, "rb")
