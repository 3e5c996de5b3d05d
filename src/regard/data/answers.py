"""Questions with passages as rows of numbers, and long passages as overlapping windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from regard.data.example import Asked, Question
from regard.data.fields import Checks, Field, StoredField
from regard.data.flat import Values
from regard.data.joined import JoinedText, cut_longest
from regard.data.tokenizers import WITH_SPACE, Spans
from regard.errors import UserError

FIRST, LAST, IN_PASSAGE = 1, 2, 4  # marks of a token: the first of the answer, the last of it, a token of the passage
WINDOW, STRIDE = 384, 128  # of data without such settings, such as that of a public checkpoint


class AnswerText(JoinedText):
    """A question and a passage as one input, (T, 3): the id, the segment and the marks of each token.

    A value is an `Asked`. The marks are a sum of FIRST, LAST and IN_PASSAGE. If the passage has no answer, no token is
    marked as its first or last.
    """

    @classmethod
    def texts(cls, value: Any) -> Sequence[str]:
        return tuple(value[:2])

    def encode(self, values: Sequence[Any]) -> list[Values]:  # type: ignore[override]
        values = [Asked(*value) for value in values]
        places = self.tokenizer.offsets([value.passage for value in values])
        texts = self.parts([value[:2] for value in values])
        return [self._marked(parts, spans, value.span) for parts, spans, value in zip(texts, places, values)]

    def _marked(self, parts: Sequence[list[int]], places: Spans, span: tuple[int, int] | None) -> Values:
        """The row of a question and a passage, given the places of the passage's tokens and the answer."""
        question, passage = cut_longest(parts, self.room_for(2))
        found = np.pad(self.join([question, passage]), ((0, 0), (0, 1)))  # a column of marks
        first = self.special_before + len(question)
        found[first : first + len(passage), 2] = IN_PASSAGE
        if span is not None:
            start, end = span
            inside = [at for at, (a, b) in enumerate(places) if max(a, start) < min(b, end)]
            if inside and inside[-1] < len(passage):  # the answer was not cut
                found[first + inside[0], 2] |= FIRST
                found[first + inside[-1], 2] |= LAST
        return found

    @property
    def special_before(self) -> int:
        """The special tokens before the passage: the prefix and the separator."""
        ids, _ = self.tokenizer.special_tokens.join_input([[], [-1]])
        return ids.index(-1)


@dataclass(frozen=True)
class AnsweredField(StoredField):
    """Whether a question has an answer: 1 or 0; and how many of the training questions have none."""

    unanswered: float  # the share of training questions without an answer; a model learns "no answer" if it is above 0
    stored: ClassVar[Checks] = {"unanswered": lambda share: isinstance(share, int | float) and 0 <= share < 1}
    content = "the share of unanswered questions"
    size: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    @classmethod
    def fit(cls, values: Iterable[bool], name: str, data: Any) -> Self:
        answered = np.fromiter(values, bool)
        if not answered.any():
            raise UserError("data: no training question has an answer; name the column of answers: data.answer=COLUMN")
        return cls(float(1 - answered.mean()))

    def encode(self, values: Sequence[bool]) -> list[list[int]]:
        return [[int(value)] for value in values]


def windows(
    fields: Mapping[str, Field], examples: Sequence[Question], data: Any, longest: int | None
) -> Iterator[list[Question]]:
    """The windows of each passage: overlapping parts of it that fit with the question into `data.window` tokens.

    A window moves on by about `data.stride` tokens: it begins and ends between words, so that its words have the tokens
    that they have in the whole passage. It has the first answer of its question if all of it is in the window; else it
    has none. A question of more than half a window loses its end. `longest` is the most tokens that a model reads.
    """
    field = fields["text"]
    assert isinstance(field, AnswerText)
    window, stride = getattr(data, "window", WINDOW), getattr(data, "stride", STRIDE)
    room = replace(field, longest=window if longest is None else min(window, longest)).room_for(2) or 1
    spaced = field.tokenizer.kind in WITH_SPACE
    questions = field.tokenizer.offsets([one.question for one in examples])
    passages = field.tokenizer.offsets([one.passage for one in examples])
    for example, question, places in zip(examples, questions, passages):
        most = max(room - len(question), room // 2, 1)
        left = max(room - min(len(places), most), 0)  # for the question
        one = example
        if len(question) > left:
            kept = _word_start(_begins(one.question, question), left, 0) or left
            one = replace(one, question=one.question[: question[kept - 1][1] if kept else 0])
        if len(places) <= most:
            yield [one]
        else:
            yield [_part(one, start, end) for start, end in _cut(one.passage, places, most, min(stride, most), spaced)]


def _cut(passage: str, places: Spans, most: int, stride: int, spaced: bool) -> Iterator[tuple[int, int]]:
    """The first character of each window, and the one after its last; a window has at most `most` tokens.

    `spaced`: the space before a word is part of its tokens.
    """
    begins, first = _begins(passage, places), 0
    while True:
        end = min(first + most, len(places))
        if end < len(places):
            end = _word_start(begins, end, first) or end
        start = places[first][0]
        while not spaced and passage[start : start + 1].isspace():  # the tokenizer puts a space before a text itself
            start += 1
        yield start, places[end - 1][1]
        if end == len(places):
            return
        following = min(first + stride, end)
        first = _word_start(begins, following, first) or following


def _begins(text: str, places: Spans) -> list[bool]:
    """Whether each token begins a word."""
    ends = [0, *(end for _, end in places)]  # the end of the token before each
    return [text[a : a + 1].isspace() or text[end:a].isspace() for (a, _), end in zip(places, ends)]


def _word_start(begins: Sequence[bool], last: int, after: int) -> int | None:
    """The last token up to `last`, and after `after`, that begins a word; None: there is none."""
    return next((at for at in range(last, after, -1) if begins[at]), None)


def _part(one: Question, start: int, end: int) -> Question:
    """The characters `start` to `end` − 1 of a passage as a passage of its own."""
    inside = tuple((text, at - start) for text, at in one.answers[:1] if start <= at and at + len(text) <= end)
    return replace(one, passage=one.passage[start:end], answers=inside, begin=one.begin + start)
