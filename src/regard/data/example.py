"""What every corpus is made of: examples, and three sequences of them.

An example is a frozen dataclass with an attribute for each column. A task names the columns that it needs
(`Task.fields`), and a corpus gives examples that have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import ArrayLike

Unit = Literal["char", "word"]
Direction = Literal["forward", "backward", "both"]  # the order in which a model reads a text
Tokens = Literal["char", "word", "bpe", "byte-bpe", "word-eos", "word-lower"]  # what a text may be split into


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its target, for translation and its relatives."""

    source: str
    target: str
    # Gold alignment: (source unit, target unit), 0-based. None: the pair is not aligned. An empty set: it is, and
    # nothing corresponds.
    links: frozenset[tuple[int, int]] | None = None
    unit: Unit = "word"  # what the links join
    others: tuple[str, ...] = ()  # further accepted targets, such as other pronunciations of the same word

    @property
    def alignment(self) -> tuple[Unit, frozenset[tuple[int, int]]] | None:
        """What the links join, and the links; None: the pair is not aligned."""
        return None if self.links is None else (self.unit, self.links)


@dataclass(frozen=True, slots=True)
class Text:
    """A text alone, for language models and masked language models."""

    text: str

    @property
    def source(self) -> str:
        """The text as the source of a task that makes its targets of it, by hiding parts."""
        return self.text

    @property
    def target(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its class."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class MultiLabelledText:
    """A text and its labels, of which there may be any number."""

    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RatedText:
    """A text and a number, such as a rating."""

    text: str
    number: float


@dataclass(frozen=True, slots=True)
class TaggedText:
    """A text, and a class for each of its tokens; if all classes are single characters, `tags` may be a string."""

    text: str
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class LabelledValues:
    """A sequence of numbers or vectors, and its class."""

    values: ArrayLike
    label: str


@dataclass(frozen=True, slots=True)
class TaggedValues:
    """A sequence of numbers or vectors, and a class for each step."""

    values: ArrayLike
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class NumberedValues:
    """A sequence of numbers or vectors, and a number."""

    values: ArrayLike
    number: float


@dataclass(frozen=True, slots=True)
class Music:
    """The keys that sound at each step, and those of the next step: both (T, keys) of 0 and 1."""

    values: ArrayLike
    keys: ArrayLike


@dataclass(frozen=True, slots=True)
class Region:
    """The part of an image that a word of a caption names."""

    word: int  # the index of the word in the caption, of words between spaces
    box: tuple[float, float, float, float]  # left, top, right, bottom, as fractions of the width and the height


@dataclass(frozen=True, slots=True)
class Captioned:
    """An image and its caption."""

    # The path of an image file, its content (bytes), or a uint8 array (H, W, 3). A clip has frames side by side.
    image: Any
    target: str
    others: tuple[str, ...] = ()  # further captions of the same image
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """The three parts of a data set; a part that is not given is empty.

    The examples of a running text are passages of it, in order: joined they are the text.
    """

    train: Sequence[Any] = field(default_factory=list)  # may stay on disk until it is used
    valid: Sequence[Any] = field(default_factory=list)
    test: Sequence[Any] = field(default_factory=list)
    warnings: tuple[str, ...] = ()  # what is probably a mistake in the files, with its remedy

    def __repr__(self) -> str:
        return f"<Corpus: {len(self.train):,} train, {len(self.valid):,} valid, {len(self.test):,} test>"
