"""Text to numbers and back: characters, words or sub-words, over the `tokenizers` library.

Our own kinds share four ids: padding, begin, end, unknown. Sub-words are byte-pair encoding (Sennrich et al. 2016,
§3.2) with spaces written as '▁' (Kudo & Richardson 2018, §3.2), so that text comes back with its case, punctuation and
spaces as they were. Made of bytes instead of characters (Radford et al. 2019, §2.2), they spell every text there is:
nothing is unknown, and the fourth id is a byte's.

Words and sub-words are brought to Unicode NFC first, so that é is one character however it was typed. Characters and
bytes are left alone: of characters, position i of the text is token i, and alignments count on it.

Tokenizers of public checkpoints are the same `Tokenizer`, read by `data/public.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import tokenizers as rust
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.checkpoint import write_text
from regard.data.example import Tokens
from regard.data.special_tokens import SpecialTokens
from regard.data.spelling import SPACE, UNKNOWN, Joined, Spelling, bytes_of, printable, shown, text_of, words_of
from regard.errors import UserError, nearest

PAD, BOS, EOS, UNK = 0, 1, 2, 3
OUR_SPECIAL_TOKENS = SpecialTokens(pad=PAD, bos=BOS, eos=EOS, unk=UNK)

# Each holds a space and is longer than a character, which nothing cut from a text is: no text passes for one of them.
SPECIALS = ("< pad >", "< bos >", "< eos >", "< unk >")
KINDS: tuple[str, ...] = get_args(Tokens)

# Sub-words never cross from letters to punctuation, so that "house" and "house." share their pieces.
BPE_CUTS = rf"{SPACE}?[\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}?[^{SPACE}\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}"

Cut = Callable[[Sequence[str]], list[list[int]]]  # texts → the ids of each


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A vocabulary: `encode` and `decode`, what each token looks like and belongs to, and what frames a text."""

    kind: str  # what texts are cut into, one of KINDS; of public ones: bytes, wordpiece, suffix, sentencepiece
    special_tokens: SpecialTokens
    cut: Cut
    spelling: Spelling
    captions: Sequence[str]  # one printable string per token
    own: Callable[[], Mapping[str, bytes]]  # the files that other tools read it from, by name
    stored: Callable[[], str]  # what `save` writes

    @property
    def size(self) -> int:
        """How many ids there are, holes included."""
        return len(self.captions)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without begin and end."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, in parallel."""
        return self.cut(list(texts))

    def wrap_input(self, tokens: list[int]) -> list[int]:
        """The tokens of a text with what surrounds it where it is read whole: [CLS] … [SEP], the end of a source."""
        return self.special_tokens.wrap_input(tokens)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; padding, begin and end say nothing.

        Undoes `encode` where every character was seen in training: exactly for characters and bytes, up to NFC for
        our sub-words (whose '▁' comes back as a space), up to the spacing for words and word pieces.
        """
        return text_of(self.spelling(tokens))

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One printable string per token, for the axes of a picture: ␣ is a space, ▁ a space before a sub-word."""
        return [self.captions[token] if token < self.size else f"<{token}>" for token in tokens]

    def words(self, tokens: Iterable[int]) -> list[int]:
        """For each token the index of the whitespace-delimited word it is part of.

        -1 for what is part of none: spaces, padding, begin, end. A token over several words counts for its first.
        """
        return words_of(self.spelling(tokens))

    def files(self) -> dict[str, bytes]:
        """What to put beside exported weights, by name: of a public tokenizer the very files it was read from."""
        return dict(self.own())

    def save(self, path: str | Path) -> None:
        """Write the one file that a run keeps of a tokenizer; whole or not at all."""
        write_text(Path(path), self.stored())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read what `save` wrote of one of ours: a `tokenizer.json` that any user of `tokenizers` can read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{path}: cannot read the tokenizer ({error.strerror}); give the tokenizer.json of a run."
            ) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not a tokenizer (not UTF-8 text); give the tokenizer.json of a run.") from error
        try:
            return _ours(rust.Tokenizer.from_str(text))
        except Exception as error:  # the library raises bare Exception for every kind of damage
            raise UserError(
                f"{path}: not a tokenizer of Regard, or damaged ({error}); give the tokenizer.json of a run."
            ) from error


def train_tokenizer(kind: str, lines: Iterable[str], vocab: int, mask: str | None = None) -> Tokenizer:
    """The tokenizer of a text: the same lines give the same tokenizer.

    `vocab` bounds the size, the special tokens included. Characters and words keep the most frequent ones; sub-words
    always keep every character seen, or every byte there is, even where that alone is more than `vocab`. `mask` is how
    a token that was taken away is written in a text, such as "[MASK]", for models that fill it in; these read a text
    between begin and end.
    """
    if kind not in KINDS:
        raise UserError(f'"{kind}" is not a kind of tokens.{nearest(kind, KINDS)}')
    specials = [*_specials(kind), *([mask] if mask else [])]
    if vocab <= len(specials):
        least = len(specials) + (256 if kind == "byte-bpe" else 1)  # every byte is a token of its own
        raise UserError(f"data.vocab={vocab} leaves no room for tokens of the text; give at least {least}.")
    trainer_of = trainers.WordLevelTrainer if kind in ("char", "word") else trainers.BpeTrainer
    trainer: Any = trainer_of(vocab_size=vocab, special_tokens=specials, show_progress=False)
    if kind == "byte-bpe":
        trainer.initial_alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner = _blank(kind)
    inner.train_from_iterator(lines, trainer)
    # Training also registers the special tokens to be searched for in raw text, where only the mask may be found. It
    # takes the spaces away that it brings back: the one before it, and the one after where each word is given one.
    state = json.loads(inner.to_str())
    state["added_tokens"] = [
        token | {"lstrip": kind != "char", "rstrip": kind in ("word", "bpe")}
        for token in state["added_tokens"]
        if token["content"] == mask
    ]
    return _ours(rust.Tokenizer.from_str(json.dumps(state)))


def rust_cut(inner: rust.Tokenizer) -> Cut:
    """How a tokenizer of the `tokenizers` library cuts texts."""

    def cut(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in inner.encode_batch_fast(list(texts), add_special_tokens=False)]

    return cut


def check_vocab(tokenizer: Tokenizer, vocab: int, path: Path) -> None:
    """Refuse a tokenizer with ids that a model has no row for. Fewer are normal: vocabularies are padded."""
    for role, token in vars(tokenizer.special_tokens).items():
        if token is not None and token not in range(vocab):
            raise UserError(
                f"{path}: its special token `{role}` has the id {token}, but the model's vocabulary {vocab:,}; "
                "mend the ids in config.json and the tokenizer files."
            )
    if tokenizer.size > vocab:
        raise UserError(
            f"{path}: the tokenizer has {tokenizer.size:,} ids, but the model's vocabulary {vocab:,}; "
            "give the tokenizer files that the model was trained with."
        )


def _ours(inner: rust.Tokenizer) -> Tokenizer:
    """A tokenizer as we train them; any other is refused."""
    vocab = inner.get_vocab()
    names = sorted(vocab, key=vocab.__getitem__)
    kind, masks = _kind(inner), list(inner.get_added_tokens_decoder())
    specials = _specials(kind)
    first = len(specials)  # the first token of a text, or the mask
    if tuple(names[:first]) != specials or vocab[names[-1]] != len(names) - 1 or masks not in ([], [first]):
        raise ValueError("its tokens are numbered in another way")
    # What each token adds to the text. Words, and sub-words but for bytes, bring a space; the first one is dropped.
    surfaces = [b"", b"", b"", UNKNOWN.encode()][:first] + [_surface(kind, name) for name in names[first:]]
    special_tokens = OUR_SPECIAL_TOKENS if first > UNK else replace(OUR_SPECIAL_TOKENS, unk=None)
    if masks:
        special_tokens = replace(special_tokens, mask=masks[0], prefix=BOS, suffix=EOS)
        surfaces[masks[0]] = _surface("char" if kind == "char" else "word", names[masks[0]])  # it took the space away
    return Tokenizer(
        kind=kind,
        special_tokens=special_tokens,
        cut=rust_cut(inner),
        spelling=Joined(surfaces, b" " if kind in ("word", "bpe") else b""),
        captions=[name.replace(" ", "") for name in specials] + [_caption(kind, name) for name in names[first:]],
        own=lambda: _handed(inner, kind),
        stored=lambda: inner.to_str(pretty=True),
    )


def _handed(inner: rust.Tokenizer, kind: str) -> dict[str, bytes]:
    """One of our tokenizers as `transformers` opens it: with a decoder, and special tokens named by role."""
    state: dict[str, Any] = json.loads(inner.to_str())
    spaced = decoders.Metaspace(SPACE, prepend_scheme="always")
    ways: dict[str, Any] = {"char": decoders.Fuse(), "bpe": spaced, "byte-bpe": decoders.ByteLevel()}
    if kind in ways:
        state["decoder"] = json.loads(ways[kind].__getstate__())
    roles = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), _specials(kind)))
    roles |= dict(zip(["mask_token"], (token["content"] for token in state["added_tokens"])))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **roles}
    files = {"tokenizer.json": state, "tokenizer_config.json": settings}
    return {name: json.dumps(content, indent=2, ensure_ascii=False).encode() for name, content in files.items()}


def _blank(kind: str) -> rust.Tokenizer:
    """An untrained tokenizer: how each kind prepares a text and cuts it."""
    if kind == "bpe":
        inner = rust.Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
        # Prepend always, even before a space: the decoder drops exactly one.
        spaces = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), *spaces])
        inner.pre_tokenizer = pre_tokenizers.Split(rust.Regex(BPE_CUTS), "isolated")
        return inner
    if kind == "byte-bpe":
        inner = rust.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return inner
    inner = rust.Tokenizer(models.WordLevel(unk_token=SPECIALS[UNK]))
    if kind == "word":
        inner.normalizer = normalizers.NFC()
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        inner.pre_tokenizer = pre_tokenizers.Split(rust.Regex(r"[\s\S]"), "isolated")
    return inner


def _kind(inner: rust.Tokenizer) -> str:
    """Which kind a tokenizer is: the one whose blank prepares and cuts text as this one does."""
    kinds = [kind for kind in KINDS if _outline(_blank(kind)) == _outline(inner)]
    if not kinds:
        raise ValueError("it cuts text in another way")
    return kinds[0]


def _outline(inner: rust.Tokenizer) -> tuple[object, ...]:
    """Everything about a tokenizer but what it has learnt."""
    state = json.loads(inner.to_str())
    return state["model"]["type"], state["normalizer"], state["pre_tokenizer"]


def _specials(kind: str) -> tuple[str, ...]:
    """The first tokens of a vocabulary; where every byte is a token, nothing is unknown."""
    return SPECIALS[:UNK] if kind == "byte-bpe" else SPECIALS


def _surface(kind: str, name: str) -> bytes:
    """What a token adds to the text."""
    if kind == "byte-bpe":
        return bytes_of(name)
    text = f" {name}" if kind == "word" else name.replace(SPACE, " ") if kind == "bpe" else name
    return text.encode()


def _caption(kind: str, name: str) -> str:
    """What a token is shown as."""
    return printable(shown(bytes_of(name)) if kind == "byte-bpe" else name)
