"""Words of a text in order, for word vectors: the settings of the data, the field, and what training reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import Batch
from regard.data.example import Corpus, Tokens
from regard.data.fields import TextField
from regard.data.flat import Values, digest
from regard.data.streams import examples_of, open_text
from regard.data.synthetic import check_sizes
from regard.data.text_files import Report
from regard.data.tokenizers import LINE_END, SPECIALS, Tokenizer, train_tokenizer
from regard.errors import UserError

AT_ONCE = 2**20  # tokens that are looked at together

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Words:
    """Your own text by words, for word vectors: any text file. A word ends at whitespace, a context at a line end."""

    tasks: ClassVar[tuple[str, ...]] = ("words",)
    tokens: ClassVar[Tokens] = "word-eos"

    train: str = ""  # the text; nothing of it is held out
    min_count: int = 5  # a word that occurs less often has no vector and is left out of the text
    vocab: int = 1_000_000  # the largest size of the vocabulary
    sample_mb: int = 0  # megabytes, spread over a larger text, that words are counted in; 0: all

    def load(self, report: Report | None = None) -> Corpus:
        if not self.train:
            raise UserError("data.train is not set; give the text with data.train=FILE")
        check_sizes(self, {"min_count": 1, "vocab": 6, "sample_mb": 0})
        return Corpus(examples_of(open_text(self.train, report)), [], [])


class WordText(TextField):
    """A text by words, with a token for the end of a line. Words that are too rare have no token."""

    @classmethod
    def fit(cls, values: Iterable[str], name: str, data: Any) -> Self:
        tokenizer = train_tokenizer("word-eos", values, data.vocab, least=data.min_count)
        if tokenizer.size <= first_word(tokenizer):
            cure = "give data.min_count=1, or a longer text" if data.min_count > 1 else "give a text with words in it"
            raise UserError(f"data.min_count={data.min_count}: no word of the text occurs so often; {cure}.")
        return cls(tokenizer)


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The words of a tokenizer of words by id, special tokens included, exactly as its text has them."""
    ids: dict[str, int] = json.loads(tokenizer.serialize())["model"]["vocab"]
    return sorted(ids, key=ids.__getitem__)


def first_word(tokenizer: Tokenizer) -> int:
    """The id of the first word: special tokens, and the end of a line if it has a token, come before."""
    return len(SPECIALS) + (tokenizer.pieces([len(SPECIALS)]) == [LINE_END] if tokenizer.size > len(SPECIALS) else 0)


class Sentences:
    """The words of a text in order. Part n of an epoch has `budget` tokens; the parts of an epoch are the text."""

    dropped = 0  # no line is too long
    unit = "words"  # what is counted for the speed of training

    def __init__(
        self, ids: Values, first: int, budget: int, seed: int, key: str = "", report: Report | None = None
    ) -> None:
        self._ids, self.first, self.budget, self.seed, self._key = ids, first, budget, seed, key
        self.report = report  # is called while the text is counted
        spans = ((at, at + AT_ONCE) for at in range(0, len(ids), AT_ONCE))
        if not any(bool((np.diff(self.words(*span)[1]) == 0).any()) for span in spans):
            cure = "give a longer text, or data.min_count=1"
            raise UserError(f"data.train: no line has two words that have vectors, so there is no context; {cure}.")

    @property
    def digest(self) -> str:
        """The identity of the text: the key of its token file, or the SHA-256 of its ids."""
        return self._key or digest(self._ids)

    def __len__(self) -> int:
        """The parts of an epoch."""
        return -(-len(self._ids) // self.budget)

    @property
    def nbytes(self) -> int:
        """The bytes of the ids."""
        return self._ids.nbytes

    @property
    def tokens(self) -> int:
        """The tokens of the text, rare words and line ends included."""
        return len(self._ids)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of a part."""
        return [(1, min(self.budget, len(self._ids)))]

    def span(self, step: int) -> tuple[int, int]:
        """The first token of the part that a step reads, and the end of the part."""
        start = step % len(self) * self.budget
        return start, min(start + self.budget, len(self._ids))

    def words(self, start: int, stop: int) -> tuple[Ids, Ids]:
        """The words among the tokens from `start` to `stop`, and the number of the line of each."""
        ids = self._ids[start:stop].astype(np.int64)
        lines = np.cumsum(ids == self.first - 1)  # the token before the first word is the end of a line
        real = ids >= self.first
        return ids[real], lines[real]

    def count_words(self, step: int) -> int:
        """The number of words of the part that a step reads, without rare words and line ends."""
        return int((self._ids[slice(*self.span(step))] >= self.first).sum())

    def line_ends(self, start: int, stop: int) -> int:
        """The number of line ends among the tokens from `start` to `stop`."""
        return int((self._ids[start:stop] == self.first - 1).sum())

    def counts(self, size: int) -> Ids:
        """How often each of `size` ids occurs in the text; 0 for what is no word."""
        total = np.zeros(size, np.int64)
        for at in range(0, len(self._ids), AT_ONCE):
            total += np.bincount(self._ids[at : at + AT_ONCE], minlength=size)
        total[: self.first] = 0
        return total

    def batch(self, step: int) -> Batch:
        """The words of the part that a step reads, as one row."""
        words, _ = self.words(*self.span(step))
        tokens = torch.from_numpy(words)[None]
        return Batch({"tokens": tokens}, {"tokens": torch.ones_like(tokens, dtype=torch.bool)}, {"tokens": len(words)})

    def part(self, number: int, parts: int) -> Iterator[Batch]:
        """The batches of one of so many parts."""
        first, last = (n * len(self) // parts for n in (number, number + 1))
        return map(self.batch, range(first, last))
