"""Reads lines of input as they arrive, and prints lines of output."""

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from typing import IO, Any

from regard.errors import UserError

AHEAD = 512  # the most lines of a chunk


def chunks(file: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file, or of standard input (-), in chunks, each with the number of its first line."""
    first = 1
    for lines in arriving(_standard_input()) if file == "-" else _whole(file):
        yield first, lines
        first += len(lines)


def _standard_input() -> IO[bytes]:
    """A separate reader of standard input for the thread that waits for lines.

    At exit Python takes the lock of sys.stdin's reader; a thread that still waits with it would be fatal.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed; send it lines, or name a FILE.")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError):  # standard input is replaced by a buffer in memory
        return sys.stdin.buffer


def _whole(file: str) -> Iterator[list[str]]:
    from regard.data.files import read_lines

    lines = [""] * _blank(file) or read_lines(file)
    yield from (lines[at : at + AHEAD] for at in range(0, len(lines), AHEAD))


def _blank(file: str) -> int:
    """The number of lines of a file if all of them are blank, else 0."""
    from regard.data.files import opened

    path, count = Path(file).expanduser(), 0
    if not path.is_file():  # a pipe can be read only once
        return 0
    with opened(path) as lines:
        for line in lines:
            if line.strip():
                return 0
            count += 1
    return count


def arriving(stream: IO[bytes]) -> Iterator[list[str]]:
    """Chunks of lines, read by a thread. A chunk is all lines that have arrived: no line waits for a later one."""
    queue: Queue[str | Exception | None] = Queue(AHEAD)  # None is the end
    threading.Thread(target=_read, args=(stream, queue), daemon=True).start()
    while True:
        items = [queue.get()]
        while len(items) < AHEAD and not queue.empty():  # this is the only reader of the queue
            items.append(queue.get())
        if lines := [item for item in items if isinstance(item, str)]:
            yield lines
        if isinstance(items[-1], Exception):
            raise items[-1]
        if items[-1] is None:
            return


def _read(stream: IO[bytes], queue: Queue[str | Exception | None]) -> None:
    try:
        for number, line in enumerate(stream, 1):
            queue.put(_decoded(line, number))
        queue.put(None)
    except Exception as error:  # raised again by the reader of the queue
        queue.put(error)


def _decoded(line: bytes, number: int) -> str:
    if b"\0" in line:
        raise UserError(f"standard input, line {number}: a zero byte, so this is no UTF-8 text; give lines of text.")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        cure = "convert it, for example with: iconv -f latin1 -t utf-8"
        found = f"not UTF-8 (byte {line[error.start]:#04x})"
        raise UserError(f"standard input, line {number}: {found}; {cure}") from error


def pair(line: str, number: int) -> tuple[str, str]:
    """The source and the target of a line source<TAB>target."""
    source, _, rest = line.partition("\t")
    source, target = source.strip(), rest.partition("\t")[0].strip()
    if not (source and target):
        raise UserError(f"line {number}: expected source<TAB>target, found {line[:40]!r}")
    return source, target


def print_line(line: str | Mapping[str, Any]) -> None:
    """Print one line; an object as JSON, with null for numbers that are not finite."""
    from regard.render.json import to_json

    print(line if isinstance(line, str) else to_json(line))


def program() -> str:
    """The command that starts this program: its name, or its path if it is not on the PATH (a fresh .venv)."""
    name = "regard"
    if shutil.which(name):
        return name
    return os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == name else f"{sys.executable} -m {name}"
