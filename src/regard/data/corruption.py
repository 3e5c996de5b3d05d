"""Changes to the rows of a batch before they are padded (`Corruption`): masks, pairs of sentences, links of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.batches import IGNORED, Corruption
from regard.data.boundaries import Flags, WordBounds
from regard.data.example import Unit
from regard.data.fields import Field, LinkField, TextField
from regard.data.flat import Lengths, Row, Rows, Values
from regard.data.tokenizers import SpecialTokens, Tokenizer
from regard.errors import UserError

ROUNDING = 1e-9  # the error of a product of a length and a fraction in float64, which must not round it up
WRAPPED = 2  # prefix and suffix stand around every text and are never masked
ROUNDS = 3  # how often `_choose_words` goes through the words of a text: a later round takes words that still fit
PARTNERS = 4  # how many other rows are searched for a second part that begins after the end of a sentence


@dataclass(frozen=True)
class Composed:
    """Several corruptions, one after the other."""

    parts: tuple[Corruption, ...]

    def check(self, lengths: Mapping[str, Lengths]) -> None:
        """Refuse what one of them refuses, given the lengths after those before it."""
        for part in self.parts:
            part.check(lengths)
            lengths = part.lengths(lengths)

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The lengths after all of them."""
        for part in self.parts:
            lengths = part.lengths(lengths)
        return lengths

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        for part in self.parts:
            rows = part(rows, random)
        return rows


@dataclass(frozen=True)
class MaskTokens(Corruption):
    """Mask some tokens of a text (Devlin et al. 2019, section 3.1): the others stay, and only these are targets.

    Most of the chosen places show the mask, some a random token and some the token itself: a model trained on masks
    alone would not learn to represent texts without any. With `words`, all tokens of a word are chosen together (whole
    words), never more of them than of single tokens. With `static`, the chosen places and what they show depend on the
    text alone: it has so many masks, one of which is drawn each time.
    """

    mask: int  # the id that replaces a token
    vocab: int  # ids from which random tokens are drawn
    special: tuple[int, ...]  # ids that are never masked
    fraction: float = 0.15  # of the tokens, special ones included, rounded up
    kept: float = 0.1  # of the chosen places show the token itself
    random: float = 0.1  # of the chosen places show a random token
    words: WordBounds | None = None  # where words begin; None: tokens are chosen one by one
    static: int = 0  # number of masks of a text; 0: new ones each time

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Rows with corrupted `text`, and `targets` that are IGNORED at all places but the chosen ones."""
        lengths, text = rows.lengths("text"), rows.flat("text").astype(np.int64)
        noise: np.random.Generator | RowNoise = random
        if self.static:
            noise = RowNoise(text, lengths, random.integers(self.static, size=len(rows)))
        special = np.zeros(self.vocab, dtype=bool)
        special[list(self.special)] = True
        counts, draw = masked_count(lengths, self.fraction), noise.random(len(text))
        if self.words is None:
            chosen = _choose_tokens(lengths, ~special[text], counts, draw)
        else:
            begins = self.words.begins(text, (np.cumsum(lengths) - lengths)[lengths > 0])
            chosen = _choose_words(lengths, ~special[text], begins, counts, draw)
        fate, drawn = noise.random(len(text)), noise.integers(self.vocab, size=len(text))
        shown = np.where(fate < self.random, drawn, self.mask)
        shown = np.where(chosen & (fate < 1 - self.kept), shown, text)
        return rows.replaced(text=shown, targets=np.where(chosen, text, IGNORED))


@dataclass(frozen=True)
class MaskAndDraw(Corruption):
    """Mask some tokens of a text, and draw a number from 0 to 1 for each place, as ``draws``.

    By its number a generator samples the token of a masked place (Clark et al. 2020, section 2). The number is drawn
    here, so that a batch has the same tokens on every device and at every evaluation.
    """

    mask: Corruption

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        masked = self.mask(rows, random)
        return masked.replaced(draws=random.random(int(masked.lengths("text").sum()), np.float32))


def masked_count(lengths: Lengths, fraction: float) -> Lengths:
    """The most places of a text that are chosen: a function of its length alone."""
    return np.minimum(np.ceil(lengths * fraction - ROUNDING).astype(np.int64), lengths - WRAPPED).clip(0)


def _choose_tokens(lengths: Lengths, eligible: Flags, counts: Lengths, draw: NDArray[np.float64]) -> Flags:
    """The eligible places of each row that were drawn first, as many as it has `counts`."""
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(row_of + np.where(eligible, draw / 2, 0.75))  # by row; eligible places first, in random order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return (rank < counts[row_of]) & eligible


def _choose_words(
    lengths: Lengths, eligible: Flags, begins: Flags, counts: Lengths, draw: NDArray[np.float64]
) -> Flags:
    """The places of the words of each row that were drawn first; together at most `counts` places.

    A word that would be too much is skipped, and the words after it are tried.
    """
    first = np.flatnonzero(begins)
    sizes, row = np.diff(np.append(first, len(begins))), np.repeat(np.arange(len(lengths)), lengths)[first]
    order = np.argsort(row + draw[first])
    sizes, row, usable = sizes[order], row[order], eligible[first][order]
    row_start = np.searchsorted(row, np.arange(len(lengths)))  # the rows stay in their order
    taken, left = np.zeros(len(first), bool), counts.copy()
    for _ in range(ROUNDS):
        fits = usable & ~taken & (sizes <= left[row])
        total = np.append(0, np.cumsum(np.where(fits, sizes, 0)))
        new = fits & (total[1:] - total[row_start][row] <= left[row])
        taken |= new
        left -= np.bincount(row[new], sizes[new], len(lengths)).astype(np.int64)
    chosen = np.empty(len(first), bool)
    chosen[order] = taken
    return chosen[np.cumsum(begins) - 1]


class RowNoise:
    """Random numbers for each place of rows that depend on the tokens of the row, a number and the place alone."""

    def __init__(self, text: Values, lengths: Lengths, numbers: NDArray[np.int64]) -> None:
        ends = np.cumsum(lengths)
        place = (np.arange(len(text)) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
        total = np.append(np.uint64(0), np.cumsum(_mix(text.astype(np.uint64) + _mix(place)), dtype=np.uint64))
        row = _mix(total[ends] - total[ends - lengths] + numbers.astype(np.uint64))
        self._state, self._calls = np.repeat(row, lengths) + place, 0

    def random(self, size: int) -> NDArray[np.float64]:
        assert size == len(self._state)
        self._calls += 1
        bits = _mix(self._state + _mix(np.full(1, self._calls, np.uint64)))
        return (bits >> np.uint64(11)).astype(np.float64) / 2**53

    def integers(self, high: int, *, size: int) -> NDArray[np.int64]:
        return (self.random(size) * high).astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers whose bits all depend on all bits of x: the output function of SplitMix64 (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class SentencePairs(Corruption):
    """Cuts each text at the end of a sentence into two parts, and asks whether the second part is in its place.

    Rows get the special tokens between the parts, the `segments` of their tokens, and `next`: 0 if the parts stand as
    in the text, 1 for half of the rows. In these, with the question "next" the second part is text of another row that
    begins after the end of a sentence (Devlin et al. 2019, section 3.1); with "order" the parts change places (Lan et
    al. 2020, section 3.1). A text without the end of a sentence is cut in the middle. One of fewer than two tokens is
    not asked about: `next` is IGNORED.
    """

    special: SpecialTokens
    ends: Flags  # by id: whether the token ends a sentence
    question: Literal["next", "order"]

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """A text becomes as much longer as the special tokens between the parts are."""
        more = len(self.special.join_input([[], []])[0]) - len(self.special.wrap_input([]))
        text = np.where(lengths["text"] > 0, lengths["text"] + more, 0)
        return {"text": text, "segments": text, "next": np.minimum(text, 1)}

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        text, lengths = rows.flat("text"), rows.lengths("text")
        there = lengths > 0
        starts = np.cumsum(lengths) - lengths + (self.special.prefix is not None)
        sizes = np.maximum(lengths - len(self.special.wrap_input([])), 0)  # without special tokens
        place = np.arange(max(int(sizes.max()), 1))
        ends = self.ends[text[np.minimum(starts[:, None] + place, len(text) - 1)]] & (place < sizes[:, None])
        ends[:, :-1] &= ~ends[:, 1:]  # of several in a row, such as a full stop and the end of a line, the last one
        cut, found = _pick(ends & (place < sizes[:, None] - 1), random)
        cut = np.where(found, cut + 1, np.minimum((sizes + 1) // 2, sizes))
        asked = sizes > 1
        changed = asked & (random.random(len(rows)) < 0.5)
        first, second = (starts, cut), (starts + cut, sizes - cut)
        if self.question == "order":
            first, second = (
                (np.where(changed, one[0], other[0]), np.where(changed, one[1], other[1]))
                for one, other in ((second, first), (first, second))
            )
        else:
            other, changed = self._of_other_rows(ends, starts, sizes, cut, changed, random)
            second = (np.where(changed, other, starts + cut), sizes - cut)
        answer = np.where(asked, changed, IGNORED)
        return self._joined(text, first, second, there, answer)

    def _of_other_rows(
        self, ends: Flags, starts: Lengths, sizes: Lengths, cut: Lengths, wanted: Flags, random: np.random.Generator
    ) -> tuple[Lengths, Flags]:
        """Where in the text another second part of the same length begins, in another row, and which rows have one.

        It begins after the end of a sentence of one of a few other rows, else at any place.
        """
        count, number = len(starts), np.arange(len(starts))
        begin, has, found = starts + cut, np.zeros(count, bool), np.zeros(count, bool)
        place = np.arange(ends.shape[1])
        for shift in random.permutation(np.arange(1, count))[:PARTNERS]:
            row = (number + shift) % count
            latest = sizes[row] - (sizes - cut)  # where a part of this length may begin at the latest
            at, here = _pick(ends[row] & (place + 1 <= latest[:, None]), random)
            better = here & ~found
            any_place = ~has & (latest >= 0)
            begin = np.where(any_place, starts[row] + np.minimum(cut, latest), begin)
            begin = np.where(better, starts[row] + at + 1, begin)
            has, found = has | any_place, found | better
        return begin, wanted & has

    def _joined(
        self,
        text: Values,
        first: tuple[Lengths, Lengths],
        second: tuple[Lengths, Lengths],
        there: Flags,
        answer: NDArray[np.int64],
    ) -> Rows:
        """The rows of two parts, each given by where it begins and how long it is, with their special tokens."""
        ids, segments = self.special.join_input([[-1], [-2]])  # -1 and -2 stand for the parts
        pool, count = np.concatenate([np.array(ids, np.int64), text]), len(there)
        starts, sizes = np.tile(np.arange(len(ids)), (count, 1)), np.tile(there[:, None], len(ids)).astype(np.int64)
        for token, (begin, size) in ((-1, first), (-2, second)):
            starts[:, ids.index(token)], sizes[:, ids.index(token)] = begin + len(ids), size
        each, lengths = sizes.reshape(-1), sizes.sum(1)
        ends = np.cumsum(each)
        joined = pool[np.arange(ends[-1]) + np.repeat(starts.reshape(-1) - ends + each, each)]
        begins = np.cumsum(lengths) - lengths
        return Rows(
            {
                "text": (joined, begins, lengths),
                "segments": (np.repeat(np.tile(segments, count), each), begins, lengths),
                "next": (answer[there], np.cumsum(there) - there, there.astype(np.int64)),
            }
        )


def _pick(flags: Flags, random: np.random.Generator) -> tuple[Lengths, Flags]:
    """One of the True places of each row (B, T), all equally likely, and whether the row has any."""
    return np.where(flags, random.random(flags.shape), -1.0).argmax(1), np.asarray(flags.any(1))


@dataclass(frozen=True, eq=False)
class TokenLinks(Corruption):
    """Adds the links between tokens to the rows of a batch, as the field ``token_links``.

    A token has the links of its word, or of its character. A link is two numbers: the index of the target token among
    the predicted ones, and the index of the source token, special tokens included.
    """

    unit: Unit
    source: Tokenizer
    target: Tokenizer

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        return rows.with_field("token_links", [self._links(row) for row in rows])

    def _links(self, row: Row) -> Values:
        links = row["alignment"].reshape(-1, 2)
        if not len(links):
            return np.zeros(0, np.int64)
        source, target = self.source.special_tokens, self.target.special_tokens
        columns = self._units(self.source, row["source"], source.prefix, source.suffix)
        units = self._units(self.target, row["target"], target.bos, target.eos)[1:]
        linked = np.zeros((max(units.max(initial=-1), links[:, 1].max()) + 2, links[:, 0].max() + 2), bool)
        linked[links[:, 1], links[:, 0]] = True  # the last row and the last column are of tokens without a unit
        columns = np.where(columns < linked.shape[1] - 1, columns, -1)
        return np.argwhere(linked[np.ix_(units, columns)]).reshape(-1)

    def _units(self, tokenizer: Tokenizer, ids: Values, first: int | None, last: int | None) -> Values:
        """The unit of each token; -1 for special tokens, and for spaces between words."""
        text = ids[int(first is not None) : len(ids) - int(last is not None)].tolist()
        units = range(len(text)) if self.unit == "char" else tokenizer.words(text)
        return np.array([*[-1] * (first is not None), *units, *[-1] * (last is not None)], np.int64)


def token_links(fields: Mapping[str, Field]) -> TokenLinks:
    """How the links of a task become links between the tokens of its source and target."""
    links, source, target = fields["alignment"], fields["source"], fields["target"]
    assert isinstance(links, LinkField)
    assert isinstance(source, TextField)
    assert isinstance(target, TextField)
    for name, field in (("source", source), ("target", target)):
        if links.unit == "char" and field.tokenizer.kind != "char":
            raise UserError(
                f"data.{name}_tokens={field.tokenizer.kind}: the links of the data join characters; "
                f"set data.{name}_tokens=char, or objective=teacher."
            )
    return TokenLinks(links.unit, source.tokenizer, target.tokenizer)
