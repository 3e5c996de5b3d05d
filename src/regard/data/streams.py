"""Running text: one long array of ids, and windows of it to read.

A window has no begin and no end mark, since a text goes on before it and after it; every place in it is real, and all
batches have one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch

from regard.data.batches import IGNORED, Batch
from regard.data.download import CURE
from regard.data.example import Corpus, Text, Tokens
from regard.data.fields import TextField
from regard.data.files import find_data, read_text
from regard.data.flat import Lengths, Values, digest, id_type
from regard.data.shapes import FILLER
from regard.data.tokenizers import PAD, Tokenizer
from regard.errors import UserError

HELD_OUT = 0.1  # the end of a text that is for validation where no other text is given
STRETCH = 500  # characters after which a stretch ends at the next line's end
LONGEST = 2000  # characters of a stretch where no line ends


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

    def load(self) -> Corpus:
        if not self.train:
            raise UserError("data.train is not set; say what to learn from with data.train=FILE")
        train = read_text(self.train)
        learnt, valid = (train, read_text(self.valid)) if self.valid else _halves(train)
        return _corpus(learnt, valid, read_text(self.test) if self.test else "")


@dataclass(frozen=True)
class Shakespeare(Book):
    """A million characters of Shakespeare's plays (Karpathy 2015), in $REGARD_DATA/tinyshakespeare/input.txt."""

    train: str = ""  # another text to learn from, instead of the plays

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else ("tinyshakespeare/input.txt",)

    def load(self) -> Corpus:
        return Book.load(replace(self, train=self.train or str(find_data(self.files[0], CURE))))


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


def unmarked(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of running text: nothing is put before a text or behind it."""
    return replace(tokenizer, special_tokens=replace(tokenizer.special_tokens, bos=None, eos=None))


def joined(examples: Iterable[Text]) -> str:
    """The text that the stretches of a corpus make up."""
    return "".join(example.text for example in examples)


def encode_text(tokenizer: Tokenizer, text: str) -> Values:
    """A whole text as one array of ids."""
    if tokenizer.kind != "char":
        return np.asarray(tokenizer.encode(text), id_type(tokenizer.size))
    # Each different character is looked up once, instead of a million times.
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    different, places = np.unique(points, return_inverse=True)
    ids = [ids[0] for ids in tokenizer.encode_batch([chr(point) for point in different.tolist()])]
    return np.asarray(ids, id_type(tokenizer.size))[places]


encode_again = lru_cache(maxsize=2)(encode_text)  # for texts that one comes back to, as validation does


@dataclass(frozen=True, eq=False)
class RunningText(TextField):
    """A running text: nothing stands before it or after it, so its tokenizer has no bos and no eos."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", unmarked(self.tokenizer))


class Windows:
    """Batches of a text for training: windows that begin anywhere. `batch(step)` depends on seed, rank and step alone.

    Each has `budget // window` rows. Of several ranks, rank r has batches r, r + ranks, … of the one order, so that
    two ranks read what one rank reads in twice as many batches.
    """

    dropped = 0  # every token is in some window

    def __init__(self, text: Values, window: int, budget: int, seed: int, rank: int = 0, ranks: int = 1) -> None:
        assert 0 <= rank < ranks
        _check(text, window, budget)
        self._text, self._window, self._rows = text, window, budget // window
        self._seed, self._rank, self._ranks = seed, rank, ranks

    def __len__(self) -> int:
        """Batches of each rank that together have as many tokens as the text."""
        return max(1, round(len(self._text) / (self._rows * self._window * self._ranks)))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The only shape (rows, width) there is."""
        return [(self._rows, self._window)]

    @property
    def digest(self) -> str:
        """The SHA-256 of the text's tokens: a run is resumed only with the same ones."""
        return digest(self._text)

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


def _halves(text: str) -> tuple[str, str]:
    """The text to learn from, and its end."""
    cut = int(len(text) * (1 - HELD_OUT))
    return text[:cut], text[cut:]


def _corpus(train: str, valid: str, test: str) -> Corpus:
    return Corpus(*([Text(one) for one in stretches(text)] for text in (train, valid, test)))


def stretches(text: str) -> Iterator[str]:
    """A text in parts that can be shown: paragraphs, or as many lines as make up some hundred characters."""
    held = ""
    for line in text.splitlines(keepends=True):
        while len(held) + len(line) > LONGEST:
            room = LONGEST - len(held)
            yield held + line[:room]
            held, line = "", line[room:]
        held += line
        if held.strip() and (not line.strip() or len(held) >= STRETCH):
            yield held
            held = ""
    if held:
        yield held
