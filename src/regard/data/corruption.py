"""Corruption of the rows of a batch: what a model has to restore. Seeded, and of predictable length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from regard.data.batches import IGNORED, Rows
from regard.data.flat import Lengths

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


def masked_count(lengths: Lengths, fraction: float) -> Lengths:
    """How many places of a text are chosen: a function of its length alone."""
    return np.minimum(np.ceil(lengths * fraction - ROUNDING).astype(np.int64), lengths - WRAPPED).clip(0)
