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
from regard.data.tokenizers import SpecialTokens

WORD_END_SUFFIX, CONTINUATION_PREFIX = "</w>", "##"
MOST_UNUSED = 2**16  # ids without a token that a vocabulary may have, beside as many as it has tokens


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
        surfaces = [self._surface(number, special_tokens) for number in range(len(self.names))]
        names = [(number, name) for number, name in enumerate(self.names) if number not in self.added]
        if self.kind == "wordpiece":
            continues = frozenset(number for number, name in names if name.startswith(CONTINUATION_PREFIX))
            return SpacingDetokenizer(surfaces, continues=continues)
        if self.kind == "suffix":
            unfinished = frozenset(number for number, name in names if not name.endswith(WORD_END_SUFFIX))
            return SpacingDetokenizer(surfaces, unfinished=unfinished)
        pieces = [surface.replace(SPACE, " ") for surface in surfaces]
        spaced = [number in self.strips_space and text not in ("", UNKNOWN) for number, text in enumerate(pieces)]
        encoded = [(" " * before + text).encode() for before, text in zip(spaced, pieces)]
        if self.kind == "bytes":
            encoded = [self._bytes(number) or text for number, text in enumerate(encoded)]
        return ConcatDetokenizer(encoded, b"" if self.kind == "bytes" else b" ")

    def display_names(self) -> list[str]:
        """One printable string per token: ▁ is a space, ## continues a word."""
        shown = []
        for number, name in enumerate(self.names):
            if (data := self._bytes(number)) is not None:
                name = display_bytes(data)
            elif self.kind == "suffix" and number not in self.added and name.endswith(WORD_END_SUFFIX):
                name = name.removesuffix(WORD_END_SUFFIX) + SPACE
            shown.append(printable(name) or f"<{number}>")
        return shown

    def _bytes(self, number: int) -> bytes | None:
        """The bytes of a token of a byte-level vocabulary; None for other tokens."""
        name = self.names[number]
        is_bytes = self.kind == "bytes" and name and number not in self.added and BYTE_OF_CHARACTER.keys() >= set(name)
        return bytes_of(name) if is_bytes else None

    def _surface(self, number: int, special_tokens: SpecialTokens) -> str:
        name = self.names[number]
        if number in (special_tokens.unk, special_tokens.mask):
            return UNKNOWN if number == special_tokens.unk else name
        if number in self.added:
            return "" if number in self.special else name
        if self.kind == "wordpiece":
            return name.removeprefix(CONTINUATION_PREFIX)
        return name.removesuffix(WORD_END_SUFFIX)


def read_vocab(inner: rust.Tokenizer) -> PublicVocab:
    """The tokens of a tokenizer of the `tokenizers` library."""
    added = inner.get_added_tokens_decoder()
    special = frozenset(number for number, token in added.items() if token.special)
    if isinstance(inner.model, models.WordPiece):
        kind = "wordpiece"
    elif inner.pre_tokenizer is not None and b"ByteLevel" in inner.pre_tokenizer.__getstate__():
        kind = "bytes"
    elif isinstance(inner.model, models.BPE) and inner.model.end_of_word_suffix == WORD_END_SUFFIX:
        kind = "suffix"
    else:
        kind = "sentencepiece"
    # SentencePiece splits words before it writes the spaces, so an added token always strips its space.
    strips_space = frozenset(number for number, token in added.items() if token.lstrip or kind == "sentencepiece")
    return PublicVocab(
        kind, names_by_id(inner.get_vocab(with_added_tokens=True)), frozenset(added), special, strips_space
    )


def names_by_id(vocab: Mapping[str, int]) -> list[str]:
    """The names of a vocabulary in the order of their ids, "" for unused ids."""
    most = max(vocab.values(), default=-1)
    if min(vocab.values(), default=0) < 0 or most > 2 * len(vocab) + MOST_UNUSED:
        raise ValueError(f"the ids of its {len(vocab):,} tokens reach from {min(vocab.values())} to {most}")
    names = [""] * (most + 1)
    for name, number in vocab.items():
        names[number] = name
    return names
