"""What every corpus is made of: examples, and three sequences of them.

An example is a frozen dataclass with an attribute for each column. A task names the columns that it needs
(`Task.fields`), and a corpus gives examples that have them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, overload

from numpy.typing import ArrayLike

Unit = Literal["char", "word"]
Direction = Literal["forward", "backward", "both"]  # the order in which a model reads a text
Tokens = Literal["char", "word", "bpe", "byte-bpe", "word-eos", "word-lower"]  # what a text may be split into


T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence whose items are made when they are used. A subclass has `__len__` and `item`."""

    @abstractmethod
    def item(self, number: int) -> T:
        """The item of this number, from 0."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        numbers = range(len(self))[index]
        return [self.item(number) for number in numbers] if isinstance(numbers, range) else self.item(numbers)


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
    task: str = ""  # the prefix that names the task, if a corpus has several; each is then measured apart

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


Parts = tuple[Any, ...]  # the parts of a text; or several such tuples, which a model reads one by one


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two texts, or one text, and their class."""

    text: Parts  # (first, second), or both orders of them; or (text,)
    label: str


@dataclass(frozen=True, slots=True)
class RatedPair:
    """Two texts and a number, such as their similarity."""

    text: Parts  # (first, second), or both orders of them
    number: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A context with each of several choices, of which one is right."""

    text: Parts  # ((context, choice), (context, choice), …)
    label: int  # the place of the right choice, from 0


@dataclass(frozen=True, slots=True)
class RelatedTexts:
    """Two texts that belong together, or a number that states how similar they are."""

    first: str
    second: str
    number: float | None = None
    negative: str | None = None  # a text that does not belong to the first one; empty: this pair has none

    @property
    def text(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.first, self.second) if self.negative is None else (self.first, self.second, self.negative)


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


class Asked(NamedTuple):
    """A question, a passage, and the characters `span` of the passage that answer it; None: it has no answer."""

    question: str
    passage: str
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage, and the accepted answers; none: the passage does not answer it."""

    question: str
    passage: str
    answers: tuple[tuple[str, int], ...] = ()  # the text of each, and its first character in the passage
    id: str = ""
    begin: int = 0  # if the passage is a window of a longer one: its first character there

    @property
    def answered(self) -> bool:
        """Whether the passage has the answer."""
        return bool(self.answers)

    @property
    def text(self) -> Asked:
        """What a model reads, and the first of the answers."""
        if not self.answers:
            return Asked(self.question, self.passage)
        text, start = self.answers[0]
        return Asked(self.question, self.passage, (start, start + len(text)))


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
