"""Corpora that exist: a person's own files, and public sets in the folder that REGARD_DATA names.

Each is a frozen dataclass whose `load` gives a `Corpus`. Where the parts are ours to choose they follow from hashes,
never from chance or order: the same files always give the same parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

from regard.data.download import CURE
from regard.data.example import Corpus, LabelledText, Pair, Text, Tokens
from regard.data.files import find_data, read_columns, read_lines, read_pairs, read_parallel
from regard.data.large import open_parallel
from regard.errors import UserError

HELD_OUT = 0.02  # the part of the training examples that becomes the validation set where none is given
HELD_OUT_MOST = 2000


@dataclass(frozen=True)
class Pairs:
    """A person's own pairs: files of source<TAB>target, or two parallel files "src.txt,tgt.txt"; .gz and .xz too."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    train: str = ""  # the pairs to learn from
    valid: str = ""  # the pairs to choose the best step by; where empty, 2 % of the training pairs are held out
    test: str = ""  # the pairs to report on; may stay empty
    source_tokens: Tokens = "bpe"  # what a source is cut into
    target_tokens: Tokens = "bpe"  # the same for targets
    vocab: int = 8000  # the most tokens on either side
    joint: bool = False  # one vocabulary for both sides, learnt from both

    def load(self) -> Corpus:
        return _load(self.train, self.valid, self.test, _read_pairs)


@dataclass(frozen=True)
class Lines:
    """A person's own text for a language model: one example a line, as it stands."""

    tasks: ClassVar[tuple[str, ...]] = ("language", "masked")

    train: str = ""  # the text to learn from
    valid: str = ""  # the text to choose the best step by; where empty, 2 % of the training lines are held out
    test: str = ""  # the text to report on; may stay empty
    tokens: Tokens = "char"  # what a line is cut into
    vocab: int = 8000  # the most tokens

    def load(self) -> Corpus:
        return _load(self.train, self.valid, self.test, _read_text)


@dataclass(frozen=True)
class Labelled:
    """A person's own texts with a class each: files of label<TAB>text."""

    tasks: ClassVar[tuple[str, ...]] = ("classify",)

    train: str = ""  # the texts to learn from
    valid: str = ""  # the texts to choose the best step by; where empty, 2 % of the training texts are held out
    test: str = ""  # the texts to report on; may stay empty
    tokens: Tokens = "word"  # what a text is cut into
    vocab: int = 8000  # the most tokens

    def load(self) -> Corpus:
        return _load(self.train, self.valid, self.test, _read_labelled)


@dataclass(frozen=True)
class Multi30k:
    """Captions of pictures in several languages (Elliott et al. 2016), in $REGARD_DATA/multi30k."""

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source: str = "de"  # the language that is read: de, en or fr
    target: str = "en"  # the language that is said
    source_tokens: Tokens = "bpe"  # what a source is cut into
    target_tokens: Tokens = "bpe"  # the same for targets
    vocab: int = 8000  # the most tokens on either side
    joint: bool = False  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        parts, languages = ("train", "val", "test_2016_flickr"), (self.source, self.target)
        return tuple(f"multi30k/{part}.{language}.gz" for part in parts for language in languages)

    def load(self) -> Corpus:
        paths = [find_data(name, CURE) for name in self.files]
        return Corpus(*(read_parallel(*pair) for pair in zip(paths[::2], paths[1::2])))


@dataclass(frozen=True)
class Wmt14:
    """News and parliament, English and German (Bojar et al. 2014), in $REGARD_DATA/wmt14.

    Plain files `train`, `newstest2013` (for validation) and `newstest2014` (for the test), each with the ending of a
    language; 4.5 million pairs stay on the disk until they are asked for. --download brings the files that Luong et al.
    2015 prepared. Those are cut into words and punctuation with spaces, so that BLEU on them is tokenised BLEU, which
    is not to be held against that of plain text.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source: str = "en"  # the language that is read: en or de
    target: str = "de"  # the language that is said
    source_tokens: Tokens = "bpe"  # what a source is cut into
    target_tokens: Tokens = "bpe"  # the same for targets
    vocab: int = 37_000  # the most tokens on either side
    joint: bool = True  # one vocabulary for both sides, learnt from both

    @property
    def files(self) -> tuple[str, ...]:
        parts, languages = ("train", "newstest2013", "newstest2014"), (self.source, self.target)
        return tuple(f"wmt14/{part}.{language}" for part in parts for language in languages)

    def load(self) -> Corpus:
        paths = [find_data(name, CURE) for name in self.files]
        train = open_parallel(paths[0], paths[1])
        return Corpus(train, read_parallel(paths[2], paths[3]), read_parallel(paths[4], paths[5]))


@dataclass(frozen=True)
class GreekEnglish:
    """The New Testament, Greek and English, its words aligned by hand, in $REGARD_DATA/align_bible.

    A verse in twenty is for validation and one for the test, by the hash of its number.
    """

    tasks: ClassVar[tuple[str, ...]] = ("translate",)

    source_tokens: Tokens = "bpe"  # what a source is cut into
    target_tokens: Tokens = "bpe"  # the same for targets
    vocab: int = 8000  # the most tokens on either side

    def load(self) -> Corpus:
        path = find_data("align_bible/grc-eng.SBLGNT-BSB.manual.tsv.gz")
        train, valid, test = list[Pair](), list[Pair](), list[Pair]()
        for number, (name, source, target, links, *_) in read_columns(path, "id", "source", "target", "links"):
            try:
                pairs = (link.split("-") for link in links.split())
                gold = frozenset((int(i), int(j)) for i, j in pairs)
            except ValueError as error:
                raise UserError(f'{path}, line {number}: links must read "0-0 1-2 …", found {links[:40]!r}') from error
            part = {0: valid, 1: test}.get(_hash(name) % 20, train)
            part.append(Pair(source, target, links=gold))
        return Corpus(train, valid, test)


def hold_out(examples: list[Any]) -> tuple[list[Any], list[Any]]:
    """Split off a validation set of 2 %, at most 2,000 and at least one; equal texts never straddle the split."""
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for example in examples:
        groups[_text(example)].append(example)
    room = min(max(round(HELD_OUT * len(examples)), 1), HELD_OUT_MOST)
    held: set[str] = set()
    texts = sorted(groups, key=_hash)
    for text in texts:
        if len(groups[text]) <= room:
            held.add(text)
            room -= len(groups[text])
    held = held or {min(texts, key=lambda text: len(groups[text]))}  # every text is there too often: the rarest
    kept = [example for example in examples if _text(example) not in held]
    return kept, [example for example in examples if _text(example) in held]


def _load(train: str, valid: str, test: str, read: Callable[[str], list[Any]]) -> Corpus:
    """The corpus of three settings that name files; where there is no validation set, one is made."""
    if not train:
        raise UserError("data.train is not set; say what to learn from with data.train=FILE")
    settings = {"train": train, "valid": valid, "test": test}
    parts = {name: read(path) if path else [] for name, path in settings.items()}
    for name, path in settings.items():
        if path and not parts[name]:
            raise UserError(f"data.{name}={path}: no line is whole; give a file with at least one example.")
    if not valid:
        parts["train"], parts["valid"] = hold_out(parts["train"])
    if not parts["train"]:
        raise UserError(f"data.train={train}: too few to hold some out; add examples, or give data.valid=FILE")
    return Corpus(**parts)


def _read_pairs(path: str) -> list[Pair]:
    return [example for example in read_pairs(path) if example.source and example.target]


def _read_text(path: str) -> list[Text]:
    return [Text(line) for line in read_lines(path) if line.strip()]


def _read_labelled(path: str) -> list[LabelledText]:
    rows = read_columns(path, "label", "text")
    return [LabelledText(text, label) for _, (label, text, *_) in rows if label and text]


def _text(example: Any) -> str:
    """The input of an example: equal inputs stay together when some examples are held out."""
    text: str = example.source if isinstance(example, Pair) else example.text
    return text


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest())
