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
