"""Tokenizers of public checkpoints, read from the files beside the weights. They give the ids of `transformers`.

The `tokenizers` library reads a `tokenizer.json` directly. Without one, the older files are read: vocab.json +
merges.txt, vocab.txt, spiece.model or sentencepiece.bpe.model (all through `tokenizers`). Marian's source.spm +
target.spm + vocab.json (through `sentencepiece`; see `data/public_builders.py` for why) come first where they
are there: its tokenizer.json encodes both sides as sources.

As in `transformers`, a special token in a text is encoded as that token: `fill` needs this for [MASK].
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import tokenizers as rust
from tokenizers import processors

from regard.data import public_builders as builders
from regard.data.public_builders import BuildTokenizer, Files, Settings, marian_split_function, token_text
from regard.data.public_vocab import PublicVocab, names_by_id, read_vocab
from regard.data.tokenizers import (
    MOST_SENTINELS,
    SPECIALS,
    EncodeFunction,
    SpecialTokens,
    Tokenizer,
    UnknownFunction,
    is_damage,
    rust_encode_function,
    rust_offsets_function,
    rust_unknown_function,
    sentinel,
)
from regard.errors import UserError, nearest

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
SETTINGS_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
ADDED_TOKEN_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")  # options of an added token


@dataclass(frozen=True)
class TokenizerType:
    """The tokenizer of a model type: its files, and its default settings."""

    files: tuple[str, ...]
    build: BuildTokenizer
    settings: dict[str, Any] = field(default_factory=dict)
    wrapping: tuple[str, str] = ("", "")  # the roles of the special tokens before and after an input
    between: tuple[str, ...] = ()  # the roles of the special tokens between two texts; none: as `SpecialTokens` says
    second_segment: int = 1  # the segment (token_type_id) of the second text


BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
FAIRSEQ = {
    **{"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"},
    **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"},
}
ALBERT = {**BERT, "bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "pad_token": "<pad>"}
T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
CLS_SEP = ("cls_token", "sep_token")
TWO_SEP = ("sep_token", "sep_token")

_bert = TokenizerType(("vocab.txt",), builders.wordpiece, BERT, CLS_SEP)
TOKENIZER_TYPES = {
    "bert": _bert,
    "distilbert": _bert,
    "electra": _bert,
    "roberta": TokenizerType(("vocab.json", "merges.txt"), builders.byte_level, FAIRSEQ, CLS_SEP, TWO_SEP, 0),
    "gpt2": TokenizerType(("vocab.json", "merges.txt"), builders.byte_level, GPT2),
    "openai-gpt": TokenizerType(("vocab.json", "merges.txt"), builders.word_end_bpe, {"unk_token": "<unk>"}),
    "albert": TokenizerType(("spiece.model",), builders.albert, ALBERT, CLS_SEP),
    "xlm-roberta": TokenizerType(("sentencepiece.bpe.model",), builders.xlm_roberta, FAIRSEQ, CLS_SEP, TWO_SEP, 0),
    "t5": TokenizerType(("spiece.model",), builders.t5, T5, ("", "eos_token"), second_segment=0),
    "marian": TokenizerType(("source.spm", "target.spm", "vocab.json"), builders.t5, T5, ("", "eos_token")),
}
WITH_SOURCE = ("t5", "marian", "pegasus")  # types with a source and a target
LANGUAGE_MODELS = ("gpt2", "openai-gpt")  # types that generate text without a source


def read_tokenizers(folder: Path, config: Mapping[str, Any]) -> tuple[Tokenizer | None, Tokenizer]:
    """The tokenizers of a public checkpoint: of the source, if it has one, and of the target.

    `config` is its parsed config.json. A tokenizer keeps it: a run that starts from the checkpoint has it from there.
    """
    kind = config.get("model_type")
    if (exported := _read_exported(folder, config)) is not None:
        return (exported[0] if kind in WITH_SOURCE else None), exported[1]
    if kind not in TOKENIZER_TYPES:
        raise UserError(
            f'{folder}: no tokenizer is known for model_type "{kind}".{nearest(str(kind), TOKENIZER_TYPES)}'
        )
    wanted = TOKENIZER_TYPES[kind].files
    names = {*SETTINGS_FILES, *wanted, *(["target_vocab.json"] if kind == "marian" else [])}
    files = {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}
    missing = [name for name in wanted if name not in files]
    try:
        separate = bool(_settings(files).get("separate_vocabs"))  # Marian: a tokenizer.json has only one vocabulary
        if missing and ("tokenizer.json" not in files or separate):
            cure = f"put it there{', or its tokenizer.json' * (not separate)}"
            raise UserError(f"{folder}: {missing[0]} is missing; {cure}.")
        return _open(files, config)
    except BaseException as error:
        if not is_damage(error):
            raise
        present = ", ".join(name for name in files if name in wanted or name == "tokenizer.json")
        raise UserError(
            f"{folder}: {present}: damaged, or of another kind of tokenizer ({error}); download them again."
        ) from error


def _read_exported(folder: Path, config: Mapping[str, Any]) -> tuple[Tokenizer, Tokenizer] | None:
    """Tokenizers of our own kinds, as `regard export` writes them: of the source and of the target.

    A model of running text has no bos and no eos. Its tokenizer has both; they are removed if config.json lacks them.
    """
    source_path, target_path = folder / "tokenizer.json", folder / "target" / "tokenizer.json"
    if not source_path.is_file() or SPECIALS[0].encode() not in source_path.read_bytes():
        return None  # not one of ours
    source = Tokenizer.load(source_path)
    if config.get("model_type") in LANGUAGE_MODELS:
        bos = None if config.get("bos_token_id") is None else source.special_tokens.bos
        eos = None if config.get("eos_token_id") is None else source.special_tokens.eos
        source = replace(source, special_tokens=replace(source.special_tokens, bos=bos, eos=eos, prefix=bos))
    return source, (Tokenizer.load(target_path) if target_path.is_file() else source)


def unpack_tokenizer(content: Mapping[str, Any], path: Path) -> Tokenizer:
    """The public tokenizer in the JSON object that `save` wrote."""
    try:
        files = {name: b64decode(data, validate=True) for name, data in content["files"].items()}
        source, target = _open(files, content["config"])
    except BaseException as error:
        if not is_damage(error):
            raise
        raise UserError(f"{path}: damaged, or not a tokenizer of Regard ({error}).") from error
    return source if content.get("side") == "source" and source is not None else target


def _open(files: Files, config: Settings) -> tuple[Tokenizer | None, Tokenizer]:
    """The tokenizers in these files, for the source and for the target."""
    if config["model_type"] == "marian" and files.keys() >= {*TOKENIZER_TYPES["marian"].files}:
        source, target = (_marian(files, config, side) for side in ("source", "target"))
        return source, target
    tokenizer_type = TOKENIZER_TYPES[config["model_type"]]
    inner, settings = _rust_tokenizer(tokenizer_type, files)
    special_tokens = _special_tokens(tokenizer_type, inner.token_to_id, settings, config)
    if config["model_type"] in LANGUAGE_MODELS and inner.encode("").ids == [special_tokens.bos]:
        special_tokens = replace(special_tokens, prefix=special_tokens.bos)
    both = _tokenizer(
        rust_encode_function(inner),
        rust_unknown_function(inner),
        read_vocab(inner),
        special_tokens,
        {"files": files, "config": config, "side": "target"},
    )
    both = replace(both, offsets_function=rust_offsets_function(inner))
    return (both if config["model_type"] in WITH_SOURCE else None), both


def _rust_tokenizer(tokenizer_type: TokenizerType, files: Files) -> tuple[rust.Tokenizer, dict[str, Any]]:
    """The tokenizer of the `tokenizers` library that these files describe, and its settings.

    The special tokens are registered, so that they are found in raw text, each with its id or the next free one.
    Default special tokens of the type that this vocabulary lacks are left out: the model has no row for them.
    """
    defaults, settings = tokenizer_type.settings, tokenizer_type.settings | _settings(files)
    text = files.get("tokenizer.json")
    inner = tokenizer_type.build(files, settings) if text is None else rust.Tokenizer.from_str(text.decode("utf-8"))
    inner.no_truncation()
    inner.no_padding()
    listed = settings.get("added_tokens_decoder", {})
    older = json.loads(files.get("added_tokens.json", b"{}"))
    tokens = [listed[number] for number in sorted(listed, key=int)] + sorted(older, key=older.__getitem__)
    extras = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
    for role in ROLES:
        token = settings.get(role)
        if token is not None and (token != defaults.get(role) or inner.token_to_id(token_text(token)) is not None):
            tokens.append(token)
    known = {token.content for token in inner.get_added_tokens_decoder().values()}
    for token in [*tokens, *extras]:
        if token_text(token) not in known:
            flags = {"special": True}
            flags |= {flag: token[flag] for flag in ADDED_TOKEN_FLAGS if isinstance(token, dict) and flag in token}
            inner.add_tokens([rust.AddedToken(token_text(token), **flags)])
            known.add(token_text(token))
    return inner, settings


def files_with_prefix(tokenizer: Tokenizer, prefix: int) -> dict[str, bytes]:
    """The files of a public tokenizer for `transformers`, changed so that it puts a special token before every text."""
    packed, files = json.loads(tokenizer.serialize()), tokenizer.files()
    inner, settings = _rust_tokenizer(TOKENIZER_TYPES[packed["config"]["model_type"]], files)
    name = inner.id_to_token(prefix)
    inner.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A $B:1", special_tokens=[(name, prefix)]
    )
    config = settings | {"tokenizer_class": "PreTrainedTokenizerFast"}
    changed = {"tokenizer.json": inner.to_str(pretty=True), "tokenizer_config.json": json.dumps(config, indent=2)}
    return files | {name: text.encode() for name, text in changed.items()}


def _marian(files: Files, config: Settings, side: str) -> Tokenizer:
    """One side of Marian: pieces from its SentencePiece model, ids from a vocabulary that both sides may share."""
    settings = T5 | _settings(files)
    separate = side == "target" and settings.get("separate_vocabs", False)
    vocab: dict[str, int] = json.loads(files["target_vocab.json" if separate else "vocab.json"])
    special_tokens = _special_tokens(TOKENIZER_TYPES["marian"], vocab.get, settings, config)
    if (unk_id := special_tokens.unk) is None or special_tokens.eos is None:
        raise ValueError("vocab.json lacks <unk> or </s>")
    specials = [token_text(settings[role]) for role in T5]
    split = marian_split_function(files[f"{side}.spm"], [name for name in specials if name in vocab])

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[vocab.get(piece, unk_id) for piece in split(text)] for text in texts]

    def unknown(text: str, unk: int | None) -> list[str]:
        return [piece.strip("▁") or piece for piece in split(text) if vocab.get(piece, unk) == unk]

    special = frozenset(vocab[name] for name in specials if name in vocab)
    public_vocab = PublicVocab("sentencepiece", names_by_id(vocab), special, special)
    packed = {"files": files, "config": config, "side": side}
    return _tokenizer(encode, unknown, public_vocab, special_tokens, packed)


def _settings(files: Files) -> dict[str, Any]:
    """The settings in the tokenizer's files. The older file is used only if the newer one does not list the tokens."""
    newer, older = (json.loads(files.get(name, b"{}")) for name in SETTINGS_FILES[1:3])
    found = newer if "added_tokens_decoder" in newer else newer | older
    return {key: value for key, value in found.items() if value is not None}


def _special_tokens(tokenizer_type: TokenizerType, id_of: Any, settings: Settings, config: Settings) -> SpecialTokens:
    """The ids of the special tokens by role; config.json may set the first token of a decoder."""

    def role(name: str) -> int | None:
        return id_of(token_text(settings[name])) if name in settings else None

    prefix, suffix = map(role, tokenizer_type.wrapping)
    between = [token for token in map(role, tokenizer_type.between) if token is not None]
    pad, eos, unk = role("pad_token"), role("eos_token"), role("unk_token")
    bos = prefix if prefix is not None else role("bos_token")
    if config["model_type"] in ("t5", "marian"):
        bos = pad if config.get("decoder_start_token_id") is None else config["decoder_start_token_id"]
    eos = suffix if eos is None else eos
    return SpecialTokens(
        pad=next((token for token in (pad, eos) if token is not None), 0),
        bos=bos,
        eos=eos,
        unk=None if unk == eos else unk,  # GPT-2 has every byte, so that nothing is unknown
        mask=role("mask_token"),
        prefix=prefix,
        suffix=suffix,
        separator=tuple(between),
        second_segment=tokenizer_type.second_segment,
        sentinels=tuple(takewhile(lambda found: found is not None, map(id_of, map(sentinel, range(MOST_SENTINELS))))),
    )


def _tokenizer(
    encode_function: EncodeFunction,
    unknown_function: UnknownFunction,
    vocab: PublicVocab,
    special_tokens: SpecialTokens,
    packed: Settings,
) -> Tokenizer:
    """A tokenizer and what `save` writes of it: `packed` has its files, the settings of the model and the side."""

    def serialize() -> str:
        coded = {name: b64encode(data).decode() for name, data in packed["files"].items()}
        return json.dumps({**packed, "files": coded}, indent=2)

    return Tokenizer(
        kind=vocab.kind,
        special_tokens=special_tokens,
        encode_function=encode_function,
        unknown_function=unknown_function,
        detokenizer=vocab.detokenizer(special_tokens),
        display_names=vocab.display_names(),
        export_files=lambda: packed["files"],
        serialize=serialize,
    )
