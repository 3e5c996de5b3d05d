"""Span corruption: spans of a text are hidden, and become the target (Raffel et al. 2020, section 3.1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.data.flat import Lengths, Rows, Values
from regard.errors import UserError


@dataclass(frozen=True)
class CorruptSpans:
    """Hide spans of a text (Raffel et al. 2020, section 3.1.4): a sentinel stands for each, and the target has them.

    The target is each sentinel with its span, and one more sentinel, which ends the last span. All ways to place the
    hidden spans are equally likely, with a token or more between two of them. (In the published code a text begins with
    a token that is shown and ends with a hidden span, which would hide the end of every short text.) The special tokens
    around a text stay.
    """

    sentinels: tuple[int, ...]
    before: int = 0  # special tokens before a text
    after: int = 0  # special tokens after a text
    begin: tuple[int, ...] = ()  # special tokens before a target
    end: tuple[int, ...] = ()  # special tokens after a target
    fraction: float = 0.15  # of the tokens are hidden, rounded
    span: float = 3.0  # tokens of a hidden span, on average

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """A source has a sentinel in the place of each hidden span; a target has the rest, and a last sentinel."""
        whole = lengths["source"]
        hidden, spans = self.counts(whole)
        target = hidden + spans + 1 + len(self.begin) + len(self.end)
        return {"source": whole - hidden + spans, "target": np.where(whole > 0, target, 0)}

    def counts(self, whole: Lengths) -> tuple[Lengths, Lengths]:
        """How many tokens of each text are hidden, and in how many spans: a function of its length alone.

        A text that needs more spans than there are sentinels has fewer and longer ones.
        """
        hidden, spans = self._wanted(whole)
        return hidden, np.minimum(spans, len(self.sentinels) - 1)

    def _wanted(self, whole: Lengths) -> tuple[Lengths, Lengths]:
        """The counts, if there were any number of sentinels."""
        tokens = (whole - self.before - self.after).clip(0)
        hidden = np.minimum(np.rint(tokens * self.fraction).astype(np.int64).clip(1), (tokens - 1).clip(0))
        possible = np.minimum(hidden, tokens - hidden + 1)  # with a shown token between two hidden spans
        return hidden, np.minimum(np.rint(hidden / self.span).astype(np.int64).clip(1), possible)

    def check(self, lengths: Mapping[str, Lengths]) -> None:
        """Refuse texts of which every one has more hidden spans than there are sentinels for them."""
        spans, most = self._wanted(lengths["source"])[1], len(self.sentinels) - 1
        if len(spans) and (least := int(spans.min())) > most:
            tokens = int(lengths["source"].min()) - self.before - self.after
            needs = f"a text of {tokens} tokens has {least} hidden spans, which need {least + 1} sentinels"
            cure = "raise objective.span, or give shorter texts: lower data.window"
            raise UserError(f"objective.span={self.span:g}: {needs}, and the tokenizer has {most + 1}; {cure}.")

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Rows with a corrupted `source`, and the `target` that belongs to it."""
        whole, text = rows.lengths("source"), rows.flat("source").astype(np.int64)
        hidden_count, spans = self.counts(whole)
        row_of = np.repeat(np.arange(len(rows)), whole)
        place = np.arange(len(text)) - np.repeat(np.cumsum(whole) - whole, whole)  # in its row
        inside = (place >= self.before) & (place < (whole - self.after)[row_of])
        # A row is a shown part, then a hidden and a shown part in turn; its first and its last part may be empty.
        tokens = np.bincount(row_of[inside], minlength=len(rows))
        shown_parts = _cut(tokens - hidden_count + 2, spans + 1, random)
        last = np.cumsum(spans + 1) - 1
        shown_parts[last - spans] -= 1
        shown_parts[last] -= 1
        is_hidden = np.concatenate([np.arange(2 * count + 1) % 2 == 1 for count in spans.tolist()])
        parts = np.empty(len(is_hidden), np.int64)
        parts[~is_hidden], parts[is_hidden] = shown_parts, _cut(hidden_count, spans, random)
        hidden = np.zeros(len(text), bool)
        hidden[inside] = np.repeat(is_hidden, parts)
        first = hidden & ~(np.append(False, hidden[:-1]) & (place > 0))  # the first token of each hidden span
        span_of: Values = np.cumsum(first) - np.repeat(np.cumsum(spans) - spans, whole)  # of each token, from 1 on
        marks = np.array(self.sentinels)

        after = self.lengths({"source": whole})
        source = np.where(first, marks[(span_of - 1).clip(0)], text)[~hidden | first]
        ends = np.cumsum(after["target"])
        starts = ends - after["target"]
        target = np.empty(ends[-1], np.int64)
        # A hidden token stands after those before it in its row, and after the sentinels up to its own.
        rank = np.cumsum(hidden) - np.repeat(np.cumsum(hidden_count) - hidden_count, whole) - 1
        at = (starts[row_of] + len(self.begin) + rank + span_of)[hidden]
        target[at] = text[hidden]
        target[at[first[hidden]] - 1] = marks[span_of[first] - 1]
        real = whole > 0
        target[ends[real] - len(self.end) - 1] = marks[spans[real]]
        for number, token in enumerate(self.begin):
            target[starts[real] + number] = token
        for number, token in enumerate(self.end):
            target[ends[real] - len(self.end) + number] = token
        spots = {"source": (source, after["source"]), "target": (target, after["target"])}
        return Rows(
            {name: (values, np.cumsum(lengths) - lengths, lengths) for name, (values, lengths) in spots.items()}
        )


def _cut(totals: Lengths, parts: Lengths, random: np.random.Generator) -> Lengths:
    """Numbers cut at random into parts that are at least 1, all ways being equally likely: the parts, end to end."""
    count = int(totals.sum())
    row_of = np.repeat(np.arange(len(totals)), totals)
    begins = np.cumsum(totals) - totals
    place = np.arange(count) - begins[row_of]
    draw = np.where(place == 0, 0.0, (1 + random.random(count)) / 2)  # the first place always begins a part
    rank = np.empty(count, np.int64)
    rank[np.argsort(row_of + draw / 2)] = place
    return np.bincount(np.cumsum(rank < parts[row_of]) - 1, minlength=int(parts.sum()))
