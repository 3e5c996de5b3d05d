"""Text to numbers and back: characters, words or sub-words, over the `tokenizers` library.

Every kind shares four ids: padding, begin, end, unknown. Sub-words are byte-pair encoding (Sennrich et al. 2016, §3.2)
with spaces written as '▁' (Kudo & Richardson 2018, §3.2), so that text comes back with its case, punctuation and spaces
as they were.

Words and sub-words are brought to Unicode NFC first, so that é is one character however it was typed. Characters are
left alone: there, position i of the text is token i, and alignments count on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers as rust
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.checkpoint import write_text
from regard.errors import UserError, nearest

PAD, BOS, EOS, UNK = 0, 1, 2, 3

# Each holds a space and is longer than a character, which nothing cut from a text is: no text passes for one of them.
SPECIALS = ("< pad >", "< bos >", "< eos >", "< unk >")
KINDS = ("char", "word", "bpe")
SPACE = "▁"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # how a character that was never seen comes back

# Sub-words never cross from letters to punctuation, so that "house" and "house." share their pieces.
BPE_CUTS = rf"{SPACE}?[\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}?[^{SPACE}\p{{L}}\p{{M}}\p{{N}}]+|{SPACE}"


class Tokenizer:
    """A trained vocabulary: `encode` and `decode`, and what each token looks like and belongs to."""

    def __init__(self, inner: rust.Tokenizer) -> None:
        vocab = inner.get_vocab()
        names = sorted(vocab, key=vocab.__getitem__)
        if tuple(names[: len(SPECIALS)]) != SPECIALS or vocab[names[-1]] != len(names) - 1:
            raise ValueError("its tokens are numbered in another way")
        self.kind = _kind(inner)
        self.size = len(names)
        self._inner = inner
        learnt = names[len(SPECIALS) :]
        # What each token adds to the text. Words and sub-words bring the space before them; the first one is dropped.
        self._surfaces = ["", "", "", *(_surface(self.kind, name) for name in (UNKNOWN, *learnt))]
        self._pieces = [name.replace(" ", "") for name in SPECIALS] + [_printable(name) for name in learnt]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without begin and end."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of many texts, in parallel."""
        return [encoding.ids for encoding in self._inner.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; padding, begin and end say nothing.

        Undoes `encode` where every character was seen in training: exactly for characters, up to NFC for sub-words
        (whose '▁' comes back as a space), up to the spacing for words.
        """
        text = "".join(self._surfaces[token] for token in tokens)
        return text if self.kind == "char" else text.removeprefix(" ")

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One printable string per token, for the axes of a picture: ␣ is a space, ▁ a space before a sub-word."""
        return [self._pieces[token] for token in tokens]

    def words(self, tokens: Iterable[int]) -> list[int]:
        """For each token the index of the whitespace-delimited word it is part of.

        -1 for what is part of none: spaces, padding, begin, end. A token over several words counts for its first.
        """
        indices, count, inside = [], 0, False
        for token in tokens:
            index = -1
            for character in self._surfaces[token]:
                count += not inside and not character.isspace()  # a word begins
                inside = not character.isspace()
                index = count - 1 if inside and index < 0 else index
            indices.append(index)
        return indices

    def save(self, path: str | Path) -> None:
        """Write the `tokenizer.json` that any user of the `tokenizers` library can read; whole or not at all."""
        write_text(Path(path), self._inner.to_str(pretty=True))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read what `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"{path}: cannot read the tokenizer ({error.strerror}); give the tokenizer.json of a run."
            ) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not a tokenizer (not UTF-8 text); give the tokenizer.json of a run.") from error
        try:
            return cls(rust.Tokenizer.from_str(text))
        except Exception as error:  # the library raises bare Exception for every kind of damage
            raise UserError(
                f"{path}: not a tokenizer of Regard, or damaged ({error}); give the tokenizer.json of a run."
            ) from error


def train_tokenizer(kind: str, lines: Iterable[str], vocab: int) -> Tokenizer:
    """The tokenizer of a text: the same lines give the same tokenizer.

    `vocab` bounds the size, the four special tokens included. Characters and words keep the most frequent ones;
    sub-words always keep every character seen, even where that alone is more than `vocab`.
    """
    if kind not in KINDS:
        raise UserError(f'"{kind}" is not a kind of tokens.{nearest(kind, KINDS)}')
    if vocab <= len(SPECIALS):
        raise UserError(f"vocab={vocab} leaves no room for tokens of the text; give at least {len(SPECIALS) + 1}.")
    trainer_of = trainers.BpeTrainer if kind == "bpe" else trainers.WordLevelTrainer
    inner = _blank(kind)
    inner.train_from_iterator(lines, trainer_of(vocab_size=vocab, special_tokens=list(SPECIALS), show_progress=False))
    # Training also registers the special tokens to be searched for in raw text, where ours must never be found.
    state = json.loads(inner.to_str())
    state["added_tokens"] = []
    return Tokenizer(rust.Tokenizer.from_str(json.dumps(state)))


def _blank(kind: str) -> rust.Tokenizer:
    """An untrained tokenizer: how each kind prepares a text and cuts it."""
    if kind == "bpe":
        inner = rust.Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
        # Prepend always, even before a space: the decoder drops exactly one.
        spaces = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        inner.normalizer = normalizers.Sequence([normalizers.NFC(), *spaces])
        inner.pre_tokenizer = pre_tokenizers.Split(rust.Regex(BPE_CUTS), "isolated")
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


def _surface(kind: str, name: str) -> str:
    """What a token adds to the text."""
    if kind == "word":
        return f" {name}"
    return name.replace(SPACE, " ") if kind == "bpe" else name


def _printable(name: str) -> str:
    """A token as one visible string: ␣ for a space, an escape for whatever else cannot be seen."""
    return "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in name)
