"""Text files of any size: read in pieces, checked, hashed, unpacked into the cache; never whole in memory."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, overload

from regard.data.example import Text
from regard.data.files import cache_folder, not_utf8, opened
from regard.errors import UserError

Report = Callable[[str, int, int], object]  # (what is done, bytes done, bytes in all): called while a file is worked on

PIECE = 2**22  # bytes that are read at once
SAMPLE_PIECE = 2**18  # bytes of each piece of a sample
STRETCH = 500  # characters after which a stretch ends at the next line's end
LONGEST = 2000  # characters of a stretch where no line ends
BOM = codecs.BOM_UTF8
PACKED = (".gz", ".xz")
SETTLED = 2e9  # nanoseconds: the hash of a file that changed later than this before it was read is not kept


class TextFile:
    """A UTF-8 text, or a byte range of one, that is read in pieces.

    A packed file (.gz, .xz) is unpacked into the cache once. A byte order mark at the start is not part of the text.
    """

    def __init__(self, path: str | Path, start: int = 0, stop: int | None = None, report: Report | None = None) -> None:
        self.given = Path(path).expanduser()  # the name for messages
        self.path = _unpacked(self.given, report) if self.given.suffix in PACKED else self.given
        with opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            first = len(BOM) if file.read(len(BOM)) == BOM else 0
        self.start = max(start, first)
        self.stop = size if stop is None else min(stop, size)

    def __len__(self) -> int:
        """The length in bytes."""
        return max(0, self.stop - self.start)

    def part(self, start: int, stop: int | None = None) -> TextFile:
        """The range of the same file from byte `start` to byte `stop`, both counted from the start of the file."""
        part = TextFile(self.path, max(start, self.start), self.stop if stop is None else min(stop, self.stop))
        part.given = self.given
        if "sha256" in self.__dict__:
            part.__dict__["sha256"] = self.sha256
        return part

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the whole file, unpacked; see `check`."""
        return self.check()

    def check(self, report: Report | None = None) -> str:
        """Refuse a file that is empty or not UTF-8 text; return its SHA-256.

        The cache keeps the result for this path, size and time of the last change, so that the file is read once.
        """
        if "sha256" in self.__dict__:
            return self.sha256
        note = _note(self.path)
        before = self.path.stat()
        found = _noted(note, before)
        if found is None:
            began = time.time_ns()
            found = {"sha256": self._scan(report)}
            if _signature(self.path.stat()) == _signature(before) and began - before.st_mtime_ns > SETTLED:
                _write_note(note, before, found)
        self.__dict__["sha256"] = found["sha256"]
        return str(found["sha256"])

    def pieces(self, size: int = PIECE) -> Iterator[str]:
        """The text in order, in pieces of about `size` bytes that end at a line end, else at a space.

        Where there is neither, a piece ends between two characters.
        """
        rest = b""
        with opened(self.path) as file:
            file.seek(self.start)
            at = self.start
            while at < self.stop:
                data = file.read(min(size, self.stop - at))
                if not data:
                    raise UserError(f"{self.given}: the file became shorter while it was read; start again.")
                at += len(data)
                data = rest + data
                end = len(data) if at >= self.stop else _end(data)
                if end:
                    yield self._decoded(data[:end])
                rest = data[end:]

    def read(self) -> str:
        """The whole text, for a file that is known to be small."""
        return "".join(self.pieces())

    def sample(self, size: int) -> Iterator[str]:
        """About `size` bytes of the text: pieces of whole lines, spread evenly over it; all of a smaller text."""
        if len(self) <= size:
            yield from self.pieces()
            return
        count = max(1, size // SAMPLE_PIECE)
        for number in range(count):
            start = self.line_start(self.start + len(self) * number // count)
            stop = self.line_start(min(start + SAMPLE_PIECE, self.stop))
            yield from self.part(start, stop).pieces()

    def stretches(self) -> Iterator[str]:
        """The text in order in stretches of some hundred characters, read as they are asked for."""
        for piece in self.pieces(SAMPLE_PIECE):
            yield from stretches(piece)

    def line_start(self, byte: int, within: int = SAMPLE_PIECE) -> int:
        """The first byte of the first line that starts at or after `byte`.

        Where no line ends in the next `within` bytes: the first byte of the next character.
        """
        if byte <= self.start or byte >= self.stop:
            return min(max(byte, self.start), self.stop)
        with opened(self.path) as file:
            file.seek(byte - 1)  # a line starts at `byte` where the byte before is a line end
            data = file.read(min(within, self.stop - byte + 1))
        end = data.find(b"\n")
        return byte + end if end >= 0 else byte + _continued(data[1:])

    def _decoded(self, data: bytes) -> str:
        with suppress(UnicodeDecodeError):
            return data.decode()
        self._scan(None)  # raises, with the number of the line
        raise UserError(f"{self.given}, bytes {self.start} to {self.stop}: the range cuts a character in two.")

    def _scan(self, report: Report | None) -> str:
        """Read the whole file, and refuse it if it is not UTF-8 text; return its SHA-256."""
        found, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
        at, line, blank = 0, 1, True
        with opened(self.path) as file:
            total = os.fstat(file.fileno()).st_size
            while data := file.read(PIECE):
                if (zero := data.find(b"\0")) >= 0:
                    kind = "so this is a binary file or UTF-16; save it as UTF-8 text"
                    raise UserError(f"{self.given}: byte {at + zero} is zero, {kind}.")
                self._decode(decoder, data, line)
                found.update(data)
                blank = blank and not data.strip()
                at, line = at + len(data), line + data.count(b"\n")
                if report:
                    report("checking", at, total)
            self._decode(decoder, b"", line, final=True)
        if blank:
            raise UserError(f"{self.given}: the file is empty; give one with some text in it.")
        return found.hexdigest()

    def _decode(self, decoder: codecs.IncrementalDecoder, data: bytes, line: int, final: bool = False) -> None:
        try:
            decoder.decode(data, final)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)  # what the decoder held back has no line end
            raise not_utf8(self.given, line, error.object[error.start]) from error


class TextExamples(Sequence[Text]):
    """A text file as a sequence of examples of whole lines, read when they are asked for; joined they are the text."""

    def __init__(self, text: TextFile) -> None:
        self.text = text

    def __len__(self) -> int:
        return -(-len(self.text) // LONGEST)

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> list[Text]: ...
    def __getitem__(self, index: int | slice) -> Text | list[Text]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        at = index % len(self)
        return Text(self.text.part(self._bound(at), self._bound(at + 1)).read())

    def _bound(self, number: int) -> int:
        """The first byte of an example: of the first line that starts in its share of the bytes, if one does."""
        return self.text.line_start(self.text.start + number * LONGEST, within=LONGEST)


def stretches(text: str) -> Iterator[str]:
    """A text in parts that can be shown: paragraphs, or as many lines as make up some hundred characters."""
    held = ""
    for line in text.splitlines(keepends=True):
        while len(held) + len(line) > LONGEST:
            room = LONGEST - len(held)
            yield held + line[:room]
            held, line = "", line[room:]
        held += line
        if held.strip() and (not line.strip() or len(held) >= STRETCH):
            yield held
            held = ""
    if held:
        yield held


def _end(data: bytes) -> int:
    """Where a piece ends: after its last line end, else after its last space, else after its last whole character."""
    if (end := data.rfind(b"\n") + 1) or (end := max(data.rfind(space) for space in (b" ", b"\t", b"\r")) + 1):
        return end
    last = next((back for back, byte in enumerate(reversed(data[-4:]), 1) if byte & 0xC0 != 0x80), 0)
    return len(data) - last


def _continued(data: bytes) -> int:
    """How many bytes at the start belong to the character before."""
    return next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)


# -- the cache --------------------------------------------------------------------------------------------------------


def cached(kind: str, name: str) -> Path:
    """A path in a folder of the cache, which is made where it does not exist."""
    folder = cache_folder() / kind
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / name


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the name `path` in one move if all goes well, and is removed if not."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    with _writing(path):
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        with _writing(path), open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(aside, path)
    finally:
        with suppress(OSError):
            aside.unlink()


def require_space(path: Path, needed: int) -> None:
    """Refuse to begin a file that the disk has no room for."""
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        cure = "free some space, or choose a folder on another disk with REGARD_CACHE=FOLDER"
        raise UserError(f"{path}: needs about {needed:,} bytes, but {free:,} are free there; {cure}.")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Inside, no other process of this machine makes the same file; where files cannot be locked, it may."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with _writing(path):
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_regular(path: Path) -> IO[bytes]:
    """Open a file of the cache for reading; a link or a device in its place is refused."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a plain file")
    return open(handle, "rb")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A place that cannot be written to is the user's to change."""
    try:
        yield
    except OSError as error:
        cure = "choose another folder with REGARD_CACHE=FOLDER"
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); {cure}.") from error


def _unpacked(path: Path, report: Report | None) -> Path:
    """The text of a packed file, in the cache; it is unpacked there once."""
    note = _note(path)
    with opened(path) as file:
        before = os.fstat(file.fileno())
    if (found := _noted(note, before)) and (plain := _plain(found)):
        return plain
    began = time.time_ns()
    aside = cached("texts", f"{note.stem}.unpacked")
    digest, at = hashlib.sha256(), 0
    with locked(aside):
        if (found := _noted(note, before)) and (plain := _plain(found)):  # another process has unpacked it meanwhile
            return plain
        require_space(aside, before.st_size)  # at least; the size of the text is not known before
        with opened(path) as file, written_aside(aside) as out:
            while data := file.read(PIECE):
                out.write(data)
                digest.update(data)
                at += len(data)
                if report:
                    report("unpacking", os.lseek(file.fileno(), 0, os.SEEK_CUR), before.st_size)
        plain = aside.with_name(f"{digest.hexdigest()}.txt")
        os.replace(aside, plain)
        os.utime(plain, ns=(before.st_atime_ns, before.st_mtime_ns))  # its content is as old as the packed file's
        if began - before.st_mtime_ns > SETTLED:
            _write_note(note, before, {"text": plain.name, "bytes": at})
    return plain


def _plain(found: dict[str, Any]) -> Path | None:
    """The unpacked text that a note names, if it is still there in full."""
    path = cached("texts", str(found.get("text", "")))
    whole = path.is_file() and not path.is_symlink() and path.stat().st_size == found.get("bytes")
    return path if whole else None


def _note(path: Path) -> Path:
    """Where the cache keeps what is known about the file of this path."""
    whole = os.path.abspath(path)
    return cached("texts", hashlib.sha256(os.fsencode(whole)).hexdigest()[:32] + ".json")


def _signature(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _noted(note: Path, status: os.stat_result) -> dict[str, Any] | None:
    """What the cache has about a file, if the file is unchanged since."""
    with suppress(OSError, ValueError), open_regular(note) as file:
        found = json.load(file)
        if isinstance(found, dict) and found.get("signature") == _signature(status):
            return found
    return None


def _write_note(note: Path, status: os.stat_result, found: dict[str, Any]) -> None:
    with written_aside(note) as file:
        file.write(json.dumps({"signature": _signature(status), **found}).encode())
