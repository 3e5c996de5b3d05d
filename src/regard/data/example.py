"""What every corpus is made of: an example, and three sequences of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["char", "word"]
Tokens = Literal["char", "word", "bpe", "byte-bpe"]  # what a text may be cut into


@dataclass(frozen=True)
class Example:
    """One thing to learn from: what is read, what is to be said, and what is known about both."""

    source: str
    target: str = ""
    # Gold alignment: (source unit, target unit), 0-based. None means nobody has aligned this example; the empty set
    # means nothing corresponds.
    links: frozenset[tuple[int, int]] | None = None
    unit: Unit = "word"  # what the links join
    # Further accepted targets, such as other pronunciations of the same word.
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """The three parts of a data set; a part that was not given is empty.

    Of running text the examples are stretches of it, in order: joined they are the text.
    """

    train: Sequence[Example] = field(default_factory=list)  # may stay on the disk until it is asked for
    valid: Sequence[Example] = field(default_factory=list)
    test: Sequence[Example] = field(default_factory=list)
