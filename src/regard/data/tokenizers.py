"""Text to numbers and back: characters, words or sub-words, over the `tokenizers` library.

Our own kinds have the same first four ids: pad, bos, eos, unk. Sub-words are byte-pair encoding (Sennrich et al. 2016,
§3.2) with spaces written as '▁' (Kudo & Richardson 2018, §3.2), so that decoding restores case, punctuation and spaces.
Byte-level sub-words (Radford et al. 2019, §2.2) encode every text: there is no unk, and the fourth id is a byte.

Words and sub-words are normalised to Unicode NFC first, so that é is always one character. Characters and bytes are not
normalised: token i of the characters is position i of the text, which alignments rely on.

Tokenizers of public checkpoints are also of class `Tokenizer`, read by `data/public_tokenizers.py`.
"""

from __future__ import annotations

import json
import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import tokenizers as rust
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.data.detokenize import (
    SPACE,
    UNKNOWN,
    ConcatDetokenizer,
    Detokenizer,
    bytes_of,
    display_bytes,
    number_of,
    printable,
)
from regard.data.example import Direction, Tokens
from regard.data.files import read_text
from regard.errors import UserError, nearest
from regard.file_io import write_text


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary: the ids that are not text; None where the vocabulary has no such token.

    Ours have the ids 0 to 3, BERT puts [CLS] before a text and [SEP] after it, a Marian decoder starts from the padding
    token and its sentences end with id 0. They are stored with the tokenizer, so that no model and no verb has an id in
    its code.
    """

    pad: int
    bos: int | None  # what a decoder reads before its first token
    eos: int | None  # what a decoder produces after its last token
    unk: int | None = None
    mask: int | None = None  # replaces a token that a model has to fill in
    # Around an input: a text that an encoder reads whole, or the prompt of a language model ([CLS] and [SEP] of BERT).
    prefix: int | None = None
    suffix: int | None = None
    separator: tuple[int, ...] = ()  # between two parts of an input (</s> </s> of RoBERTa); empty: the suffix, or eos
    second_segment: int = 1  # the segment of what comes after the first separator; that before it is 0
    sentinels: tuple[int, ...] = ()  # each replaces a span of tokens, in this order (Raffel et al. 2020, §3.1.4)

    def wrap_input(self, ids: list[int]) -> list[int]:
        """The ids of an input: prefix, text, suffix."""
        return [token for token in (self.prefix, *ids, self.suffix) if token is not None]

    def join_input(self, parts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """The ids of an input of several parts, and the segment of each id: prefix A separator B suffix.

        A vocabulary without prefix and suffix, as that of a language model, has bos and eos in their places: the start,
        delimiter and extract tokens of GPT (Radford et al. 2018, §3.3).
        """
        first = self.bos if self.prefix is None and self.suffix is None else self.prefix
        last = self.eos if self.suffix is None else self.suffix
        between = self.separator or tuple(token for token in (last,) if token is not None)
        if not between and len(parts) > 1:
            raise UserError(
                "the tokenizer has no special token to separate two texts (no sep_token and no eos_token); "
                "use a model whose tokenizer has one."
            )
        ids, segments = [] if first is None else [first], [] if first is None else [0]
        for place, part in enumerate(parts):
            after = between if place < len(parts) - 1 else () if last is None else (last,)
            ids += [*part, *after]
            segments += [self.second_segment if place else 0] * (len(part) + len(after))
        return ids, segments

    def wrap_target(self, ids: list[int]) -> list[int]:
        """The ids of a target: bos, text, eos. A decoder reads all but the last and predicts all but the first."""
        return [token for token in (self.bos, *ids, self.eos) if token is not None]

    @property
    def ids(self) -> tuple[int, ...]:
        """All special tokens but `unk`, which stands for some token of a text."""
        found = {self.pad, self.bos, self.eos, self.mask, self.prefix, self.suffix, *self.separator, *self.sentinels}
        return tuple(sorted(token for token in found if token is not None))

    @property
    def forbidden(self) -> tuple[int, ...]:
        """The tokens that decoding must never produce: all special tokens but `eos`."""
        found = {self.pad, self.bos, self.mask, self.unk} - {self.eos, None}
        return tuple(sorted(token for token in found if token is not None))


PAD, BOS, EOS, UNK = 0, 1, 2, 3
OUR_SPECIAL_TOKENS = SpecialTokens(pad=PAD, bos=BOS, eos=EOS, unk=UNK)

# Each has a space and several characters, which no token of a text has: no text contains a special token.
SPECIALS = ("< pad >", "< bos >", "< eos >", "< unk >")
KINDS: tuple[str, ...] = get_args(Tokens)
# Words between spaces. word-eos has a token for the end of a line as well; word-lower has words in lower case.
WORDS = ("word", "word-eos", "word-lower")
# Kinds of tokens for which a word in a text begins with a space, unless it is the first word.
WITH_SPACE = ("char", "byte-bpe", "bytes")
MOST_SENTINELS = 1000  # of a public vocabulary: more than any has
LINE_END = "<eos>"  # that token, as in the vocabularies of PTB and WikiText

# Sub-words do not contain both letters and punctuation, so that "house" and "house." share their pieces.
BPE_SPLIT = rf"{SPACE}?[\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}?[^{SPACE}\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}"

EncodeFunction = Callable[[Sequence[str]], list[list[int]]]  # texts → the ids of each
Spans = list[tuple[int, int]]  # for each token its first character in the text, and the character after its last
OffsetsFunction = Callable[[Sequence[str]], list[Spans]]
UnknownFunction = Callable[[str, int | None], list[str]]  # a text, the id of unk → the texts of its unknown tokens


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A vocabulary with `encode` and `decode`, display names of the tokens, their words, and special tokens."""

    kind: str  # one of KINDS; of public tokenizers: bytes, wordpiece, suffix or sentencepiece
    special_tokens: SpecialTokens
    encode_function: EncodeFunction
    unknown_function: UnknownFunction
    detokenizer: Detokenizer
    display_names: Sequence[str]  # one printable string per token, by id
    export_files: Callable[[], Mapping[str, bytes]]  # the files that other tools read, by name
    serialize: Callable[[], str]  # the text that `save` writes
    direction: Direction = "forward"  # the order of ids: backward has the last token of a text first
    origin: Tokenizer | None = None  # the tokenizer that this one was made from by `in_direction`
    offsets_function: OffsetsFunction | None = None  # None: the places of tokens in a text are not known

    def __repr__(self) -> str:
        return f"<Tokenizer {self.kind}: {self.size:,} tokens>"

    @property
    def size(self) -> int:
        """The number of ids, unused ones included."""
        return len(self.display_names)

    def in_direction(self, direction: Direction) -> Tokenizer:
        """The tokenizer of a model that reads a text in this direction.

        backward: ids are in reversed order, from the end of a text to its beginning, so that eos is read first and bos
        is predicted last. This is the one place where a text is reversed. both: a text is read between bos and eos.
        """
        origin = self.origin or self
        if direction == "forward":
            return origin
        special = origin.special_tokens
        if direction == "backward":
            special = replace(special, bos=special.eos, eos=special.bos)
        else:
            special = replace(special, prefix=special.bos, suffix=special.eos)
        return replace(origin, special_tokens=special, direction=direction, origin=origin)

    @property
    def reads_backward(self) -> bool:
        """Whether the last token of a text is the first of its ids."""
        return self.direction == "backward"

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without bos and eos."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, in parallel."""
        found = self.encode_function(list(texts))
        return [ids[::-1] for ids in found] if self.reads_backward else found

    def encode_words(self, words: Sequence[str], first: bool = True) -> list[list[int]]:
        """The tokens of each word of a text alone, the last token of a word last; `first`: the first word begins it.

        In a text with one space between words, these are its tokens, unless a token is over two words.
        """
        space = " " if self.kind in WITH_SPACE else ""
        texts = [word if first and not place else space + word for place, word in enumerate(words)]
        return self.in_direction("forward").encode_batch(texts)

    def offsets(self, texts: Sequence[str]) -> list[Spans]:
        """Where each token of each text is, in characters; a space before a sub-word may be part of it."""
        if self.offsets_function is None or self.reads_backward:
            raise UserError(f"this tokenizer ({self.kind}) does not give the places of tokens in a text; use another.")
        return self.offsets_function(list(texts))

    def wrap_input(self, tokens: list[int]) -> list[int]:
        """The tokens of an input with its special tokens: [CLS] … [SEP], or eos after a source."""
        return self.special_tokens.wrap_input(tokens)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; pad, bos and eos give no text, and bytes that are not valid UTF-8 give �.

        An id past the last token, which a model with a padded vocabulary may generate, gives <id>.

        This is the inverse of `encode` if every character was seen in training: exactly for characters and bytes, up to
        NFC for our sub-words (a '▁' of the text becomes a space), up to the spacing for words and word pieces, and up
        to the case for `word-lower`.
        """
        ordered = [*tokens][::-1] if self.reads_backward else tokens
        return b"".join(self.detokenizer(ordered)).decode("utf-8", errors="replace")

    def parts(self, tokens: Iterable[int]) -> list[str]:
        """The part of the text that each token gives, with its spaces; of the tokens of a character, the last one."""
        order = slice(None, None, -1 if self.reads_backward else None)
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        return [decoder.decode(part) for part in self.detokenizer([*tokens][order])][order]

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One printable string per token, for the axes of a plot: ␣ is a space, ▁ a space before a sub-word."""
        return [self.display_names[token] if token < self.size else number_of(token) for token in tokens]

    def unknown(self, text: str) -> list[str]:
        """The parts of a text that are not in the vocabulary: one for each unknown token, in order."""
        return self.unknown_function(text, self.special_tokens.unk)

    def words(self, tokens: Iterable[int]) -> list[int]:
        """For each token the index of the whitespace-delimited word it is part of.

        -1 for tokens without a word: spaces, pad, bos, eos. A token over several words counts for its first.
        """
        if self.reads_backward:
            assert self.origin is not None
            return self.origin.words([*tokens][::-1])[::-1]
        pieces = self.detokenizer(tokens)
        owners: list[int] = []  # the word of each byte
        count, inside = 0, False
        for character in b"".join(pieces).decode("utf-8", errors="surrogateescape"):  # an invalid byte is one character
            count += not inside and not character.isspace()  # a word begins
            inside = not character.isspace()
            owners += [count - 1 if inside else -1] * len(character.encode("utf-8", errors="surrogateescape"))
        spans = (owners[end - len(piece) : end] for piece, end in zip(pieces, accumulate(map(len, pieces))))
        return [next((owner for owner in span if owner >= 0), -1) for span in spans]

    def files(self) -> dict[str, bytes]:
        """The files that belong to exported weights, by name; of a public tokenizer the files it was read from."""
        return dict(self.export_files())

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to the one file that a run keeps, atomically."""
        write_text(Path(path), self.serialize())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read one of our tokenizers, as `save` wrote it: a `tokenizer.json` of the `tokenizers` library."""
        return cls.parse(read_text(path), path)

    @classmethod
    def parse(cls, text: str, path: str | Path) -> Tokenizer:
        """One of our tokenizers from the text that `serialize` returned; `path` is the file that has it."""
        try:
            inner = rust.Tokenizer.from_str(text)
            tokenizer = _from_rust(inner)
            inner.encode("\ue000")  # a character that is not in its vocabulary
            return tokenizer
        except BaseException as error:
            if not is_damage(error):
                raise
            raise UserError(
                f"{path}: not a tokenizer of Regard, or damaged ({error}); give the tokenizer.json of a run."
            ) from error


def is_damage(error: BaseException) -> bool:
    """Whether an error while a tokenizer is read is of the library: it raises bare Exception for every kind of damage,
    and a panic of its Rust code is no Exception."""
    return not isinstance(error, (UserError, KeyboardInterrupt, SystemExit, GeneratorExit))


def sentinel(number: int) -> str:
    """The text of a sentinel, as T5 writes it."""
    return f"<extra_id_{number}>"


def train_tokenizer(
    kind: str, lines: Iterable[str], vocab: int, mask: str | None = None, least: int | None = None, sentinels: int = 0
) -> Tokenizer:
    """Train a tokenizer on lines of text. The same lines give the same tokenizer.

    `vocab` is the largest size, special tokens included. Characters and words keep the most frequent ones; sub-words
    always keep every character seen, or all 256 bytes, even if these are more than `vocab`. `mask` is the text of the
    mask token, such as "[MASK]", for models that fill it in; these read a text between bos and eos. With `least`,
    tokens that occur less often are left out, and the end of a line is the first token after the special tokens. With
    `sentinels`, the vocabulary has so many of them, for models that fill in spans.
    """
    if kind not in KINDS:
        raise UserError(f'"{kind}" is not a kind of tokens.{nearest(kind, KINDS)}')
    found = [*([mask] if mask else []), *map(sentinel, range(sentinels))]  # special tokens that a text may have
    specials = [*_special_names(kind), *found, *([LINE_END] if least is not None else [])]
    if vocab <= len(specials):
        least = len(specials) + (256 if kind == "byte-bpe" else 1)  # every byte is a token of its own
        raise UserError(f"data.vocab={vocab} leaves no room for tokens of the text; give at least {least}.")
    trainer_of = trainers.WordLevelTrainer if kind in ("char", *WORDS) else trainers.BpeTrainer
    trainer: Any = trainer_of(vocab_size=vocab, min_frequency=least or 0, special_tokens=specials, show_progress=False)
    if kind == "byte-bpe":
        trainer.initial_alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner = _untrained(kind)
    inner.train_from_iterator(lines, trainer)
    # Training also registers the special tokens to be found in raw text, but only the mask and the sentinels may be
    # found there. Each strips the spaces that decoding adds again: the one before it, and the one after it if each word
    # gets a space.
    state = json.loads(inner.to_str())
    state["added_tokens"] = [
        token | {"lstrip": kind != "char", "rstrip": kind in (*WORDS, "bpe")}
        for token in state["added_tokens"]
        if token["content"] in found
    ]
    if least is not None:  # the end of a line is also a token of the text, and has one of two ids
        ids = state["model"]["vocab"]
        names = sorted(ids, key=lambda name: -1 if name in specials else ids[name])
        state["model"]["vocab"] = {name: place for place, name in enumerate([*specials, *names[len(specials) :]])}
    return _from_rust(rust.Tokenizer.from_str(json.dumps(state)))


def word_tokenizer(words: Sequence[str]) -> Tokenizer:
    """A tokenizer of given words, which have the ids after the special tokens, in their order."""
    ids = {name: place for place, name in enumerate((*SPECIALS, *words))}
    inner = _untrained("word")
    inner.model = models.WordLevel(ids, unk_token=SPECIALS[UNK])
    return _from_rust(inner)


def rust_encode_function(inner: rust.Tokenizer) -> EncodeFunction:
    """The encode function of a tokenizer of the `tokenizers` library."""

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in _encodings(inner.encode_batch_fast, texts)]

    return encode


def _encodings(encode_batch: Any, texts: Sequence[str]) -> list[rust.Encoding]:
    """The encodings of texts by a function of the `tokenizers` library.

    A vocabulary without an unknown token refuses a text that has anything else; the error names the first such text.
    """
    try:
        found: list[rust.Encoding] = encode_batch(list(texts), add_special_tokens=False)
        return found
    except BaseException as error:
        if isinstance(error, MemoryError) or not is_damage(error):
            raise
        if len(texts) > 1:
            for text in texts:
                _encodings(encode_batch, [text])
        cure = "remove what its vocabulary does not have, or use a tokenizer with an unknown token"
        raise UserError(f"{texts[0][:60]!r}: the tokenizer cannot encode this text ({error}); {cure}.") from error


def _character_encode_function(vocab: Mapping[str, int]) -> EncodeFunction:
    """The encode function of single characters, which a dictionary encodes faster than the `tokenizers` library."""

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[vocab.get(character, UNK) for character in text] for text in texts]

    return encode


def rust_unknown_function(inner: rust.Tokenizer) -> UnknownFunction:
    """The unknown function of a tokenizer of the `tokenizers` library, which returns the place of each token."""

    def unknown(text: str, unk: int | None) -> list[str]:
        (encoding,) = _encodings(inner.encode_batch, [text])
        places = zip(encoding.ids, _with_marks(text, encoding.offsets))
        return [text[start:stop].strip() or text[start:stop] for token, (start, stop) in places if token == unk]

    return unknown


def rust_offsets_function(inner: rust.Tokenizer) -> OffsetsFunction:
    """The offsets function of a tokenizer of the `tokenizers` library."""

    def offsets(texts: Sequence[str]) -> list[Spans]:
        found = _encodings(inner.encode_batch, texts)
        return [_with_marks(text, encoding.offsets) for text, encoding in zip(texts, found)]

    return offsets


def _with_marks(text: str, spans: Spans) -> Spans:
    """The places of tokens, with the marks that follow them and are in no token, such as the accent in e + \u0301.

    A tokenizer that joins a letter and its mark, or leaves the mark out, gives the place of the letter alone.
    """
    if text.isascii():
        return spans
    inside = {at for start, end in spans for at in range(start, end)}

    def extended(end: int) -> int:
        while end < len(text) and end not in inside and unicodedata.category(text[end])[0] == "M":
            end += 1
        return end

    return [(start, extended(end)) for start, end in spans]


def check_vocab(tokenizer: Tokenizer, vocab: int, path: Path) -> None:
    """Check that the model has a row for every id. It may have more rows: vocabularies are padded."""
    special = tokenizer.special_tokens
    roles = [(role, vars(special)[role]) for role in ("pad", "bos", "eos", "unk", "mask", "prefix", "suffix")]
    roles += [(role, token) for role in ("separator", "sentinels") for token in vars(special)[role]]
    for role, token in roles:
        if token is not None and (type(token) is not int or token not in range(vocab)):  # config.json may have 1.0
            raise UserError(
                f"{path}: its special token `{role}` has the id {token}, but the model's vocabulary {vocab:,}; "
                "correct the ids in config.json and the tokenizer files."
            )
    if tokenizer.size > vocab:
        raise UserError(
            f"{path}: the tokenizer has {tokenizer.size:,} ids, but the model's vocabulary {vocab:,}; "
            "give the tokenizer files that the model was trained with."
        )


def _from_rust(inner: rust.Tokenizer) -> Tokenizer:
    """Our Tokenizer around one of the `tokenizers` library. Raises ValueError unless `train_tokenizer` made it."""
    vocab = inner.get_vocab()
    names = sorted(vocab, key=vocab.__getitem__)
    if vocab[names[-1]] != len(names) - 1:  # first: the library has a place for every id up to the last in its JSON
        raise ValueError(f"it has {len(names):,} tokens, but ids up to {vocab[names[-1]]:,}")
    if len(set(vocab.values())) < len(names):
        raise ValueError("two of its tokens have the same id")
    inner.no_truncation()
    inner.no_padding()
    pipeline, added = _pipeline(inner), list(inner.get_added_tokens_decoder())
    kind = next((kind for kind in KINDS if _pipeline(_untrained(kind)) == pipeline), None)
    if kind is None:
        raise ValueError("it splits text in another way")
    specials = _special_names(kind)
    first = len(specials)  # the first token of a text, or the mask, or a sentinel
    masks = added[: bool(added) and names[added[0]] != sentinel(0)]
    sentinels = tuple(added[len(masks) :])
    ordered = added == list(range(first, first + len(added)))
    ordered &= [names[token] for token in sentinels] == [sentinel(number) for number in range(len(sentinels))]
    if tuple(names[:first]) != specials or not ordered:
        raise ValueError("its ids have another order")
    # The text of each token. Words and sub-words (not bytes) begin with a space; that of the first is removed.
    unknown = _surface("word" if kind in WORDS else "char", UNKNOWN)
    surfaces = [b"", b"", b"", unknown][:first] + [_surface(kind, name) for name in names[first:]]
    special_tokens = OUR_SPECIAL_TOKENS if first > UNK else replace(OUR_SPECIAL_TOKENS, unk=None)
    if masks:
        special_tokens = replace(special_tokens, mask=masks[0], prefix=BOS, suffix=EOS)
    special_tokens = replace(special_tokens, sentinels=sentinels)
    for token in added:
        surfaces[token] = _surface("char" if kind == "char" else "word", names[token])  # it stripped the space
    shown = [display_bytes(bytes_of(name)) if kind == "byte-bpe" else name for name in names[first:]]
    return Tokenizer(
        kind=kind,
        special_tokens=special_tokens,
        encode_function=_character_encode_function(vocab)
        if kind == "char" and not added
        else rust_encode_function(inner),
        unknown_function=rust_unknown_function(inner),
        detokenizer=ConcatDetokenizer(surfaces, b" " if kind in (*WORDS, "bpe") else b""),
        display_names=[*(name.replace(" ", "") for name in specials), *map(printable, shown)],
        export_files=lambda: _export_files(inner, kind),
        serialize=lambda: inner.to_str(pretty=True),
        offsets_function=rust_offsets_function(inner),
    )


def _export_files(inner: rust.Tokenizer, kind: str) -> dict[str, bytes]:
    """The files of one of our tokenizers for `transformers`: with a decoder, and the roles of special tokens."""
    state: dict[str, Any] = json.loads(inner.to_str())
    spaced = decoders.Metaspace(SPACE, prepend_scheme="always")
    by_kind: dict[str, Any] = {"char": decoders.Fuse(), "bpe": spaced, "byte-bpe": decoders.ByteLevel()}
    if kind in by_kind:
        state["decoder"] = json.loads(by_kind[kind].__getstate__())
    roles = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), _special_names(kind)))
    added = [token["content"] for token in state["added_tokens"]]
    sentinels = [name for name in added if name in map(sentinel, range(len(added)))]
    roles |= dict(zip(["mask_token"], (name for name in added if name not in sentinels)))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings |= roles | ({"additional_special_tokens": sentinels} if sentinels else {})
    files = {"tokenizer.json": state, "tokenizer_config.json": settings}
    return {name: json.dumps(content, indent=2, ensure_ascii=False).encode() for name, content in files.items()}


def _untrained(kind: str) -> rust.Tokenizer:
    """An untrained tokenizer: the normalizer and pre-tokenizer of each kind."""
    if kind == "bpe":
        inner = rust.Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
        # Always prepend, even before a space: the decoder removes exactly one.
        spaces = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), *spaces])
        inner.pre_tokenizer = pre_tokenizers.Split(rust.Regex(BPE_SPLIT), "isolated")
        return inner
    if kind == "byte-bpe":
        inner = rust.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return inner
    inner = rust.Tokenizer(models.WordLevel(unk_token=SPECIALS[UNK]))
    if kind == "word-eos":
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("\n", f" {LINE_END} ")])
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    elif kind in WORDS:
        lower = [normalizers.Lowercase()] if kind == "word-lower" else []
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), *lower]) if lower else normalizers.NFC()
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        inner.pre_tokenizer = pre_tokenizers.Split(rust.Regex(r"[\s\S]"), "isolated")
    return inner


def _pipeline(inner: rust.Tokenizer) -> dict[str, Any]:
    """What training does not change, of all that decides on ids: normalizer, pre-tokenizer, options of the model."""
    state: dict[str, Any] = json.loads(inner.to_str())
    options = {name: value for name, value in state["model"].items() if name not in ("vocab", "merges")}
    return {"normalizer": state["normalizer"], "pre_tokenizer": state["pre_tokenizer"], "model": options}


def _special_names(kind: str) -> tuple[str, ...]:
    """The special tokens at the start of a vocabulary; byte-level sub-words have no unk."""
    return SPECIALS[:UNK] if kind == "byte-bpe" else SPECIALS


def _surface(kind: str, name: str) -> bytes:
    """The bytes that a token adds to the text."""
    if kind == "byte-bpe":
        return bytes_of(name)
    if kind == "word-eos" and name == LINE_END:
        return b"\n"
    text = f" {name}" if kind in WORDS else name.replace(SPACE, " ") if kind == "bpe" else name
    return text.encode()
