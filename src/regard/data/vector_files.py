"""Files of word vectors: word2vec's text and binary formats and GloVe's text, compressed or not.

- word2vec text: a first line "count width", then a line for each word: the word and its numbers, with spaces or tabs
  between;
- word2vec binary: the same first line; then for each word its UTF-8 bytes, a space, and its numbers as little-endian
  float32; some programs write a line end after each;
- GloVe: text without a first line.

The content decides which format a file has. Of a word that occurs twice the first vector counts. A word of the text
formats that contains a space is skipped, since no tokenizer has such words.
"""

from __future__ import annotations

import codecs
import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import opened
from regard.errors import UserError
from regard.file_io import as_user_error, atomic_write

WIDEST = 100_000  # numbers of a vector
LONGEST_WORD = 2**11  # bytes
LONGEST_LINE = 32 * WIDEST  # bytes of a line of text
GROWTH = 2**14  # vectors that are converted to an array at once
PEEK = 2**12  # bytes after the first line that decide between text and binary
BOM = codecs.BOM_UTF8
CONTROL = bytes({*range(32)} - {*b"\t\n\r\f\v"})  # bytes that no text has

LINE_CURE = "correct the line, or remove it"

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """A word of a file, and its numbers as the file has them."""

    place: str  # the file and line, or the file and number of the word, for messages
    word: str
    numbers: str | bytes

    @property
    def width(self) -> int:
        """How many numbers the word has."""
        return len(self.numbers) // 4 if isinstance(self.numbers, bytes) else self.numbers.count(" ") + 1

    def vector(self) -> Vectors:
        """The numbers of the word; a number that is not finite is refused."""
        if isinstance(self.numbers, bytes):
            found = np.frombuffer(self.numbers, "<f4").astype(np.float32)
        else:
            try:
                with np.errstate(over="ignore"):
                    found = np.array([float(field) for field in self.numbers.split(" ")], np.float32)
            except ValueError as error:
                raise UserError(f"{self.place}: expected numbers after the word ({error}); {LINE_CURE}.") from None
        if not np.isfinite(found).all():
            raise UserError(f"{self.place}: a number is not finite, or too large for float32; remove the word.")
        return found


def read_vectors(path: str | Path, warn: Callable[[str], None] = lambda line: None) -> tuple[list[str], Vectors]:
    """All words of a file, each once, and their vectors (N, width). `warn` gets a message if words are skipped."""
    words: dict[str, None] = {}
    parts, some = list[Vectors](), list[Vectors]()
    for row in vector_rows(path, warn):
        if row.word not in words:
            words[row.word] = None
            some.append(row.vector())
        if len(some) == GROWTH:
            parts, some = [*parts, np.stack(some)], []
    return list(words), np.concatenate([*parts, *([np.stack(some)] if some else [])])


def vector_rows(path: str | Path, warn: Callable[[str], None] = lambda line: None) -> Iterator[Row]:
    """The words of a file in order, each with as many numbers as the first; the file is never in memory as a whole.

    Raises a UserError if the count or the width is not that of the first line, or the file ends too early.
    """
    path = Path(path)
    found, given, count = 0, 0, None
    with opened(path) as file:
        lines = enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1)
        start, first = next(((number, line) for number, line in lines if line.strip()), (1, b""))
        fields = first.removeprefix(BOM).split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            count, width = (int(field[:20]) for field in fields)
            if not 1 <= width <= WIDEST:
                raise UserError(f"{path}: its first line gives {width} numbers a word; 1 to {WIDEST} are possible.")
            binary = _is_binary(file.peek(PEEK)[:PEEK], width)
            rows = _binary_rows(file, path, count, width) if binary else _text_rows(lines, path, width)
        else:
            rows = _text_rows(chain([(start, first)], lines) if fields else iter([]), path)
        for row in rows:
            found += 1
            if row.word:
                given += 1
                yield row
    if not found:
        raise UserError(f"{path}: holds no vectors; give a file with a word and its numbers on each line")
    if not given:
        raise UserError(
            f"{path}: each of its {found} words has a space in it or is empty; write new_york for new york."
        )
    if count is not None and found != count:
        cure = "fetch the file again, or correct its first line"
        raise UserError(f"{path}: its first line says {count} words, but the file has {found}; {cure}.")
    if given < found:
        skipped = f"skipped {found - given:,} of its {found:,} words, with a space in them or empty"
        warn(f"{path}: {skipped}; write new_york for new york.")


def _is_binary(ahead: bytes, width: int) -> bool:
    """Whether the bytes after the first line are binary: after a word come no numbers, but bytes that no text has."""
    _, _, rest = ahead.partition(b" ")
    numbers = rest.partition(b"\n")[0].decode(errors="replace").split()
    if len(numbers) == width and all(map(_is_number, numbers)):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(rest)  # its last character may be incomplete
    except UnicodeDecodeError:
        return True
    return any(byte in CONTROL for byte in rest)


def _text_rows(lines: Iterator[tuple[int, bytes]], path: Path, width: int | None = None) -> Iterator[Row]:
    """The words of lines of text with their numbers; a word with a space in it is empty.

    Only a line feed ends a line: some public files have words that are other line separators of Unicode.
    """
    for number, data in lines:
        try:
            line = data.removeprefix(BOM if number == 1 else b"").decode().strip(" \t\r\n").replace("\t", " ")
        except UnicodeDecodeError as error:
            cure = "convert the file, for example with: iconv -f latin1 -t utf-8"
            raise UserError(f"{path}, line {number}: not UTF-8 text ({error.reason}); {cure}") from error
        if not line:
            continue
        word, _, numbers = line.partition(" ")
        spaces = line.count(" ")
        width = spaces if width is None else width
        place = f"{path}, line {number}"
        if width < 1 or spaces < width or (spaces > width and all(map(_is_number, numbers.split(" ")))):
            raise UserError(f"{place}: expected a word and {max(width, 1)} numbers, found {spaces}; {LINE_CURE}.")
        yield Row(place, word if spaces == width else "", numbers)


def _binary_rows(file: Any, path: Path, count: int, width: int) -> Iterator[Row]:
    """The words of a binary file after its first line."""
    for number in range(1, count + 1):
        place, word = f"{path}, word {number}", bytearray()
        while (byte := file.read(1)) not in (b" ", b""):
            if byte != b"\n" or word:  # a line end after the numbers of the word before
                word += byte
            if len(word) > LONGEST_WORD:
                raise UserError(f"{place}: longer than {LONGEST_WORD} bytes, so this is no file of word vectors.")
        numbers = file.read(4 * width)
        if len(numbers) < 4 * width:
            cure = "fetch the file again"
            raise UserError(f"{path}: its first line says {count} words, but it ends in word {number}; {cure}.")
        try:
            yield Row(place, word.decode(), numbers)
        except UnicodeDecodeError as error:
            raise UserError(f"{place}: not UTF-8 text ({error.reason}); write the file again in UTF-8.") from error
    if file.read(2).strip():
        raise UserError(f"{path}: has more than the {count} words of its first line; correct that line.")


def _is_number(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def write_vectors(path: Path, words: Sequence[str], vectors: Vectors, form: str) -> None:
    """Write words and their vectors (N, width): word2vec's format (binary if the name ends in .bin), or GloVe's.

    A name with .gz at its end gives a compressed file. The numbers are read back exactly.
    """
    plain = path.name.removesuffix(".gz")
    if form == "glove" and plain.endswith(".bin"):
        raise UserError(f"{path}: GloVe's format is text; give a name such as vectors.txt, or --to word2vec.")
    for word in words:
        if not word or any(space in word for space in " \t\n\r"):
            raise UserError(f"{path}: the word {word!r:.40} has a space, which no format can hold; train without it.")
    with as_user_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                _write_rows(packed, words, vectors, form, plain.endswith(".bin"))
        else:
            _write_rows(file, words, vectors, form, plain.endswith(".bin"))


def _write_rows(
    file: IO[bytes] | gzip.GzipFile, words: Sequence[str], vectors: Vectors, form: str, binary: bool
) -> None:
    if form == "word2vec":
        file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
    for word, vector in zip(words, vectors):
        if binary:
            file.write(word.encode() + b" " + vector.astype("<f4").tobytes() + b"\n")
        else:
            file.write((" ".join([word, *(f"{value:.9g}" for value in vector.tolist())]) + "\n").encode())
