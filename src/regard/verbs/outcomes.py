"""What a model says to one text, and how likely it finds its original answer: to compare variants of the model.

A subject holds a text and the original answer, that of the unchanged model. `outcomes(copies)` reads the text so many
times in one batch; the caller has made each copy a variant of the model. A copy gives the natural logarithms of the
probabilities of the pieces of the original answer, and says whether it would give the same answer itself.

- A translator reads the source and its original target, by teacher forcing: log p(token | source, the tokens before
  it), the end included if the target has one. Greedy decoding gives the same target if and only if at each place of it
  the likeliest token, of those that may be generated, is its token.
- A language model reads the text: log p(token | the tokens before it) of its own tokens, without the end. Its answer
  is the likeliest next token.
- A masked model: log p of the originally likeliest token at each [MASK]. In a text without [MASK], each token is hidden
  in turn, and log p is that of the true one. Its answer is the likeliest token at each of these places.
- ELECTRA: log p of the original decision about each token, original or replaced.
- A classifier: log p of the class; with several labels, of the decision about each; of choices, of the choice.
- A tagger: log p(tag | the text, the tags before it) of each word.
- A regression model answers a number, without log p.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from regard.verbs.loaded import Loaded

TOP = 5  # the likeliest candidates of a place
Given = str | tuple[str, ...]  # a text, or a text of several parts


@dataclass(frozen=True)
class Candidate:
    """A token, a class or a tag that a model may answer."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Outcome:
    """What one variant of a model says to a text."""

    answer: str  # its own; of a translator "" if it is not the original one, because that takes a search
    same: bool  # whether its answer is the original one
    logps: list[float]  # of each piece of the original answer
    places: list[list[Candidate]]  # the likeliest of each place that it fills, or of its classes
    pieces: list[str] = field(default_factory=list)  # of its own answer: tokens, or words with their tags
    number: float | None = None  # of a regression model


class Subject(Protocol):
    """A text that variants of a model answer."""

    pieces: list[str]  # of the original answer
    keys: dict[str, int]  # how many keys the attention of each part has
    tokens: int  # of one copy

    def outcomes(self, copies: int) -> list[Outcome]: ...


def chosen_logps(model: Loaded, logps: Tensor, tokens: Tensor) -> list[float]:
    """The log-probabilities of these tokens (T,) in the rows of logps (T, V)."""
    found: Sequence[float] = model.check_finite(logps.gather(1, tokens[:, None])[:, 0]).tolist()
    return list(found)
