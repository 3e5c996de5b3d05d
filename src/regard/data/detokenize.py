"""Tokens to text: the bytes that each token of a sequence adds to the text, and display names of single tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

SPACE = "▁"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # the text of the unknown token

# Punctuation without a space before it, and punctuation without a space after it.
CLOSING = frozenset(".,;:!?%)]}…’'")
OPENING = frozenset("([{¿¡’'")


class Detokenizer(Protocol):
    """Turns tokens into text. It returns bytes, because a token may be a part of a character."""

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        """The text that each token adds, in UTF-8."""
        ...


@dataclass(frozen=True, eq=False)
class ConcatDetokenizer:
    """For tokens that contain their spaces: concatenates them. An id past the last token is written as a number."""

    surfaces: Sequence[bytes]
    lead: bytes = b""  # a prefix that encoding adds to every text, removed from the first token

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        pieces = [self.surfaces[token] if token < len(self.surfaces) else number_of(token).encode() for token in tokens]
        first = next((place for place, surface in enumerate(pieces) if surface), None)
        if first is not None:
            pieces[first] = pieces[first].removeprefix(self.lead)
        return pieces


@dataclass(frozen=True, eq=False)
class SpacingDetokenizer:
    """For tokens without spaces: adds a space between words, and none before or after certain punctuation.

    The spaces of the original text are lost; these are the rules of English.
    """

    surfaces: Sequence[str]
    continues: frozenset[int] = frozenset()  # tokens that continue the word before them
    unfinished: frozenset[int] = frozenset()  # tokens whose word continues after them

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        pieces, last, before = [], None, ""
        for token in tokens:
            surface = self.surfaces[token] if token < len(self.surfaces) else number_of(token)
            if not surface:
                pieces.append(b"")
                continue
            spaced = last is not None and token not in self.continues and last not in self.unfinished
            spaced = spaced and surface[0] not in CLOSING and before not in OPENING
            pieces.append((" " * spaced + surface).encode())
            last, before = token, surface
        return pieces


def number_of(token: int) -> str:
    """The text of an id past the last token, <50300>: a model may have more rows than its tokenizer has tokens."""
    return f"<{token}>"


def printable(name: str) -> str:
    """A token as one visible string: ␣ for a space, an escape for other invisible characters."""
    return "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in name)


# Each character of a byte-level vocabulary and the byte that it stands for (Radford et al. 2019). Bytes that are
# visible in Latin-1 are written as that character; the others as U+0100, U+0101, …, in order.
VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
INVISIBLE = [byte for byte in range(0x100) if byte not in VISIBLE]
BYTE_OF_CHARACTER = {chr(byte): byte for byte in VISIBLE} | {chr(0x100 + n): byte for n, byte in enumerate(INVISIBLE)}


def bytes_of(name: str) -> bytes:
    """The bytes of a token of a byte-level vocabulary."""
    return bytes(map(BYTE_OF_CHARACTER.__getitem__, name))


def display_bytes(surface: bytes) -> str:
    """Bytes as a display name: ▁ for a space, an escape for a part of a character."""
    return surface.decode("utf-8", errors="backslashreplace").replace(" ", SPACE)
