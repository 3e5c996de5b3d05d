"""What tokens look like: the text that a sequence of them spells, and one visible string for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

SPACE = "▁"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # how what was never seen comes back

# Punctuation that stands close to the word before it, or to the one after.
CLOSING = frozenset(".,;:!?%)]}…’'")
OPENING = frozenset("([{¿¡’'")


class Spelling(Protocol):
    """How tokens are read off as text. Bytes, since a token may be half a character."""

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        """What each token adds to the text, in UTF-8."""
        ...


@dataclass(frozen=True, eq=False)
class Joined:
    """Tokens that bring their own spaces. A token past the last (vocabularies are padded) says nothing."""

    surfaces: Sequence[bytes]
    lead: bytes = b""  # what every text begins with before it is cut, and is dropped again here

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        said = [self.surfaces[token] if token < len(self.surfaces) else b"" for token in tokens]
        first = next((place for place, surface in enumerate(said) if surface), None)
        if first is not None:
            said[first] = said[first].removeprefix(self.lead)
        return said


@dataclass(frozen=True, eq=False)
class Spaced:
    """Tokens without spaces: one stands between words, and none beside punctuation that clings to a word.

    Where the text had its spaces is not known: this is how English is written.
    """

    surfaces: Sequence[str]
    continues: frozenset[int] = frozenset()  # tokens that go on with the word before them
    unfinished: frozenset[int] = frozenset()  # tokens whose word goes on after them

    def __call__(self, tokens: Iterable[int]) -> list[bytes]:
        said, last = [], None
        for token in tokens:
            surface = self.surfaces[token] if token < len(self.surfaces) else ""
            if not surface:
                said.append(b"")
                continue
            apart = last is not None and token not in self.continues and last not in self.unfinished
            if apart and last is not None:
                apart = surface[0] not in CLOSING and self.surfaces[last] not in OPENING
            said.append((" " * apart + surface).encode())
            last = token
        return said


def text_of(said: Iterable[bytes]) -> str:
    """The text; bytes that are no character, which a model may well say, become �."""
    return b"".join(said).decode("utf-8", errors="replace")


def words_of(said: Iterable[bytes]) -> list[int]:
    """For each token the index of the whitespace-delimited word it is part of.

    -1 for what is part of none: spaces, special_tokens. A token over several words counts for its first.
    """
    said = list(said)
    owners: list[int] = []  # of each byte
    count, inside = 0, False
    for character in b"".join(said).decode("utf-8", errors="surrogateescape"):  # a stray byte is one character
        count += not inside and not character.isspace()  # a word begins
        inside = not character.isspace()
        owners += [count - 1 if inside else -1] * len(character.encode("utf-8", errors="surrogateescape"))
    ends = list(accumulate(map(len, said)))
    spans = (owners[end - len(surface) : end] for surface, end in zip(said, ends))
    return [next((owner for owner in span if owner >= 0), -1) for span in spans]


def printable(name: str) -> str:
    """A token as one visible string: ␣ for a space, an escape for whatever else cannot be seen."""
    return "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in name)


def _byte_names() -> dict[str, int]:
    """The visible character that stands for each byte in a byte-level vocabulary (Radford et al. 2019).

    Bytes that can be seen in Latin-1 stand for themselves; the others follow from U+0100 on, in their order.
    """
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


BYTES = _byte_names()


def bytes_of(name: str) -> bytes:
    """What a token of a byte-level vocabulary adds to the text."""
    return bytes(map(BYTES.__getitem__, name))


def shown(surface: bytes) -> str:
    """Bytes as a piece of text: ▁ for a space, an escape for part of a character."""
    return surface.decode("utf-8", errors="backslashreplace").replace(" ", SPACE)
