"""Running text: one long array of ids, and windows of it to read.

A window has no begin and no end mark, since a text goes on before it and after it; every place in it is real, and all
batches have one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from regard.data.batches import IGNORED, Batch
from regard.data.download import CURE
from regard.data.example import Corpus, Text, Tokens
from regard.data.fields import TextField
from regard.data.files import find_data, opened, read_text
from regard.data.flat import Lengths, Values, digest
from regard.data.shapes import FILLER
from regard.data.text_files import Report, TextExamples, TextFile, stretches
from regard.data.token_files import SMALL, encode_pieces, encode_text, token_file, token_key, token_path
from regard.data.tokenizers import PAD, Tokenizer
from regard.errors import UserError

HELD_OUT = 0.1  # the end of a text that is for validation where no other text is given
CHARACTERS = {"char": 1, "word": 6}  # of a token, roughly; 4 of a sub-word


@dataclass(frozen=True)
class Book:
    """A person's own running text: one file, read from its first character to its last, lines and all."""

    tasks: ClassVar[tuple[str, ...]] = ("running",)

    train: str = ""  # the text to learn from
    valid: str = ""  # the text to choose the best step by; where empty, the last tenth of the training text
    test: str = ""  # the text to report on; may stay empty
    tokens: Tokens = "char"  # what the text is cut into
    vocab: int = 8000  # the most tokens
    window: int = 0  # tokens that are read at a time; 0: as many as the model can
    valid_tokens: int = 1_000_000  # the most tokens to choose the best step by, roughly; 0: no limit
    sample_mb: int = 64  # megabytes of a larger text that the tokenizer is trained on, from all over it; 0: all

    def load(self, report: Report | None = None) -> Corpus:
        """The parts of the text: read where the file is small, left on the disk where it is large."""
        if not self.train:
            raise UserError("data.train is not set; say what to learn from with data.train=FILE")
        for name in ("valid_tokens", "sample_mb"):
            if getattr(self, name) < 0:
                raise UserError(f"data.{name}={getattr(self, name)}: give 1 or more, or 0 for no limit.")
        train, valid = _open(self.train, report), _open(self.valid, report) if self.valid else None
        most = self.valid_tokens * CHARACTERS.get(self.tokens, 4)
        if valid is None:
            train, valid = _held_out(train, most)
        else:
            valid = _beginning(valid, most)
        return Corpus(_examples(train), _examples(valid), _examples(_open(self.test, report)) if self.test else [])


@dataclass(frozen=True)
class Shakespeare(Book):
    """A million characters of Shakespeare's plays (Karpathy 2015), in $REGARD_DATA/tinyshakespeare/input.txt."""

    train: str = ""  # another text to learn from, instead of the plays

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else ("tinyshakespeare/input.txt",)

    def load(self, report: Report | None = None) -> Corpus:
        return Book.load(replace(self, train=self.train or str(find_data(self.files[0], CURE))), report)


Running = Book | Shakespeare


def window_of(data: Running, longest: int | None) -> int:
    """How many tokens are read at a time: what the data says, or else all that the model can."""
    if data.window < 0:
        raise UserError(f"data.window={data.window}: give 1 or more, or 0 for as many as the model reads.")
    if longest is not None and data.window > longest:
        raise UserError(f"data.window={data.window}: the model reads at most {longest} tokens; give that or less.")
    if not (data.window or longest):
        raise UserError("data.window=0: the model reads any number of tokens; say how many at a time.")
    return data.window or longest or 0


def without_bos_eos(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of running text: nothing is put before a text or behind it."""
    return replace(tokenizer, special_tokens=replace(tokenizer.special_tokens, bos=None, eos=None))


def joined(examples: Iterable[Text]) -> str:
    """The text that the stretches of a corpus make up."""
    return "".join(example.text for example in examples)


encode_again = lru_cache(maxsize=2)(encode_text)  # a validation text is encoded once


def encode_running(tokenizer: Tokenizer, examples: Iterable[Text], report: Report | None = None) -> tuple[Values, str]:
    """The ids of the text that examples make up; for a text on disk, the ids of its token file, and its key."""
    if isinstance(examples, TextExamples):
        return token_file(examples.text, tokenizer, report), token_key(examples.text, tokenizer)
    return encode_again(tokenizer, joined(examples)), ""


def encode_sample(tokenizer: Tokenizer, examples: Iterable[Text]) -> tuple[Values, float] | None:
    """The ids of a sample of a text on the disk, and how much of the text it is; None where its ids are there."""
    if not isinstance(examples, TextExamples) or token_path(examples.text, tokenizer).is_file():
        return None
    pieces = list(examples.text.sample(SMALL))
    part = sum(len(piece.encode()) for piece in pieces) / len(examples.text)
    return np.concatenate(list(encode_pieces(tokenizer, pieces))), min(1.0, part)


def tokenizer_sample(data: Running, examples: TextExamples, report: Report | None = None) -> Iterator[Text]:
    """The texts that the tokenizer is trained on: `data.sample_mb` megabytes from all over a text on disk."""
    text = examples.text
    size, done = min(data.sample_mb * 2**20 or len(text), len(text)), 0
    for piece in text.sample(size):
        yield from map(Text, stretches(piece))
        done += len(piece.encode())
        if report:
            report("training the tokenizer", min(done, size), size)


@dataclass(frozen=True, eq=False)
class RunningText(TextField):
    """A running text: nothing stands before it or after it, so its tokenizer has no bos and no eos."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", without_bos_eos(self.tokenizer))


class Windows:
    """Batches of a text for training: windows that begin anywhere. `batch(step)` depends on seed, rank and step alone.

    Each has `budget // window` rows. Of several ranks, rank r has batches r, r + ranks, … of the one order, so that
    two ranks read what one rank reads in twice as many batches.
    """

    dropped = 0  # every token is in some window

    def __init__(
        self, text: Values, window: int, budget: int, seed: int, rank: int = 0, ranks: int = 1, key: str = ""
    ) -> None:
        assert 0 <= rank < ranks
        _check(text, window, budget)
        self._text, self._window, self._rows = text, window, budget // window
        self._seed, self._rank, self._ranks, self._key = seed, rank, ranks, key

    @property
    def digest(self) -> str:
        """What identifies the text: the key of its token file, or the SHA-256 of its ids."""
        return self._key or digest(self._text)

    def __len__(self) -> int:
        """Batches of each rank that together have as many tokens as the text."""
        return max(1, round(len(self._text) / (self._rows * self._window * self._ranks)))

    @property
    def nbytes(self) -> int:
        """The bytes of the ids."""
        return self._text.nbytes

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The only shape (rows, width) there is."""
        return [(self._rows, self._window)]

    def batch(self, step: int) -> Batch:
        """The windows of any step."""
        rng = np.random.default_rng((self._seed, step * self._ranks + self._rank))
        starts = rng.integers(len(self._text) - self._window, size=self._rows)
        return _read(self._text, starts, np.full(self._rows, self._window), self._window)


def in_order(text: Values, window: int, budget: int) -> Iterator[Batch]:
    """Batches of a text for judging: windows side by side, so that every token but the first is a target once.

    The last window is padded, and the last batch filled up with empty rows: still one shape.
    """
    rows = max(1, budget // window)
    targets = len(text) - 1
    starts = np.arange(0, targets, window)
    starts = np.append(starts, np.full(-len(starts) % rows, targets))  # from there on, nothing is left to say
    for chunk in starts.reshape(-1, rows):
        yield _read(text, chunk, np.minimum(targets - chunk, window), window)


def _read(text: Values, starts: Lengths, lengths: Lengths, window: int) -> Batch:
    """Windows of a text: what is read, and as the targets the same one place further on."""
    places = starts[:, None] + np.arange(window + 1)  # (B, T + 1)
    real = np.arange(window) < lengths[:, None]  # (B, T)
    ids = text[np.minimum(places, len(text) - 1)].astype(np.int64)
    rows = np.where(lengths > 0, np.arange(len(starts)), FILLER)
    count = int(lengths.sum())
    return Batch(
        fields={
            "tokens": torch.from_numpy(np.where(real, ids[:, :-1], PAD)),
            "targets": torch.from_numpy(np.where(real, ids[:, 1:], IGNORED)),
        },
        real={"tokens": torch.from_numpy(real)},
        counts={"tokens": count, "targets": count},
        rows=rows.tolist(),
    )


def _check(text: Values, window: int, budget: int) -> None:
    if budget < window:
        raise UserError(f"plan.batch_tokens={budget}: less than one window of {window} tokens; give that or more.")
    if len(text) <= window:
        cure = f"give a longer data.train, or data.window={max(1, len(text) - 1)} or less"
        raise UserError(f"data: the text has {len(text)} tokens, not more than one window of {window}; {cure}.")


def _open(path: str, report: Report | None) -> str | TextFile:
    """A text: read where its file is small, left on the disk where it is large."""
    file = Path(path).expanduser()
    with opened(file) as packed:
        small = len(packed.read(SMALL + 1)) <= SMALL
    if small:
        return read_text(file)
    text = TextFile(file, report=report)
    text.check(report)
    return text


def _held_out(text: str | TextFile, most: int) -> tuple[str | TextFile, str | TextFile]:
    """The text to learn from, and its end: a tenth, but not more than `most` characters or bytes, if that is given."""
    cut = int(len(text) * (1 - HELD_OUT))
    cut = max(cut, len(text) - most) if most else cut
    if isinstance(text, str):
        return text[:cut], text[cut:]
    cut = text.line_start(text.start + cut)
    return text.part(text.start, cut), text.part(cut)


def _beginning(text: str | TextFile, most: int) -> str | TextFile:
    """The first `most` characters or bytes of a text, or all of it."""
    if not most or len(text) <= most:
        return text
    return text[:most] if isinstance(text, str) else text.part(text.start, text.line_start(text.start + most))


def _examples(text: str | TextFile) -> Sequence[Text]:
    """The text in stretches."""
    if isinstance(text, TextFile) and len(text) > SMALL:
        return TextExamples(text)
    whole = text if isinstance(text, str) else text.read()
    return [Text(stretch) for stretch in stretches(whole)]
