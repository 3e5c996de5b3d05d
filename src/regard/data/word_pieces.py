"""Texts whose words have a tag each, as the sub-words that a Transformer reads."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from regard.data.fields import Field, InputText
from regard.data.flat import Values
from regard.errors import UserError


@dataclass(frozen=True, eq=False)
class PieceText(InputText):
    """A text as the sub-words of its words, (T,). Words are separated by spaces.

    The number of the first sub-word of a word is its id. The number of any other sub-word, and of a special token, is
    −1 − id (in Python: ~id): it begins no word, and has no tag. Tokens that are words are numbered in the same way.
    """

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int32)

    def encode(self, values: Sequence[str]) -> list[Values]:  # type: ignore[override]
        if self.tokenizer.reads_backward:
            raise UserError("model.direction=backward: a tagger reads its words in their order; leave it out.")
        texts, special = [value.split() for value in values], self.tokenizer.special_tokens
        inner = self._pieces({word for text in texts for word in text}, first=False)
        first = self._pieces({text[0] for text in texts if text}, first=True)
        found = []
        for text in texts:
            pieces = [(inner if place else first)[word] for place, word in enumerate(text)]
            numbers = [number for ids in pieces for number in (ids[0], *(~one for one in ids[1:]))]
            before, after = ([] if one is None else [~one] for one in (special.prefix, special.suffix))
            found.append(np.array([*before, *numbers, *after], self.dtype))
        return found

    def shortened(self, values: Sequence[str], longest: int) -> list[Values]:
        after = len(self.wrap([])) - (self._ends[0] is not None)
        cut = longest - after
        return [
            row if len(row) <= longest else np.concatenate([row[:cut], row[len(row) - after :]])
            for row in self.encode(values)
        ]

    def arrays(self, texts: Sequence[str], ids: Sequence[list[int]]) -> list[Values]:
        return self.encode(texts)

    def _pieces(self, words: Iterable[str], first: bool) -> dict[str, list[int]]:
        """The sub-words of each word, at the beginning of a text if `first`; a word without any has an unknown one."""
        words, special = list(words), self.tokenizer.special_tokens
        nothing = special.pad if special.unk is None else special.unk
        encoded = self.tokenizer.encode_batch(words) if first else self.tokenizer.encode_words(words, first=False)
        return {word: ids or [nothing] for word, ids in zip(words, encoded)}

    def windows(self, row: Values, longest: int | None) -> list[tuple[Values, slice]]:
        """The parts of a row that a model reads: their numbers, and which of their words have their tags from there.

        Two windows share about a quarter of their tokens. A shared word has its tag from the window in which it is
        farther from an end. A row that is not too long is one window.
        """
        if longest is None or len(row) <= longest:
            return [(row, slice(None))]
        before, after = (int(one is not None) for one in self._ends)
        body, room = row[before : len(row) - after], max(longest - before - after, 1)
        begins = [*np.flatnonzero(body >= 0).tolist(), len(body)]
        spans = word_windows([end - start for start, end in pairwise(begins)], room, room // 4)
        middles = [0, *((end + start) // 2 for (_, end), (start, _) in pairwise(spans)), len(begins) - 1]
        return [
            (
                np.concatenate([row[:before], body[begins[start] : begins[end]][:room], row[len(row) - after :]]),
                slice(kept - start, until - start),
            )
            for (start, end), (kept, until) in zip(spans, pairwise(middles))
        ]

    @property
    def _ends(self) -> tuple[int | None, int | None]:
        return self.tokenizer.special_tokens.prefix, self.tokenizer.special_tokens.suffix


def word_windows(lengths: Sequence[int], room: int, shared: int) -> list[tuple[int, int]]:
    """Windows over words of these lengths: the first word of each, and the word after its last.

    A window has as many words as fit into `room`, and at least one. It begins with the words at the end of the window
    before it that are not longer than `shared` together.
    """
    ends, spans, start = [0, *accumulate(lengths)], list[tuple[int, int]](), 0
    while True:
        end = max(start + 1, bisect_right(ends, ends[start] + room) - 1)
        spans.append((start, min(end, len(lengths))))
        if end >= len(lengths):
            return spans
        start = max(start + 1, bisect_left(ends, ends[end] - shared))


def sentence_parts(
    fields: Mapping[str, Field], examples: Sequence[Any], data: Any, longest: int | None
) -> Iterator[list[Any]]:
    """The parts of sentences with tags that have more tokens than a model reads, each with as many words as fit."""
    field = fields["text"]
    if not isinstance(field, PieceText) or longest is None:
        yield from ([one] for one in examples)
        return
    room = max(longest - len(field.wrap([])), 1)
    for one, row in zip(examples, field.encode([one.text for one in examples])):
        if len(row) <= longest:
            yield [one]
            continue
        words, begins = one.text.split(), [*np.flatnonzero(row >= 0).tolist(), len(row)]
        spans = word_windows([min(end - start, room) for start, end in pairwise(begins)], room, 0)
        yield [replace(one, text=" ".join(words[a:b]), tags=one.tags[a:b]) for a, b in spans]
