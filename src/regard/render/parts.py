"""What is looked at: recorded weights, decoding steps, and the one matrix that a picture draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

Floats = NDArray[np.float32]


def aligning_layer(count: int) -> int:
    """Which of so many layers that look at a source tells best what each word comes from: the last but one.

    The last is busy with what to say (Garg et al. 2019, §4.1); but of two, the first knows too little yet.
    """
    return count - 2 if count > 2 else count - 1


def reading(part: str, row: str = "each row", column: str = "the columns") -> str:
    """How to read a picture of a part, in words.

    A row is the piece that looks: what is read or said next follows from what it sees. Only where a target looks at its
    source is it the piece that is being said, for that is what an alignment is about.
    """
    return f"to say {row}, it looks at {column}" if part == "cross" else f"{row} looks at {column}"


def ceiling_of(weights: Floats) -> float:
    """Where the colour scale of weights (…, Tq, Tk) ends: the least of 1, 0.5, 0.2, 0.1 … that covers what matters.

    Rows that see less than half of what others see are left out: the first words of a text have no choice but to look
    hard. Twice an even share is always covered, so that a head without a preference looks pale, not solid.
    """
    found = np.nan_to_num(weights, posinf=0.0, neginf=0.0)
    seen = (found > 0).sum(axis=-1)  # (…, Tq)
    peak = float(found[2 * seen >= seen.max(initial=0)].max(initial=0.0))
    top = max(peak, 2 / max(1, found.shape[-1]))
    if top > 0.5 or peak < 1e-6:
        return max(1.0, peak)
    decade = 10.0 ** np.floor(np.log10(top))
    return float(min(round(step * decade, 9) for step in (1, 2, 5, 10) if step * decade >= top * (1 - 1e-6)))


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights one attention module gave: every head, every query, every key."""

    name: str
    weights: Floats  # (H, Tq, Tk)
    rows: Sequence[str] | None = None  # its queries and its keys; None: those of the view
    columns: Sequence[str] | None = None
    part: str = ""  # encoder, decoder or cross, in a model that has several kinds of attention
    number: int | None = None  # among the layers of its part, from the bottom up; None: it is the only one
    kept: Sequence[int] | None = None  # the numbers of its heads, where some were left out

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float32)
        if weights.ndim != 3:
            raise ValueError(
                f'layer "{self.name}": weights must be (heads, rows, columns), not of shape {weights.shape}'
            )
        if self.kept is not None and len(self.kept) != len(weights):
            raise ValueError(f'layer "{self.name}": {len(self.kept)} numbers for {len(weights)} heads')
        object.__setattr__(self, "weights", weights)

    @property
    def heads(self) -> int:
        return int(self.weights.shape[0])

    @property
    def numbers(self) -> list[int]:
        """What its heads are called."""
        return list(range(self.heads) if self.kept is None else self.kept)

    @property
    def label(self) -> str:
        """What a person calls it: by its part, and its number where that has several."""
        if self.number is None:
            return self.part or self.name
        return f"{self.part} · layer {self.number}".removeprefix(" · ")

    def only(self, head: int) -> "Layer":
        """One of its heads."""
        if head not in self.numbers:
            there = f"heads {self.numbers[0]} to {self.numbers[-1]}" if self.heads > 1 else f"head {self.numbers[0]}"
            raise UserError(f'head={head}: "{self.label}" has {there}.')
        return replace(self, weights=self.weights[[self.numbers.index(head)]], kept=(head,))


@dataclass(frozen=True, eq=False)
class Frame:
    """One decoding step: what was carried, what was read, what was likely, what was written."""

    token: str
    top: Sequence[tuple[str, float, float]]  # the likeliest pieces, best first: (piece, logit, probability)
    state: Floats  # (W,)
    context: Floats | None = None  # (W,); None where nothing is read

    def __post_init__(self) -> None:
        for name in ("state", "context"):
            if (vector := getattr(self, name)) is None and name == "context":
                continue
            vector = np.asarray(vector, dtype=np.float32)
            if vector.ndim != 1:
                raise ValueError(f'frame "{self.token}": {name} must be one vector, not of shape {vector.shape}')
            object.__setattr__(self, name, vector)


@dataclass(frozen=True, eq=False)
class Matrix:
    """One picture's worth: who (rows) looks how much at whom (columns)."""

    title: str
    label: str  # which layer and head, or what was averaged
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Floats  # (Tq, Tk)
    part: str = ""  # of the model
    scale: float | None = None  # where its colours end, if it shares them with other pictures

    @property
    def ceiling(self) -> float:
        """Where the colour scale ends."""
        return ceiling_of(self.weights) if self.scale is None else self.scale

    @property
    def shares(self) -> Floats:
        """The weights as parts of the ceiling, in 0 … 1: how dark each cell is. (Tq, Tk)"""
        shares: Floats = np.nan_to_num(self.weights / np.float32(self.ceiling)).clip(0.0, 1.0)
        return shares
