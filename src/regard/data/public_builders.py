"""Builds the tokenizers of public checkpoints from their vocabulary files.

Normalisation, splitting and the treatment of unknown characters follow the current tokenizers of `transformers`;
`tests/data/test_public.py` compares the ids. Most use the `tokenizers` library.

For T5, ALBERT and XLM-R, `transformers` converts the SentencePiece file (Kudo & Richardson 2018) into a unigram model
of the `tokenizers` library, whose ids are not always those of `sentencepiece` (T5's differ on control characters and
stacked accents). For the same ids we do the same. This needs no other package: `read_sentencepiece` parses the file.
For Marian, `transformers` calls `sentencepiece`, and so do we: it is the optional extra `spm`, imported when a Marian
tokenizer is opened.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers as rust
from tokenizers import models, normalizers, pre_tokenizers

from regard.data.tokenizers import MOST_SENTINELS, sentinel
from regard.errors import UserError

Files = Mapping[str, bytes]
Settings = Mapping[str, Any]  # of tokenizer_config.json, with the defaults of the model type

BuildTokenizer = Callable[[Files, Settings], rust.Tokenizer]

UNIGRAM = 1  # model_type of the trainer's settings in a SentencePiece file
CONTROL, USER_DEFINED = 3, 4  # types of a piece


def byte_level(files: Files, settings: Settings) -> rust.Tokenizer:
    """Byte-pair encoding over bytes (Radford et al. 2019, §2.2): GPT-2, RoBERTa."""
    inner = rust.Tokenizer(models.BPE(*_vocab_and_merges(files)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space", False)))
    return inner


def word_end_bpe(files: Files, settings: Settings) -> rust.Tokenizer:
    """Byte-pair encoding of lower-cased words, whose last piece ends with </w> (Radford et al. 2018, §4.1): GPT."""
    unknown = token_text(settings["unk_token"])
    inner = rust.Tokenizer(models.BPE(*_vocab_and_merges(files), end_of_word_suffix="</w>", unk_token=unknown))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return inner


def wordpiece(files: Files, settings: Settings) -> rust.Tokenizer:
    """Longest match first within words (Devlin et al. 2019, §3): BERT, DistilBERT, ELECTRA."""
    names = files["vocab.txt"].decode("utf-8").removesuffix("\n").split("\n")
    vocab = {name.rstrip(): number for number, name in enumerate(names)}
    inner = rust.Tokenizer(models.WordPiece(vocab, unk_token=token_text(settings["unk_token"])))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: if and only if lower-casing
        lowercase=settings.get("do_lower_case", True),
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return inner


def t5(files: Files, settings: Settings) -> rust.Tokenizer:
    """The pieces of the file, then the sentinels of span corruption (Raffel et al. 2020, §3.1.4), last one first."""
    model = read_sentencepiece(files["spiece.model"])
    count = settings.get("extra_ids", 100)
    if count > MOST_SENTINELS:
        raise ValueError(f"extra_ids is {count:,}")
    sentinels = [sentinel(number) for number in range(count)]
    inner = _unigram(model, model.pieces + [(name, 0.0) for name in reversed(sentinels)], 2)
    inner.add_tokens([rust.AddedToken(name, special=True) for name in sentinels])
    return inner


def albert(files: Files, settings: Settings) -> rust.Tokenizer:
    """The pieces of the file, for text without accents and in lower case by default."""
    model = read_sentencepiece(files["spiece.model"])
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    return _unigram(model, model.pieces, 1, steps)


def xlm_roberta(files: Files, settings: Settings) -> rust.Tokenizer:
    """The pieces of the file with ids one higher: ids 0 to 3 are <s> <pad> </s> <unk>, and <mask> is the last."""
    model = read_sentencepiece(files["sentencepiece.bpe.model"])
    roles = ("bos_token", "pad_token", "eos_token", "unk_token")
    first = [(token_text(settings[role]), 0.0) for role in roles]
    pieces = [*first, *model.pieces[3:], (token_text(settings["mask_token"]), 0.0)]
    return _unigram(model, pieces, 3)


def token_text(token: Any) -> str:
    """The text of a special token, which settings give as a string or as an object."""
    return str(token["content"] if isinstance(token, dict) else token)


def _unigram(
    model: SentencePieceModel, pieces: list[tuple[str, float]], unknown: int, steps: Sequence[Any] = ()
) -> rust.Tokenizer:
    """A unigram model: the most probable pieces of each word (Kudo 2018, §3.2), with ▁ for the space before it.

    `steps` are normalizers that come first.
    """
    inner = rust.Tokenizer(models.Unigram(pieces, unk_id=unknown, byte_fallback=False))
    compiled = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    inner.normalizer = normalizers.Sequence([*steps, *compiled])
    words = pre_tokenizers.WhitespaceSplit()
    inner.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.Metaspace("▁", prepend_scheme="always")])
    inner.add_tokens(
        [rust.AddedToken(name, normalized=False, special=special) for name, special in model.found_in_text]
    )
    return inner


def _vocab_and_merges(files: Files) -> tuple[dict[str, int], list[tuple[str, str]]]:
    vocab = json.loads(files["vocab.json"])
    lines = (line.removesuffix("\r") for line in files["merges.txt"].decode("utf-8").split("\n"))
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    return vocab, merges  # type: ignore[return-value]


# -- SentencePiece ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a SentencePiece file that encoding needs."""

    pieces: list[tuple[str, float]]  # each with its log-probability
    # Pieces that are found in raw text before it is split, and whether they are control tokens.
    found_in_text: list[tuple[str, bool]]
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


def marian_split_function(model: bytes, specials: Sequence[str]) -> Callable[[str], list[str]]:
    """The function that splits a text into the pieces of Marian, which `sentencepiece` finds.

    A language code such as >>fra<< before a text is one piece, and so is a special token in the text. A piece that is
    not in the vocabulary is a part of the text.
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

    return lambda text: [piece for part in special.split(text) if part for piece in pieces(part)]
