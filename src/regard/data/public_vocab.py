"""Vocabularies of public tokenizers: the text and display name of each token. Each kind marks spaces differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tokenizers as rust
from tokenizers import models

from regard.data.detokenize import (
    BYTE_OF_CHARACTER,
    SPACE,
    UNKNOWN,
    ConcatDetokenizer,
    Detokenizer,
    SpacingDetokenizer,
    bytes_of,
    display_bytes,
    printable,
)
from regard.data.special_tokens import SpecialTokens

WORD_END_SUFFIX, CONTINUATION_PREFIX = "</w>", "##"


@dataclass(frozen=True, eq=False)
class PublicVocab:
    """The tokens of a public vocabulary, by id."""

    kind: str  # bytes, wordpiece, suffix or sentencepiece
    names: list[str]  # "" for unused ids
    added: frozenset[int]  # ids of tokens that are found in raw text before it is split
    special: frozenset[int]  # those added tokens that give no text
    strips_space: frozenset[int] = frozenset()  # those added tokens that strip the space before them

    def detokenizer(self, special_tokens: SpecialTokens) -> Detokenizer:
        """The detokenizer. Of the special tokens only mask gives text (its name), and unk gives �."""
        if self.kind in ("wordpiece", "suffix"):
            continues = [number for number, name in enumerate(self.names) if _continues(self.kind, name)]
            return SpacingDetokenizer(
                surfaces=[self._surface(number, special_tokens) for number in range(len(self.names))],
                continues=frozenset(continues if self.kind == "wordpiece" else ()) - self.added,
                unfinished=frozenset(continues if self.kind == "suffix" else ()) - self.added,
            )
        surfaces = [self._surface_bytes(number, special_tokens) for number in range(len(self.names))]
        return ConcatDetokenizer(surfaces, b"" if self.kind == "bytes" else b" ")

    def display_names(self) -> list[str]:
        """One printable string per token: ▁ is a space, ## continues a word."""
        return [self._display_name(number, name) for number, name in enumerate(self.names)]

    def _surface(self, number: int, special_tokens: SpecialTokens) -> str:
        name = self.names[number]
        if number in (special_tokens.unk, special_tokens.mask):
            return UNKNOWN if number == special_tokens.unk else name
        if number in self.added:
            return "" if number in self.special else name
        return (
            name.removeprefix(CONTINUATION_PREFIX) if self.kind == "wordpiece" else name.removesuffix(WORD_END_SUFFIX)
        )

    def _surface_bytes(self, number: int, special_tokens: SpecialTokens) -> bytes:
        name = self.names[number]
        if self.kind == "bytes" and number not in self.added and BYTE_OF_CHARACTER.keys() >= set(name):
            return bytes_of(name)
        surface = self._surface(number, special_tokens).replace(SPACE, " ")
        return (" " * (number in self.strips_space and surface not in ("", UNKNOWN)) + surface).encode()

    def _display_name(self, number: int, name: str) -> str:
        if number in self.added or not name:
            return printable(name) or f"<{number}>"
        if self.kind == "bytes" and BYTE_OF_CHARACTER.keys() >= set(name):
            name = display_bytes(bytes_of(name))
        if self.kind == "suffix" and name.endswith(WORD_END_SUFFIX):
            name = name.removesuffix(WORD_END_SUFFIX) + SPACE
        return printable(name)


def read_vocab(inner: rust.Tokenizer) -> PublicVocab:
    """The tokens of a tokenizer of the `tokenizers` library."""
    added = inner.get_added_tokens_decoder()
    special = frozenset(number for number, token in added.items() if token.special)
    kind = _detect_kind(inner)
    # SentencePiece splits words before it writes the spaces, so an added token always strips its space.
    strips_space = frozenset(number for number, token in added.items() if token.lstrip or kind == "sentencepiece")
    return PublicVocab(
        kind, names_by_id(inner.get_vocab(with_added_tokens=True)), frozenset(added), special, strips_space
    )


def names_by_id(vocab: Mapping[str, int]) -> list[str]:
    """The names of a vocabulary in the order of their ids, "" for unused ids."""
    names = [""] * (max(vocab.values(), default=-1) + 1)
    for name, number in vocab.items():
        names[number] = name
    return names


def _detect_kind(inner: rust.Tokenizer) -> str:
    if isinstance(inner.model, models.WordPiece):
        return "wordpiece"
    if inner.pre_tokenizer is not None and b"ByteLevel" in inner.pre_tokenizer.__getstate__():
        return "bytes"
    suffixed = isinstance(inner.model, models.BPE) and inner.model.end_of_word_suffix == WORD_END_SUFFIX
    return "suffix" if suffixed else "sentencepiece"


def _continues(kind: str, name: str) -> bool:
    """Whether a piece continues the word before it (with ##), or its word continues after it (without </w>)."""
    return name.startswith(CONTINUATION_PREFIX) if kind == "wordpiece" else not name.endswith(WORD_END_SUFFIX)
