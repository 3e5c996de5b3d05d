"""Lists of ids of unequal length, and rows of them made equally long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from regard.data.shapes import Ids

PAD = 0  # what stands in a batch where nothing does; `real` says where, so any id would do


@dataclass(frozen=True)
class Padded:
    """Rows of ids made equally long; a row of length -1 is a filler."""

    ids: Ids  # (B, T), PAD behind the end of each row
    lengths: Ids  # (B,)

    @property
    def real(self) -> NDArray[np.bool_]:
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]  # (B, T)


class Ragged:
    """Lists of ids of unequal length, held in one flat array so that any choice of them is padded at once."""

    def __init__(self, lists: Sequence[list[int]]) -> None:
        self.lengths: Ids = np.array([len(ids) for ids in lists], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self._flat = np.fromiter(chain(chain.from_iterable(lists), [PAD]), np.int64, self.lengths.sum() + 1)

    def padded(self, rows: Ids, width: int) -> Padded:
        """The chosen lists, `width` places each; row -1 is a filler."""
        padded = Padded(np.full((len(rows), width), PAD), np.where(rows >= 0, self.lengths[rows], -1))
        places = np.minimum(self._starts[rows][:, None] + np.arange(width), len(self._flat) - 1)  # (B, T)
        return replace(padded, ids=np.where(padded.real, self._flat[places], PAD))
