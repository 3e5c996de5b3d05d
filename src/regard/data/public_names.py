"""How the tokens of public vocabularies are written, and what they spell: each kind hides the spaces elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tokenizers as rust
from tokenizers import models

from regard.data.special_tokens import SpecialTokens
from regard.data.spelling import BYTES, SPACE, UNKNOWN, Joined, Spaced, Spelling, bytes_of, printable, shown

WORD_END, GOES_ON = "</w>", "##"


@dataclass(frozen=True, eq=False)
class Names:
    """The tokens of a vocabulary, by id."""

    kind: str  # bytes, wordpiece, suffix or sentencepiece
    names: list[str]  # "" where there is no such id
    added: frozenset[int]  # those that are found in a text as they stand, however it is cut
    special: frozenset[int]  # those of them that say nothing
    led: frozenset[int] = frozenset()  # those of them that take the space before them away

    def spelling(self, special_tokens: SpecialTokens) -> Spelling:
        """What the tokens say: of the special tokens only a mask, by its name, and the unknown as �."""
        if self.kind in ("wordpiece", "suffix"):
            continues = [number for number, name in enumerate(self.names) if _continues(self.kind, name)]
            return Spaced(
                surfaces=[self._plain(number, special_tokens) for number in range(len(self.names))],
                continues=frozenset(continues if self.kind == "wordpiece" else ()) - self.added,
                unfinished=frozenset(continues if self.kind == "suffix" else ()) - self.added,
            )
        surfaces = [self._bytes(number, special_tokens) for number in range(len(self.names))]
        return Joined(surfaces, b"" if self.kind == "bytes" else b" ")

    def captions(self) -> list[str]:
        """One printable string per token: ▁ is a space, ## goes on with a word."""
        return [self._caption(number, name) for number, name in enumerate(self.names)]

    def _plain(self, number: int, special_tokens: SpecialTokens) -> str:
        name = self.names[number]
        if number in (special_tokens.unk, special_tokens.mask):
            return UNKNOWN if number == special_tokens.unk else name
        if number in self.added:
            return "" if number in self.special else name
        return name.removeprefix(GOES_ON) if self.kind == "wordpiece" else name.removesuffix(WORD_END)

    def _bytes(self, number: int, special_tokens: SpecialTokens) -> bytes:
        name = self.names[number]
        if self.kind == "bytes" and number not in self.added and BYTES.keys() >= set(name):
            return bytes_of(name)
        surface = self._plain(number, special_tokens).replace(SPACE, " ")
        return (" " * (number in self.led and surface not in ("", UNKNOWN)) + surface).encode()

    def _caption(self, number: int, name: str) -> str:
        if number in self.added or not name:
            return printable(name) or f"<{number}>"
        if self.kind == "bytes" and BYTES.keys() >= set(name):
            name = shown(bytes_of(name))
        if self.kind == "suffix" and name.endswith(WORD_END):
            name = name.removesuffix(WORD_END) + SPACE
        return printable(name)


def names_of(inner: rust.Tokenizer) -> Names:
    """The tokens of a tokenizer of the `tokenizers` library."""
    added = inner.get_added_tokens_decoder()
    special = frozenset(number for number, token in added.items() if token.special)
    kind = _kind(inner)
    # SentencePiece's words are cut apart before the spaces are written, so an added token always loses its own.
    led = frozenset(number for number, token in added.items() if token.lstrip or kind == "sentencepiece")
    return Names(kind, by_id(inner.get_vocab(with_added_tokens=True)), frozenset(added), special, led)


def by_id(vocab: Mapping[str, int]) -> list[str]:
    """The names of a vocabulary in the order of their ids, "" where there is none."""
    names = [""] * (max(vocab.values(), default=-1) + 1)
    for name, number in vocab.items():
        names[number] = name
    return names


def _kind(inner: rust.Tokenizer) -> str:
    if isinstance(inner.model, models.WordPiece):
        return "wordpiece"
    if inner.pre_tokenizer is not None and b"ByteLevel" in inner.pre_tokenizer.__getstate__():
        return "bytes"
    suffixed = isinstance(inner.model, models.BPE) and inner.model.end_of_word_suffix == WORD_END
    return "suffix" if suffixed else "sentencepiece"


def _continues(kind: str, name: str) -> bool:
    """Whether a word goes on: before a piece with ##, or after one without </w>."""
    return name.startswith(GOES_ON) if kind == "wordpiece" else not name.endswith(WORD_END)
