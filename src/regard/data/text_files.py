"""Text files of any size: read in pieces, checked, hashed and unpacked into the cache, never whole in memory."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from regard.data.example import LazySequence, Text
from regard.data.files import CACHE_CURE, PACKED, cached, locked, not_utf8, open_regular, opened, require_space
from regard.errors import UserError
from regard.file_io import atomic_write

# Called for progress on a large file, or on many examples: (activity, bytes done, bytes in total).
Report = Callable[[str, int, int], object]

PIECE = 2**22  # bytes that are read at once
SAMPLE_PIECE = 2**18  # bytes of each piece of a sample
PASSAGE = 500  # characters after which a passage ends at the next line end
LONGEST = 2000  # the most characters of a passage, where no line ends
BOM = codecs.BOM_UTF8
MIN_AGE = 2e9  # nanoseconds: the hash of a file that changed less than this before it was read is not cached


class TextFile:
    """A UTF-8 text, or a byte range of one, that is read in pieces.

    A packed file (.gz, .xz) is unpacked into the cache once. A byte order mark at the start is not part of the text.
    """

    def __init__(self, path: str | Path, report: Report | None = None) -> None:
        self.given = Path(os.path.expanduser(path))  # the name for messages
        self.path = _unpack(self.given, report) if self.given.suffix in PACKED else self.given
        with opened(self.path) as file:
            self.stop = os.fstat(file.fileno()).st_size
            self.start = len(BOM) if file.read(len(BOM)) == BOM else 0
        self._sha256: str | None = None

    def __len__(self) -> int:
        """The length in bytes."""
        return max(0, self.stop - self.start)

    def part(self, start: int, stop: int | None = None) -> TextFile:
        """The range of the same file from byte `start` to byte `stop`, both counted from the start of the file."""
        part = copy(self)
        part.start, part.stop = max(start, self.start), self.stop if stop is None else min(stop, self.stop)
        return part

    @property
    def sha256(self) -> str:
        """The SHA-256 of the whole file, unpacked; see `check`."""
        return self.check()

    def check(self, report: Report | None = None) -> str:
        """Refuse a file that is empty or not UTF-8 text; return its SHA-256.

        The cache keeps the result for this path, size and time of the last change, so that the file is read once.
        """
        if self._sha256 is None:
            entry, before = _cache_entry(self.path), self.path.stat()
            found = _read_entry(entry, before)
            if found is None:
                began = time.time_ns()
                found = {"sha256": self._scan(report)}
                if _signature(self.path.stat()) == _signature(before) and began - before.st_mtime_ns > MIN_AGE:
                    _write_entry(entry, before, found)
            self._sha256 = str(found["sha256"])
        return self._sha256

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
                end = len(data) if at >= self.stop else _piece_end(data)
                if end:
                    yield self._decoded(data[:end])
                rest = data[end:]

    def read(self) -> str:
        """The whole text; only for a small file."""
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

    def line_start(self, byte: int, within: int = SAMPLE_PIECE) -> int:
        """The first byte of the first line that starts at or after `byte`.

        Where no line ends in the next `within` bytes: the first byte of the next character.
        """
        if byte <= self.start or byte >= self.stop:
            return min(max(byte, self.start), self.stop)
        with opened(self.path) as file:
            file.seek(byte - 1)  # a line starts at `byte` where the byte before is a line end
            data = file.read(min(within, self.stop - byte + 1))
        if (end := data.find(b"\n")) >= 0:
            return byte + end
        # The bytes 10xxxxxx belong to the character before.
        return byte + next((at for at, one in enumerate(data[1:5]) if one & 0xC0 != 0x80), 0)

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
            data = None
            while data != b"":
                data = file.read(PIECE)
                if (zero := data.find(b"\0")) >= 0:
                    found_zero = f"byte {at + zero} is zero, so this is a binary file or UTF-16"
                    raise UserError(f"{self.given}: {found_zero}; save it as UTF-8 text.")
                try:
                    decoder.decode(data, final=not data)
                except UnicodeDecodeError as error:
                    line += error.object.count(b"\n", 0, error.start)  # the bytes that the decoder buffered have none
                    raise not_utf8(self.given, line, error.object[error.start]) from error
                found.update(data)
                blank = blank and not data.strip()
                at, line = at + len(data), line + data.count(b"\n")
                if report:
                    report("checking", at, total)
        if blank:
            raise UserError(f"{self.given}: the file is empty; give one with some text in it.")
        return found.hexdigest()


class TextExamples(LazySequence[Text]):
    """A text file as a sequence of examples of whole lines, read lazily; joined, they are the text."""

    def __init__(self, text: TextFile) -> None:
        self.text = text

    def __len__(self) -> int:
        return -(-len(self.text) // LONGEST)

    def item(self, number: int) -> Text:
        return Text(self.text.part(self._bound(number), self._bound(number + 1)).read())

    def _bound(self, number: int) -> int:
        """The first byte of an example: the first line start at or after its share of the bytes."""
        return self.text.line_start(self.text.start + number * LONGEST, within=LONGEST)


def passages(text: str) -> Iterator[str]:
    """Split a text into passages: paragraphs, or some lines of together some hundred characters."""
    held = ""
    for line in text.splitlines(keepends=True):
        start = 0  # of what is left of the line
        while len(held) + len(line) - start > LONGEST:
            room = LONGEST - len(held)
            cut = line.rfind(" ", start, start + room) + 1 or start + (0 if held else room)  # no word is cut
            yield held + line[start:cut]
            held, start = "", cut
        line = line[start:]
        held += line
        if held.strip() and (not line.strip() or len(held) >= PASSAGE):
            yield held
            held = ""
    if held:
        yield held


def _piece_end(data: bytes) -> int:
    """Where a piece ends: after its last line end, else after its last space, else after its last whole character."""
    if (end := data.rfind(b"\n") + 1) or (end := max(data.rfind(space) for space in (b" ", b"\t", b"\r")) + 1):
        return end
    last = next((back for back, byte in enumerate(reversed(data[-4:]), 1) if byte & 0xC0 != 0x80), 0)
    return len(data) - last


def contents_sha256(path: str | Path) -> str:
    """The SHA-256 of what is in a file, unpacked. Of a large text that was read before, the cache has it."""
    path, found = Path(os.path.expanduser(path)), hashlib.sha256()
    with opened(path) as file:
        if (status := os.fstat(file.fileno())).st_size > PIECE and (entry := _read_entry(_cache_entry(path), status)):
            return str(entry.get("sha256") or Path(str(entry["text"])).stem)
        while data := file.read(PIECE):
            found.update(data)
    return found.hexdigest()


# -- what is known of a file, in the cache ----------------------------------------------------------------------------


def _unpack(path: Path, report: Report | None) -> Path:
    """The path of the text of a packed file in the cache, where it is unpacked once."""
    entry = _cache_entry(path)
    with opened(path) as file:
        before = os.fstat(file.fileno())
    if (found := _read_entry(entry, before)) and (plain := _unpacked_path(found)):
        return plain
    began = time.time_ns()
    temporary = cached("texts", f"{entry.stem}.unpacked")
    digest, at = hashlib.sha256(), 0
    with locked(temporary):
        if (found := _read_entry(entry, before)) and (plain := _unpacked_path(found)):  # by another process
            return plain
        require_space(temporary, before.st_size)  # a lower bound: the size of the text is not known yet
        with opened(path) as file, atomic_write(temporary, CACHE_CURE) as out:
            while data := file.read(PIECE):
                out.write(data)
                digest.update(data)
                at += len(data)
                if report:
                    report("unpacking", os.lseek(file.fileno(), 0, os.SEEK_CUR), before.st_size)
        plain = temporary.with_name(f"{digest.hexdigest()}.txt")
        os.replace(temporary, plain)
        os.utime(plain, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same age as the packed file
        if began - before.st_mtime_ns > MIN_AGE:
            _write_entry(entry, before, {"text": plain.name, "bytes": at})
    return plain


def _unpacked_path(found: dict[str, Any]) -> Path | None:
    """The unpacked text that a cache entry names, if the file still exists with its full size."""
    path = cached("texts", str(found.get("text", "")))
    whole = path.is_file() and not path.is_symlink() and path.stat().st_size == found.get("bytes")
    return path if whole else None


def _cache_entry(path: Path) -> Path:
    """The path of the cache entry for a file: JSON with its signature, hash and unpacked text."""
    whole = os.path.abspath(path)
    return cached("texts", hashlib.sha256(os.fsencode(whole)).hexdigest()[:32] + ".json")


def _signature(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _read_entry(entry: Path, status: os.stat_result) -> dict[str, Any] | None:
    """The content of a cache entry; None if there is none or if the file has changed since."""
    with suppress(OSError, ValueError), open_regular(entry) as file:
        found = json.load(file)
        if isinstance(found, dict) and found.get("signature") == _signature(status):
            return found
    return None


def _write_entry(entry: Path, status: os.stat_result, found: dict[str, Any]) -> None:
    with atomic_write(entry, CACHE_CURE) as file:
        file.write(json.dumps({"signature": _signature(status), **found}).encode())
