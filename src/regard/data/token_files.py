"""Token files: the ids of a text of any size, encoded in pieces, once, into a memory-mapped file of the cache.

A text is split into units whose ids do not depend on the units around them, so that the ids are those of the whole text
encoded at once. Most units are words that occurred before, whose ids are cached.

- characters: every character is a unit;
- words and byte-level sub-words: a unit starts before a space or line end that follows another character. No token of
  these tokenizers has whitespace after other characters;
- sub-words with '▁': a unit starts after a space that follows another character. The space itself is dropped, since the
  tokenizer adds a '▁' before every unit;
- tokenizers of public checkpoints: a unit starts at a single space between two letters; the space is dropped if the
  tokenizer adds one before every text.

A unit of more than `LONGEST_UNIT` characters is split anywhere, which may change the tokens at that place. Only text
without spaces has such units: more than a million characters without a space or line end (for sub-words with '▁',
without a space).
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import CACHE_CURE, cache_folder, cached, locked, open_regular, require_space
from regard.data.flat import Values, id_type
from regard.data.text_files import Report, TextFile
from regard.data.tokenizers import Tokenizer
from regard.file_io import atomic_write, remove_leftovers

FORMAT = 1  # the version of the file format
SMALL = 2**24  # the most bytes of a text that is encoded in memory, without a file
PIECE = 2**20  # bytes of text that are encoded at once
MAX_CACHED = 1_000_000  # units whose ids are cached
CACHE_BYTES = 200_000_000  # about the memory of these units
LONGEST_UNIT = 2**20  # the most characters of a unit
CODE_POINTS = 0x110000  # of Unicode

# \s matches more characters in Python than in the tokenizers, but both match space, tab, \r and \n.
BEFORE_SPACE = re.compile(r"\s*\S+(?:(?![ \t\r\n])\s+\S*)*|\s+")
AT_SPACE = re.compile(r"(?<=[^ ]) (?=[\s\S])")
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
AT_LETTERS = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


def token_file(text: TextFile, tokenizer: Tokenizer, report: Report | None = None) -> Values:
    """The ids of a text, memory-mapped from its token file, read-only. The file is written if it does not exist.

    A text of at most `SMALL` bytes is encoded in memory instead.
    """
    if len(text) <= SMALL:
        return encode_text(tokenizer, text.read())
    text.check(report)
    path = token_path(text, tokenizer)
    if (found := _open_tokens(path, text, tokenizer)) is None:
        cached("tokens", path.name)
        with locked(path):
            if (found := _open_tokens(path, text, tokenizer)) is None:  # another process may have written it meanwhile
                remove_leftovers(path)
                remove_leftovers(path.with_suffix(".json"))
                _write(path, text, tokenizer, report)
                found = _open_tokens(path, text, tokenizer)
    assert found is not None
    return found


def token_key(text: TextFile, tokenizer: Tokenizer) -> str:
    """The key of a token file: a hash of the text, its byte range, the tokenizer and the format."""
    parts = (FORMAT, text.sha256, text.start, text.stop, tokenizer_sha256(tokenizer))
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def token_path(text: TextFile, tokenizer: Tokenizer) -> Path:
    """The path of the token file of a text, which may not exist."""
    return cache_folder() / "tokens" / f"{token_key(text, tokenizer)}.bin"


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """The hash of a tokenizer: of its serialised form."""
    return hashlib.sha256(tokenizer.serialize().encode()).hexdigest()


def encode_text(tokenizer: Tokenizer, text: str) -> Values:
    """A whole text as one array of ids."""
    if len(text) <= PIECE and tokenizer.kind != "char":
        return np.asarray(tokenizer.encode(text), id_type(tokenizer.size))
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return np.concatenate([*encode_pieces(tokenizer, pieces, longest=None), np.empty(0, id_type(tokenizer.size))])


def encode_pieces(tokenizer: Tokenizer, pieces: Iterable[str], longest: int | None = LONGEST_UNIT) -> Iterator[Values]:
    """Yield the ids of a text that is given in pieces; together they are the ids of the whole text.

    A unit of more than `longest` characters is split; None: no limit.
    """
    dtype = id_type(tokenizer.size)
    if tokenizer.kind == "char":
        yield from _encode_characters(tokenizer, pieces, dtype)
        return
    match tokenizer.kind:
        case "word" | "word-eos" | "word-lower" | "byte-bpe":
            split: Callable[[str], list[str]] = BEFORE_SPACE.findall
        case "bpe":
            split = AT_SPACE.split
        case _:
            first, second, both = tokenizer.encode_batch(["a", "b", "a b"])
            split = (AT_LETTERS if both == first + second else BETWEEN_LETTERS).split
    cache, held = dict[str, bytes](), ""

    def encode_units(units: Sequence[str]) -> Values:
        new = [unit for unit in set(units) if unit not in cache]
        cache.update((unit, array(dtype.char, ids).tobytes()) for unit, ids in zip(new, tokenizer.encode_batch(new)))
        ids = np.frombuffer(b"".join(map(cache.__getitem__, units)), dtype=dtype)
        if len(cache) > MAX_CACHED:  # keeps the units that occurred first: these are the most frequent ones
            for unit in new:
                del cache[unit]
        return ids

    for piece in pieces:
        units = split(held + piece)
        held = units.pop() if units else ""  # the last unit may continue in the next piece
        if longest is not None and len(held) > longest:
            units, held = [*units, held], ""
        yield encode_units(units)
    yield encode_units([held] if held else [])


def _encode_characters(tokenizer: Tokenizer, pieces: Iterable[str], dtype: np.dtype[Any]) -> Iterator[Values]:
    """Encode characters with a table of ids by code point, which is filled as new characters occur."""
    table, seen = np.zeros(CODE_POINTS, dtype), np.zeros(CODE_POINTS, dtype=bool)
    for piece in pieces:
        points = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), np.uint32)
        new = np.unique(points[~seen[points]])
        if len(new):
            table[new] = [ids[0] for ids in tokenizer.encode_batch([chr(point) for point in new.tolist()])]
            seen[new] = True
        yield table[points]


def _write(path: Path, text: TextFile, tokenizer: Tokenizer, report: Report | None) -> None:
    """Write the token file of a text, and a JSON file beside it that describes it."""
    sample = list(text.sample(PIECE))
    share = len(text) / sum(len(piece.encode()) for piece in sample)
    require_space(path, int(share * sum(ids.nbytes for ids in encode_pieces(tokenizer, sample))))
    done = tokens = 0

    def pieces_with_report() -> Iterator[str]:
        nonlocal done
        for piece in text.pieces(PIECE):
            yield piece
            done += len(piece.encode())
            if report:
                report("encoding", done, len(text))

    with atomic_write(path, CACHE_CURE) as file:
        for ids in encode_pieces(tokenizer, pieces_with_report()):
            file.write(ids.data)
            tokens += len(ids)
        with atomic_write(path.with_suffix(".json"), CACHE_CURE) as description:
            description.write(json.dumps(_describe(text, tokenizer, tokens), indent=2).encode())


def _describe(text: TextFile, tokenizer: Tokenizer, tokens: int) -> dict[str, Any]:
    """The content of the JSON file beside a token file."""
    return {
        "format": FORMAT,
        "tokens": tokens,
        "dtype": id_type(tokenizer.size).name,
        "bytes": len(text),
        "text_sha256": text.sha256,
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }


def _open_tokens(path: Path, text: TextFile, tokenizer: Tokenizer) -> Values | None:
    """The ids of a token file; None if it does not exist or does not match its description."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open_regular(path.with_suffix(".json")) as file:
            description = json.load(file)
        if description == _describe(text, tokenizer, description["tokens"]):
            with open_regular(path) as file:
                ids: NDArray[Any] = np.memmap(file, dtype=description["dtype"], mode="r")
            if len(ids) == description["tokens"] and ids.nbytes == path.stat().st_size:
                return np.asarray(ids)
    return None
