"""Public corpora of running text for language models, and the word of `regard train hello`.

The loaders read the files under their public names. `<eos>` of PTB and WikiText is the end of a line: the tokens
`word-eos` have a token for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from regard.data.example import Corpus, Text, Tokens
from regard.data.files import find_data, read_text
from regard.data.streams import Book, examples_of, open_text
from regard.data.tables import read_table
from regard.data.text_files import Report, TextFile
from regard.errors import UserError

Order = Literal["random", "contiguous"]
LAMBADA = "lambada/lambada_test.jsonl.gz"


@dataclass(frozen=True)
class Ptb(Book):
    """The Penn Treebank by words (Mikolov et al. 2010), in $REGARD_DATA/ptb: 10,000 words, <unk> and <eos> included."""

    names: ClassVar[tuple[str, ...]] = tuple(f"ptb/ptb.{part}.txt.gz" for part in ("train", "valid", "test"))

    tokens: Tokens = "word-eos"  # the kind of tokens
    vocab: int = 300_000  # the largest size of the vocabulary: all words of the file
    window: int = 70  # tokens of a window; 0: the model's context
    order: Order = "contiguous"  # order of the windows; contiguous: each continues the one before
    valid_tokens: int = 0  # about the largest number of tokens of the validation text; 0: no limit

    @property
    def files(self) -> tuple[str, ...]:
        return () if self.train else self.names

    def load(self, report: Report | None = None) -> Corpus:
        if self.train:
            return Book.load(self, report)
        train, valid, test = (str(find_data(name)) for name in self.files)
        return Book.load(replace(self, train=train, valid=self.valid or valid, test=self.test or test), report)


@dataclass(frozen=True)
class PtbChar(Ptb):
    """The Penn Treebank by characters (Mikolov et al. 2012), in $REGARD_DATA/ptb; a line end is the token <eos>.

    The space before the first word of a line is left out; the space after its last word is kept.
    """

    tokens: Tokens = "char"  # the kind of tokens
    window: int = 150  # tokens of a window; 0: the model's context

    def load(self, report: Report | None = None) -> Corpus:
        if self.train:
            return Book.load(self, report)
        texts = [read_text(find_data(name)).splitlines(keepends=True) for name in self.files]
        train, valid, test = (examples_of("".join(line.removeprefix(" ") for line in lines)) for lines in texts)
        return Corpus(train, valid, test)


@dataclass(frozen=True)
class WikiText2(Ptb):
    """Wikipedia articles, two million words (Merity et al. 2017), in $REGARD_DATA/wikitext2."""

    names: ClassVar[tuple[str, ...]] = tuple(f"wikitext2/wiki.{part}.tokens" for part in ("train", "valid", "test"))


@dataclass(frozen=True)
class WikiText103(Ptb):
    """Wikipedia articles, 103 million words (Merity et al. 2017), in $REGARD_DATA/wikitext-103."""

    names: ClassVar[tuple[str, ...]] = tuple(f"wikitext-103/wiki.{part}.tokens" for part in ("train", "valid", "test"))

    sample_mb: int = 0  # megabytes, spread over a larger text, that the tokenizer is trained on; 0: all
    window: int = 140  # tokens of a window; 0: the model's context


@dataclass(frozen=True)
class Text8(Ptb):
    """The first 10⁸ characters of Wikipedia in lower case (Mahoney 2006), in $REGARD_DATA/text8/text8.

    Split as in Mikolov et al. 2012: the first 90 % are for training, then 5 % for validation and 5 % for testing.
    """

    names: ClassVar[tuple[str, ...]] = ("text8/text8",)

    tokens: Tokens = "char"  # the kind of tokens
    window: int = 180  # tokens of a window; 0: the model's context

    def load(self, report: Report | None = None) -> Corpus:
        if self.train:
            return Book.load(self, report)
        text = open_text(str(find_data(self.files[0])), report)
        cuts = [round(len(text) * part) for part in (0, 0.9, 0.95, 1)]
        parts: list[str | TextFile] = [
            text[start:stop] if isinstance(text, str) else text.part(text.start + start, text.start + stop)
            for start, stop in pairwise(cuts)
        ]
        train, valid, test = map(examples_of, parts)
        return Corpus(train, valid, test)


@dataclass(frozen=True)
class Hello(Book):
    """The word "hello": a model reads h, e, l, l and predicts e, l, l, o. The vocabulary has four letters."""

    train: str = ""  # another training text, instead of the word
    window: int = 4  # letters that are read

    def load(self, report: Report | None = None) -> Corpus:
        return Book.load(self, report) if self.train else Corpus([Text("hello")], [Text("hello")])


def lambada(path: str) -> Sequence[Any]:
    """Passages whose last word is to be predicted (Paperno et al. 2016): the column `text` of a table, or lines."""
    if path == "lambada":
        path = str(find_data(LAMBADA))
    texts = [Text(row["text"].strip()) for _, row in read_table(path, {"text": ""})]
    if not texts:
        raise UserError(f"{path}: has no texts; give lines of text, or a table with the column text.")
    return texts
