"""Tokenizers of public checkpoints: the files beside the weights, read so that the ids are the reference's.

A directory's `tokenizer.json` is read by the `tokenizers` library as it stands. Without one the older files are:
vocab.json + merges.txt, vocab.txt, spiece.model or sentencepiece.bpe.model (all through `tokenizers`). Marian's
source.spm + target.spm + vocab.json (through `sentencepiece`; see `data/public_spm.py` for why) come first where they
are there: its tokenizer.json cuts both sides as the source is cut.

As in the reference, a special token that is written in a text is that token: fill needs its [MASK] found.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tokenizers as rust
from tokenizers import processors

from regard.data import public_cuts as cuts
from regard.data.public_cuts import Build, Files, Settings, name_of
from regard.data.public_names import Names, by_id, names_of
from regard.data.public_spm import marian_cut
from regard.data.special_tokens import SpecialTokens
from regard.data.tokenizers import SPECIALS, Cut, Tokenizer, rust_cut
from regard.errors import UserError, nearest

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
NAMES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
WAYS = ("lstrip", "rstrip", "single_word", "normalized", "special")  # how a token is found in a text
STORED = ("model_type", "decoder_start_token_id")  # what of a model's settings bears on its tokenizer


@dataclass(frozen=True)
class Family:
    """The tokenizer of a model type: the files it is made of, and what its settings are where no file says."""

    files: tuple[str, ...]
    build: Build
    settings: dict[str, Any] = field(default_factory=dict)
    frame: tuple[str, str] = ("", "")  # the roles of what stands before and after a text that is read whole


BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
FAIRSEQ = {
    **{"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>"},
    **{"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"},
}
ALBERT = {**BERT, "bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "pad_token": "<pad>"}
T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
CLASSES = ("cls_token", "sep_token")

_bert = Family(("vocab.txt",), cuts.wordpiece, BERT, CLASSES)
FAMILIES = {
    "bert": _bert,
    "distilbert": _bert,
    "electra": _bert,
    "roberta": Family(("vocab.json", "merges.txt"), cuts.byte_level, FAIRSEQ, CLASSES),
    "gpt2": Family(("vocab.json", "merges.txt"), cuts.byte_level, GPT2),
    "openai-gpt": Family(("vocab.json", "merges.txt"), cuts.word_ends, {"unk_token": "<unk>"}),
    "albert": Family(("spiece.model",), cuts.albert, ALBERT, CLASSES),
    "xlm-roberta": Family(("sentencepiece.bpe.model",), cuts.xlm_roberta, FAIRSEQ, CLASSES),
    "t5": Family(("spiece.model",), cuts.t5, T5, ("", "eos_token")),
    "marian": Family(("source.spm", "target.spm", "vocab.json"), cuts.t5, T5, ("", "eos_token")),
}
TOLD = ("t5", "marian", "pegasus")  # types that have a source
SPEAKING = ("gpt2", "openai-gpt", "transfo-xl")  # types that say a text of their own


def read_tokenizers(folder: Path, config: Mapping[str, Any]) -> tuple[Tokenizer | None, Tokenizer]:
    """The tokenizers of a public checkpoint: of what it reads, if it has a source, and of what it says.

    `config` is its parsed config.json.
    """
    kind = config.get("model_type")
    if (ours := _exported(folder, config)) is not None:
        return (ours[0] if kind in TOLD else None), ours[1]
    if kind not in FAMILIES:
        raise UserError(f'{folder}: no tokenizer is known for model_type "{kind}".{nearest(str(kind), FAMILIES)}')
    wanted = FAMILIES[kind].files
    names = {*NAMES, *wanted, *(["target_vocab.json"] if kind == "marian" else [])}
    files = {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}
    missing = [name for name in wanted if name not in files]
    apart = bool(_settings(files).get("separate_vocabs"))  # of Marian: one tokenizer.json holds one vocabulary
    if missing and ("tokenizer.json" not in files or apart):
        raise UserError(f"{folder}: {missing[0]} is missing; put it there{', or its tokenizer.json' * (not apart)}.")
    try:
        return _opened(files, {name: config.get(name) for name in STORED})
    except UserError:
        raise
    except Exception as error:  # the libraries raise bare Exception for every kind of damage
        there = ", ".join(name for name in files if name in wanted or name == "tokenizer.json")
        raise UserError(
            f"{folder}: {there}: damaged, or of another kind of tokenizer ({error}); download them again."
        ) from error


def _exported(folder: Path, config: Mapping[str, Any]) -> tuple[Tokenizer, Tokenizer] | None:
    """Tokenizers of our own kinds, as `regard export` puts them beside a model: of what is read, of what is said.

    A model of running text has been exported without a begin and an end; only its settings know.
    """
    read, said = folder / "tokenizer.json", folder / "target" / "tokenizer.json"
    if not read.is_file() or SPECIALS[0].encode() not in read.read_bytes():
        return None  # somebody else's
    source = Tokenizer.load(read)
    if config.get("model_type") in SPEAKING:
        begin = None if config.get("bos_token_id") is None else source.special_tokens.bos
        end = None if config.get("eos_token_id") is None else source.special_tokens.eos
        source = replace(source, special_tokens=replace(source.special_tokens, bos=begin, eos=end, prefix=begin))
    return source, (Tokenizer.load(said) if said.is_file() else source)


def unpacked(content: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer that `save` packed into one JSON object."""
    try:
        files = {name: b64decode(data, validate=True) for name, data in content["files"].items()}
        source, target = _opened(files, content["config"])
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: damaged, or not a tokenizer of Regard ({error}).") from error
    return source if content.get("side") == "source" and source is not None else target


def _opened(files: Files, config: Settings) -> tuple[Tokenizer | None, Tokenizer]:
    """The tokenizers in these files, for the source and for the target."""
    if config["model_type"] == "marian" and files.keys() >= {*FAMILIES["marian"].files}:
        source, target = (_marian(files, config, side) for side in ("source", "target"))
        return source, target
    family = FAMILIES[config["model_type"]]
    inner, settings = _inner(family, files)
    special_tokens = _special_tokens(family, inner.token_to_id, settings, config)
    if config["model_type"] in SPEAKING and inner.encode("").ids == [special_tokens.bos]:
        special_tokens = replace(special_tokens, prefix=special_tokens.bos)
    both = _tokenizer(
        rust_cut(inner), names_of(inner), special_tokens, {"files": files, "config": config, "side": "target"}
    )
    return (both if config["model_type"] in TOLD else None), both


def _inner(family: Family, files: Files) -> tuple[rust.Tokenizer, dict[str, Any]]:
    """A tokenizer of the `tokenizers` library, and its settings."""
    settings = family.settings | _settings(files)
    whole = files.get("tokenizer.json")
    inner = family.build(files, settings) if whole is None else rust.Tokenizer.from_str(whole.decode("utf-8"))
    inner.no_truncation()
    inner.no_padding()
    _add_specials(inner, files, settings, family.settings)
    return inner, settings


def with_prefix(tokenizer: Tokenizer, mark: int) -> dict[str, bytes]:
    """The files of a public tokenizer that puts a mark before every text, as `transformers` opens it."""
    packed, files = json.loads(tokenizer.stored()), tokenizer.files()
    inner, settings = _inner(FAMILIES[packed["config"]["model_type"]], files)
    name = inner.id_to_token(mark)
    inner.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A $B:1", special_tokens=[(name, mark)]
    )
    told = settings | {"tokenizer_class": "PreTrainedTokenizerFast"}
    text = {"tokenizer.json": inner.to_str(pretty=True), "tokenizer_config.json": json.dumps(told, indent=2)}
    return files | {name: one.encode() for name, one in text.items()}


def _marian(files: Files, config: Settings, side: str) -> Tokenizer:
    """One side of Marian: pieces from its SentencePiece model, ids from a vocabulary that both sides may share."""
    settings = T5 | _settings(files)
    apart = side == "target" and settings.get("separate_vocabs", False)
    vocab: dict[str, int] = json.loads(files["target_vocab.json" if apart else "vocab.json"])
    special_tokens = _special_tokens(FAMILIES["marian"], vocab.get, settings, config)
    if special_tokens.unk is None or special_tokens.eos is None:
        raise ValueError("vocab.json lacks <unk> or </s>")
    specials = [name_of(settings[role]) for role in T5]
    cut = marian_cut(files[f"{side}.spm"], vocab, [name for name in specials if name in vocab], special_tokens.unk)
    special = frozenset(vocab[name] for name in specials if name in vocab)
    names = Names("sentencepiece", by_id(vocab), special, special)
    return _tokenizer(cut, names, special_tokens, {"files": files, "config": config, "side": side})


def _settings(files: Files) -> dict[str, Any]:
    """What the tokenizer's own files set; the older of the two counts where the newer does not list the tokens."""
    newer, older = (json.loads(files.get(name, b"{}")) for name in NAMES[1:3])
    found = newer if "added_tokens_decoder" in newer else newer | older
    return {key: value for key, value in found.items() if value is not None}


def _add_specials(inner: rust.Tokenizer, files: Files, settings: Settings, granted: Settings) -> None:
    """Have the special tokens found in raw text, each with the id it has, or the next one.

    Those that a type takes for granted and this vocabulary lacks are left out: the model has no row for them.
    """
    listed = settings.get("added_tokens_decoder", {})
    older = json.loads(files.get("added_tokens.json", b"{}"))
    tokens = [listed[number] for number in sorted(listed, key=int)] + sorted(older, key=older.__getitem__)
    extras = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
    for role in ROLES:
        token = settings.get(role)
        if token is not None and (token != granted.get(role) or inner.token_to_id(name_of(token)) is not None):
            tokens.append(token)
    there = {token.content for token in inner.get_added_tokens_decoder().values()}
    for token in [*tokens, *extras]:
        if name_of(token) not in there:
            ways = {"special": True} | {way: token[way] for way in WAYS if isinstance(token, dict) and way in token}
            inner.add_tokens([rust.AddedToken(name_of(token), **ways)])
            there.add(name_of(token))


def _special_tokens(family: Family, id_of: Any, settings: Settings, config: Settings) -> SpecialTokens:
    """The ids behind the roles; a decoder's first token is the model's to say."""

    def role(name: str) -> int | None:
        number: int | None = id_of(name_of(settings[name])) if name in settings else None
        return number

    before, after = map(role, family.frame)
    pad, end, unknown = role("pad_token"), role("eos_token"), role("unk_token")
    begin = before if before is not None else role("bos_token")
    if config["model_type"] in ("t5", "marian"):
        begin = pad if config.get("decoder_start_token_id") is None else config["decoder_start_token_id"]
    end = after if end is None else end
    return SpecialTokens(
        pad=next((mark for mark in (pad, end) if mark is not None), 0),
        bos=begin,
        eos=end,
        unk=None if unknown == end else unknown,  # GPT-2 cuts bytes, and knows them all
        mask=role("mask_token"),
        prefix=before,
        suffix=after,
    )


def _tokenizer(cut: Cut, names: Names, special_tokens: SpecialTokens, packed: Settings) -> Tokenizer:
    """One tokenizer, with the files it was read from: `packed` has them, the model's settings and the side."""

    def stored() -> str:
        coded = {name: b64encode(data).decode() for name, data in packed["files"].items()}
        return json.dumps({**packed, "files": coded}, indent=2)

    return Tokenizer(
        kind=names.kind,
        special_tokens=special_tokens,
        cut=cut,
        spelling=names.spelling(special_tokens),
        captions=names.captions(),
        own=lambda: packed["files"],
        stored=stored,
    )
