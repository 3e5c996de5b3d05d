"""Builds the tokenizers of public checkpoints from their vocabulary files, with the `tokenizers` library.

Normalisation, splitting and the treatment of unknown characters follow the current tokenizers of `transformers`;
`tests/data/test_public.py` compares the ids.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenizers as rust
from tokenizers import models, normalizers, pre_tokenizers

from regard.data.sentencepiece_model import SentencePieceModel, read_sentencepiece

Files = Mapping[str, bytes]
Settings = Mapping[str, Any]  # of tokenizer_config.json, with the defaults of the model type

BuildTokenizer = Callable[[Files, Settings], rust.Tokenizer]


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
    sentinels = [f"<extra_id_{number}>" for number in range(settings.get("extra_ids", 100))]
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
