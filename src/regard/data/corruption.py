"""Changes to the rows of a batch before they are padded (`Corruption`): masked tokens, links between tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.data.batches import IGNORED
from regard.data.example import Unit
from regard.data.fields import Field, LinkField, TextField
from regard.data.flat import Lengths, Row, Rows, Values
from regard.data.tokenizers import Tokenizer
from regard.errors import UserError

ROUNDING = 1e-9  # the error of a product of a length and a fraction in float64, which must not round it up
WRAPPED = 2  # prefix and suffix stand around every text and are never masked


@dataclass(frozen=True)
class MaskTokens:
    """Mask some tokens of a text (Devlin et al. 2019, section 3.1): the others stay, and only these are targets.

    Most of the chosen places show the mask, some a random token and some the token itself: a model trained on masks
    alone would not learn to represent texts without any.
    """

    mask: int  # the id that replaces a token
    vocab: int  # ids from which random tokens are drawn
    special: tuple[int, ...]  # ids that are never masked
    fraction: float = 0.15  # of the tokens, special ones included, rounded up
    kept: float = 0.1  # of the chosen places show the token itself
    random: float = 0.1  # of the chosen places show a random token

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The lengths stay as they are."""
        return lengths

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        """Rows with corrupted `text`, and `targets` that are IGNORED at all places but the chosen ones."""
        lengths, text = rows.lengths("text"), rows.flat("text").astype(np.int64)
        row_of = np.repeat(np.arange(len(rows)), lengths)
        special = np.zeros(self.vocab, dtype=bool)
        special[list(self.special)] = True
        draw = np.where(special[text], 0.75, random.random(len(text)) / 2)  # 0.75: after every eligible place
        order = np.argsort(row_of + draw)  # by row, and within a row in random order
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        chosen = (rank < masked_count(lengths, self.fraction)[row_of]) & ~special[text]
        fate, drawn = random.random(len(text)), random.integers(self.vocab, size=len(text))
        shown = np.where(fate < self.random, drawn, self.mask)
        shown = np.where(chosen & (fate < 1 - self.kept), shown, text)
        return rows.replaced(text=shown, targets=np.where(chosen, text, IGNORED))


@dataclass(frozen=True)
class MaskAndDraw:
    """Mask some tokens of a text, and draw a number from 0 to 1 for each place, as ``draws``.

    By its number a generator samples the token of a masked place (Clark et al. 2020, section 3). The number is drawn
    here, so that a batch has the same tokens on every device and at every evaluation.
    """

    mask: MaskTokens

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The lengths stay as they are."""
        return self.mask.lengths(lengths)

    def __call__(self, rows: Rows, random: np.random.Generator) -> Rows:
        masked = self.mask(rows, random)
        return masked.replaced(draws=random.random(int(masked.lengths("text").sum()), np.float32))


def masked_count(lengths: Lengths, fraction: float) -> Lengths:
    """How many places of a text are chosen: a function of its length alone."""
    return np.minimum(np.ceil(lengths * fraction - ROUNDING).astype(np.int64), lengths - WRAPPED).clip(0)


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

        A text that needs more spans than there are sentinels has fewer and longer ones, unless all texts are so long.
        """
        tokens = (whole - self.before - self.after).clip(0)
        hidden = np.minimum(np.rint(tokens * self.fraction).astype(np.int64).clip(1), (tokens - 1).clip(0))
        possible = np.minimum(hidden, tokens - hidden + 1)  # with a shown token between two hidden spans
        spans = np.minimum(np.rint(hidden / self.span).astype(np.int64).clip(1), possible)
        most = len(self.sentinels) - 1
        if len(spans) and (least := int(spans.min())) > most:
            needs = f"a text of {int(tokens.min())} tokens has {least} hidden spans, which need {least + 1} sentinels"
            cure = "raise objective.span, or give shorter texts: lower data.window"
            raise UserError(f"objective.span={self.span:g}: {needs}, and the tokenizer has {most + 1}; {cure}.")
        return hidden, np.minimum(spans, most)

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


@dataclass(frozen=True, eq=False)
class TokenLinks:
    """Adds the links between tokens to the rows of a batch, as the field ``token_links``.

    A token has the links of its word, or of its character. A link is two numbers: the index of the target token among
    the predicted ones, and the index of the source token, special tokens included.
    """

    unit: Unit
    source: Tokenizer
    target: Tokenizer

    def lengths(self, lengths: Mapping[str, Lengths]) -> Mapping[str, Lengths]:
        """The lengths stay as they are."""
        return lengths

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
