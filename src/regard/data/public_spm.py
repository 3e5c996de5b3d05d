"""SentencePiece models (Kudo & Richardson 2018): the pieces in the file, and texts cut by the library itself.

The reference reads the models of T5, ALBERT and XLM-R into a unigram model of the `tokenizers` library, whose ids are
not always those of `sentencepiece` (T5's differ on control characters and stacked accents). For the same ids we do the
same, so these need no further package: `read_model` takes what is needed out of the file. Marian's reference calls
`sentencepiece`, and so do we: the extra `spm`, imported when a Marian tokenizer is opened.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.tokenizers import Cut
from regard.errors import UserError

UNIGRAM = 1  # model_type of the trainer's settings
CONTROL, USER_DEFINED = 3, 4  # types of a piece


@dataclass(frozen=True)
class Model:
    """What a SentencePiece file holds, as far as cutting texts goes."""

    pieces: list[tuple[str, float]]  # each with its log-probability
    found: list[tuple[str, bool]]  # pieces that are found in raw text as they stand, and whether they say nothing
    charsmap: bytes  # how characters are normalised, compiled; empty: they are not


def read_model(data: bytes) -> Model:
    """The pieces and the normalisation of a SentencePiece file: a protocol buffer, sentencepiece_model.proto."""
    pieces: list[tuple[str, float]] = []
    found: list[tuple[str, bool]] = []
    charsmap, kind = b"", UNIGRAM
    for field, value in _fields(data):
        match field:
            case 1:  # SentencePiece: piece = 1, score = 2, type = 3
                inner = dict(_fields(value))
                piece = bytes(inner.get(1, b"")).decode("utf-8")
                pieces.append((piece, struct.unpack("<f", inner.get(2, b"\0" * 4))[0]))
                if inner.get(3) in (CONTROL, USER_DEFINED):
                    found.append((piece, inner[3] == CONTROL))
            case 2:  # TrainerSpec: model_type = 3
                kind = dict(_fields(value)).get(3, UNIGRAM)
            case 3:  # NormalizerSpec: precompiled_charsmap = 2
                charsmap = bytes(dict(_fields(value)).get(2, b""))
    if not pieces or kind != UNIGRAM:
        raise ValueError("not a unigram model of SentencePiece")
    return Model(pieces, found, charsmap)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: its number, and an integer or the bytes of what is longer."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case _:
                raise ValueError("not a protocol buffer")
        if at + size > len(data):
            raise ValueError("the file is cut short")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, the lowest first, and where the next thing begins."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the file is cut short")
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def marian_cut(model: bytes, vocab: Mapping[str, int], specials: Sequence[str], unknown: int) -> Cut:
    """How Marian cuts texts: pieces by `sentencepiece`, their ids by a vocabulary of its own.

    A language code such as >>fra<< before a text is one token, and so is a special token in it.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise UserError(
            "source.spm: reading it takes the sentencepiece package; install it: pip install 'regard[spm]'"
        ) from error
    processor = SentencePieceProcessor(model_proto=model)
    whole = re.compile("(" + "|".join(map(re.escape, sorted(specials, key=len, reverse=True))) + ")")
    code = re.compile(r">>.*?<<", re.DOTALL)

    def pieces(part: str) -> list[str]:
        if part in specials:
            return [part]
        language = code.match(part)
        codes, text = ([language[0]], part[language.end() :]) if language else ([], part)
        return [*codes, *processor.encode(text, out_type=str)]

    def cut(texts: Sequence[str]) -> list[list[int]]:
        parts = ((part for part in whole.split(text) if part) for text in texts)
        return [[vocab.get(piece, unknown) for part in text for piece in pieces(part)] for text in parts]

    return cut
