"""The ids of a text of any size: encoded in pieces, once, into a file of the cache that is mapped into memory.

A text is encoded unit by unit, where a unit is cut so that its ids do not depend on its neighbours: the ids are those
of the whole text encoded at once. Most units of a text are words that came before, whose ids are kept.

- characters: every character is a unit;
- words and byte-level sub-words: a cut before each space or line end that follows anything else. No token of theirs
  reaches from other characters into whitespace;
- sub-words with '▁': a cut at each space that follows anything else. The space itself is left out, since every unit
  is given a '▁' in its place;
- tokenizers of public checkpoints: a cut at a single space between two letters, which is left out where the tokenizer
  puts a space before every text.

A unit of more than `FORCED` characters is cut anywhere, which may change the tokens at that one place. Only text
without spaces has such units: more than a million characters without a space or line end, or, of sub-words with '▁',
without a space.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import cache_folder
from regard.data.flat import Values, id_type
from regard.data.text_files import Report, TextFile, cached, locked, open_regular, require_space, written_aside
from regard.data.tokenizers import Tokenizer

FORMAT = 1  # changes when the same text and tokenizer are written in another way
SMALL = 2**24  # bytes of a text that is encoded in memory, without a file
ENCODED = 2**20  # bytes of text that are encoded at once
KEPT = 1_000_000  # units whose ids are kept: some 200 MB
FORCED = 2**20  # characters of the longest unit
POINTS = 0x110000  # code points of Unicode

# Python's \s has some characters that the tokenizers' has not, but both have these four.
BEFORE_SPACE = re.compile(r"\s*+\S++(?:(?![ \t\r\n])\s++\S*+)*+|\s++")
AT_SPACE = re.compile(r"(?<=[^ ]) (?=[\s\S])")
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
AT_LETTERS = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


def token_file(text: TextFile, tokenizer: Tokenizer, report: Report | None = None) -> Values:
    """The ids of a text: found in the cache, or written there first. The array is mapped from the file, read-only.

    A text of at most `SMALL` bytes is encoded in memory instead.
    """
    if len(text) <= SMALL:
        return encode_text(tokenizer, text.read())
    text.check(report)
    path = token_path(text, tokenizer)
    if (found := _opened(path, text, tokenizer)) is None:
        cached("tokens", path.name)
        with locked(path):
            if (found := _opened(path, text, tokenizer)) is None:  # another process may have written it meanwhile
                _remove_parts(path)
                _write(path, text, tokenizer, report)
                found = _opened(path, text, tokenizer)
    assert found is not None
    return found


def token_key(text: TextFile, tokenizer: Tokenizer) -> str:
    """The name of a text's token file: a hash of the text, its byte range, the tokenizer and the format."""
    parts = (FORMAT, text.sha256, text.start, text.stop, tokenizer_sha256(tokenizer))
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def token_path(text: TextFile, tokenizer: Tokenizer) -> Path:
    """Where the token file of a text is, or would be."""
    return cache_folder() / "tokens" / f"{token_key(text, tokenizer)}.bin"


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """The hash of all that a tokenizer does to a text."""
    return hashlib.sha256(tokenizer.serialize().encode()).hexdigest()


def encode_text(tokenizer: Tokenizer, text: str) -> Values:
    """A whole text as one array of ids."""
    if len(text) <= ENCODED and tokenizer.kind != "char":
        return np.asarray(tokenizer.encode(text), id_type(tokenizer.size))
    pieces = (text[at : at + ENCODED] for at in range(0, len(text), ENCODED))
    return np.concatenate([*encode_pieces(tokenizer, pieces, longest=None), np.empty(0, id_type(tokenizer.size))])


def encode_pieces(tokenizer: Tokenizer, pieces: Iterable[str], longest: int | None = FORCED) -> Iterator[Values]:
    """The ids of a text that is given in pieces, some at a time: the same as of the whole text.

    A unit of more than `longest` characters is cut; None: no unit is.
    """
    if tokenizer.kind == "char":
        return _encode_characters(tokenizer, pieces)
    return _encode_units(tokenizer, pieces, longest)


def bytes_per_token(text: TextFile, tokenizer: Tokenizer, size: int = ENCODED) -> float:
    """About how many bytes of a text make up a token, by a sample of it."""
    sample = list(text.sample(size))
    tokens = sum(len(ids) for ids in encode_pieces(tokenizer, sample))
    return sum(len(piece.encode()) for piece in sample) / max(1, tokens)


def _encode_characters(tokenizer: Tokenizer, pieces: Iterable[str]) -> Iterator[Values]:
    """Every character is looked up in a table, which has the ids of those that were seen so far."""
    table, seen = np.zeros(POINTS, id_type(tokenizer.size)), np.zeros(POINTS, dtype=bool)
    for piece in pieces:
        points = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), np.uint32)
        new = np.unique(points[~seen[points]])
        if len(new):
            table[new] = [ids[0] for ids in tokenizer.encode_batch([chr(point) for point in new.tolist()])]
            seen[new] = True
        yield table[points]


def _encode_units(tokenizer: Tokenizer, pieces: Iterable[str], longest: int | None) -> Iterator[Values]:
    """The ids of each unit are computed when it first comes, and kept while there are not too many."""
    cut, kept, held = _cut(tokenizer), dict[str, bytes](), ""
    kind = id_type(tokenizer.size)

    def encoded(units: Sequence[str]) -> Values:
        new = [unit for unit in set(units) if unit not in kept]
        kept.update((unit, array(kind.char, ids).tobytes()) for unit, ids in zip(new, tokenizer.encode_batch(new)))
        found = np.frombuffer(b"".join(map(kept.__getitem__, units)), dtype=kind)
        if len(kept) > KEPT:  # those that came first are the most frequent ones
            for unit in new:
                del kept[unit]
        return found

    for piece in pieces:
        units = cut(held + piece)
        held = units.pop() if units else ""  # it may go on in the next piece
        if longest is not None and len(held) > longest:
            units, held = [*units, held], ""
        yield encoded(units)
    yield encoded([held] if held else [])


def _cut(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    """How a text is cut into units for a tokenizer."""
    match tokenizer.kind:
        case "word" | "byte-bpe":
            return BEFORE_SPACE.findall
        case "bpe":
            return AT_SPACE.split
    first, second, both = tokenizer.encode_batch(["a", "b", "a b"])
    return (AT_LETTERS if both == first + second else BETWEEN_LETTERS).split


def _write(path: Path, text: TextFile, tokenizer: Tokenizer, report: Report | None) -> None:
    """Write the ids of a text, and a note of what they are beside it."""
    kind = id_type(tokenizer.size)
    require_space(path, int(len(text) / bytes_per_token(text, tokenizer) * kind.itemsize))
    done = tokens = 0

    def read() -> Iterator[str]:
        nonlocal done
        for piece in text.pieces(ENCODED):
            yield piece
            done += len(piece.encode())
            if report:
                report("encoding", done, len(text))

    with written_aside(path) as file:
        for ids in encode_pieces(tokenizer, read()):
            file.write(ids.data)
            tokens += len(ids)
        with written_aside(path.with_suffix(".json")) as note:
            note.write(json.dumps(_about(text, tokenizer, tokens), indent=2).encode())


def _about(text: TextFile, tokenizer: Tokenizer, tokens: int) -> dict[str, Any]:
    """What the note beside a token file has."""
    return {
        "format": FORMAT,
        "tokens": tokens,
        "dtype": id_type(tokenizer.size).name,
        "bytes": len(text),
        "text_sha256": text.sha256,
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }


def _opened(path: Path, text: TextFile, tokenizer: Tokenizer) -> Values | None:
    """The ids of a token file; None where it is not there, or not what its note describes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open_regular(path.with_suffix(".json")) as note:
            about = json.load(note)
        if about == _about(text, tokenizer, about["tokens"]):
            with open_regular(path) as file:
                ids: NDArray[Any] = np.memmap(file, dtype=about["dtype"], mode="r")
            if len(ids) == about["tokens"] and ids.nbytes == path.stat().st_size:
                return np.asarray(ids)
    return None


def _remove_parts(path: Path) -> None:
    """Remove what processes that were killed have left of this file; inside its lock nobody else writes it."""
    for part in chain(*(path.parent.glob(f".{name}.*.part") for name in (path.name, path.with_suffix(".json").name))):
        with suppress(OSError):
            part.unlink()
