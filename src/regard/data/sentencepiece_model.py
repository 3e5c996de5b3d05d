"""SentencePiece models (Kudo & Richardson 2018): a parser of the file, and encoding with the library itself.

For T5, ALBERT and XLM-R, `transformers` converts the file into a unigram model of the `tokenizers` library, whose ids
are not always those of `sentencepiece` (T5's differ on control characters and stacked accents). For the same ids we do
the same. This needs no other package: `read_sentencepiece` parses the file. For Marian, `transformers` calls
`sentencepiece`, and so do we: it is the optional extra `spm`, imported when a Marian tokenizer is opened.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.tokenizers import EncodeFunction
from regard.errors import UserError

UNIGRAM = 1  # model_type of the trainer's settings
CONTROL, USER_DEFINED = 3, 4  # types of a piece


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a SentencePiece file that encoding needs."""

    pieces: list[tuple[str, float]]  # each with its log-probability
    found_in_text: list[
        tuple[str, bool]
    ]  # pieces that are found_in_text in raw text before it is split, and whether they are control tokens
    charsmap: bytes  # the compiled normalisation of characters; empty: none


def read_sentencepiece(data: bytes) -> SentencePieceModel:
    """The pieces and the normalisation of a SentencePiece file: a protocol buffer, sentencepiece_model.proto."""
    pieces: list[tuple[str, float]] = []
    found_in_text: list[tuple[str, bool]] = []
    charsmap, kind = b"", UNIGRAM
    for field, value in _fields(data):
        match field:
            case 1:  # SentencePiece: piece = 1, score = 2, type = 3
                inner = dict(_fields(value))
                piece = bytes(inner.get(1, b"")).decode("utf-8")
                pieces.append((piece, struct.unpack("<f", inner.get(2, b"\0" * 4))[0]))
                if inner.get(3) in (CONTROL, USER_DEFINED):
                    found_in_text.append((piece, inner[3] == CONTROL))
            case 2:  # TrainerSpec: model_type = 3
                kind = dict(_fields(value)).get(3, UNIGRAM)
            case 3:  # NormalizerSpec: precompiled_charsmap = 2
                charsmap = bytes(dict(_fields(value)).get(2, b""))
    if not pieces or kind != UNIGRAM:
        raise ValueError("not a unigram model of SentencePiece")
    return SentencePieceModel(pieces, found_in_text, charsmap)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer message: the number of each, and its integer or bytes."""
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
            raise ValueError("the file is truncated")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of variable length (seven bits a byte, the lowest first), and the position after it."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the file is truncated")
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def marian_encode_function(
    model: bytes, vocab: Mapping[str, int], specials: Sequence[str], unknown: int
) -> EncodeFunction:
    """The encode function of Marian: pieces from `sentencepiece`, ids from Marian's own vocabulary.

    A language code such as >>fra<< before a text is one token, and so is a special token in the text.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise UserError(
            "source.spm: reading it needs the sentencepiece package; install it: pip install 'regard[spm]'"
        ) from error
    processor = SentencePieceProcessor(model_proto=model)
    special = re.compile("(" + "|".join(map(re.escape, sorted(specials, key=len, reverse=True))) + ")")
    code = re.compile(r">>.*?<<", re.DOTALL)

    def pieces(part: str) -> list[str]:
        if part in specials:
            return [part]
        language = code.match(part)
        codes, text = ([language[0]], part[language.end() :]) if language else ([], part)
        return [*codes, *processor.encode(text, out_type=str)]

    def encode(texts: Sequence[str]) -> list[list[int]]:
        parts = ((part for part in special.split(text) if part) for text in texts)
        return [[vocab.get(piece, unknown) for part in text for piece in pieces(part)] for text in parts]

    return encode
