"""The data of a view: the weights of a layer, a decoding step, and the matrix of one picture."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.file_io import write_file

Floats = NDArray[np.float32]
Query = Literal["before", "state", "layer"]  # the decoder's state before a step or at the step, or the layer's own

FAINTEST_LINE = 0.04  # lines below this part of the colour scale are not drawn
MAX_LINES = 4000  # of a picture


class Unknown(str):
    """The text of a token that is not in the vocabulary. A picture shows this text with a ring around it."""

    __slots__ = ()


class Special(str):
    """The text of a token that a model adds to a text, such as <bos> or [SEP]. A page can hide it."""

    __slots__ = ()


def places_of(kind: type[str], pieces: Sequence[str]) -> list[int]:
    """The places of the tokens of a kind: unknown or special ones."""
    return [at for at, piece in enumerate(pieces) if isinstance(piece, kind)]


@dataclass(frozen=True)
class Origin:
    """How a view was made, so that a page can say how to make it again, and its model can compute it."""

    run: str  # as the user gave it
    texts: Sequence[str]
    target: str | None = None
    beam: int = 1  # with which a translator searched for its target
    heads: Sequence[Mapping[str, Any]] = ()  # that were changed: `HeadChange` in web/src/engine/api.ts
    opens: Mapping[str, str | int] = field(default_factory=dict)  # the part, layer and head that a page shows first


@dataclass(frozen=True)
class Stage:
    """One panel of a decoding step: what it shows, its title, and a note that explains it."""

    shows: Literal["before", "state", "weights", "context", "logits"]
    title: str
    note: str


WEIGHTS = Stage("weights", "Weights", "attention to each token")
CONTEXT = Stage("context", "Context", "the sum of the values, weighted")
LOGITS = Stage("logits", "Logits → softmax → argmax", "the next token")

# The panels of a step, in the order in which the model computes them, by what the query of its attention is.
CHAINS: dict[Query, tuple[Stage, ...]] = {
    "before": (  # Bahdanau et al. 2015: the context is an input of the recurrence
        Stage("before", "State s₍ₜ₋₁₎", "of the decoder before this step: the query"),
        WEIGHTS,
        CONTEXT,
        Stage("state", "State s₍ₜ₎", "of the decoder, computed from s₍ₜ₋₁₎, the last token and the context"),
        LOGITS,
    ),
    "state": (  # Luong et al. 2015: the context follows the recurrence
        Stage("state", "State s₍ₜ₎", "of the decoder at this step: the query"),
        WEIGHTS,
        CONTEXT,
        LOGITS,
    ),
    "layer": (WEIGHTS, CONTEXT, Stage("state", "State", "the output of the last layer at this step"), LOGITS),
}
NO_ATTENTION = (Stage("state", "State", "of the decoder at this step"), LOGITS)


EMPTY = "none"  # in place of the part of a model, in the picture of one without attention


def caption(part: str, row: str = "each row", column: str = "the columns") -> str:
    """A sentence that explains how to read a picture of a part.

    A row is the token whose query attends. In cross-attention a row is instead the token that is generated at that
    step, as in an alignment. In a picture of filters a row is a filter. Of a model without attention there is nothing
    to read.
    """
    if part == EMPTY:
        return ""
    if part == "filters":
        return "a token is as dark as the largest feature of the filter's n-grams that have it"
    return f"to generate {row}, the model attends to {column}" if part == "cross" else f"{row} attends to {column}"


def scale_max(weights: Floats) -> float:
    """The end of the colour scale for weights (…, Tq, Tk): the smallest of 1, 0.5, 0.2, 0.1 … above the largest weight.

    Rows with few visible keys (less than half as many as other rows) do not count: under a causal mask the first rows
    always have large weights. The scale covers at least twice the uniform weight, so that a uniform head looks pale.
    """
    found = np.nan_to_num(weights, posinf=0.0, neginf=0.0)
    seen = (found > 0).sum(axis=-1)  # (…, Tq)
    peak = float(found[2 * seen >= seen.max(initial=0)].max(initial=0.0))
    top = max(peak, 2 / max(1, found.shape[-1]))
    if top > 0.5 or peak < 1e-6:
        return max(1.0, peak)
    decade = 10.0 ** np.floor(np.log10(top))
    return float(min(round(step * decade, 9) for step in (1, 2, 5, 10) if step * decade >= top * (1 - 1e-6)))


def strongest_lines(intensities: Floats) -> tuple[NDArray[np.intp], int]:
    """The lines of a picture, weakest first, as flat indices of (H, Tq, Tk), and how many lines there are in all.

    Where there are more than `MAX_LINES`, the strongest line of every row is kept, then the second of every row, and
    so on: no row is without a line because other rows have stronger ones.
    """
    ranks = np.argsort(np.argsort(-intensities, axis=-1, kind="stable"), axis=-1)  # 0: the strongest of its row
    drawn = np.flatnonzero(intensities >= FAINTEST_LINE)
    kept = drawn[np.lexsort((-intensities.flat[drawn], ranks.flat[drawn]))][:MAX_LINES]
    return kept[np.argsort(intensities.flat[kept], kind="stable")], len(drawn)


def npz_bytes(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Arrays as an .npz file.

    Written with `zipfile`, not `np.savez`: an array may have any name, and equal arrays give equal bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return buffer.getvalue()


def save_picture(path: str | Path, html: Callable[[], str], svg: Callable[[], str], npz: Callable[[], bytes]) -> Path:
    """Writes an .html, .svg or .npz file, chosen by the suffix. The file is written atomically."""
    makers: dict[str, Callable[[], str | bytes]] = {".html": html, ".svg": svg, ".npz": npz}
    if (make := makers.get(Path(path).suffix.lower())) is None:
        raise UserError(f'Cannot save a view as "{path}": end the name in .html, .svg or .npz.')
    return write_file(path, make())


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one attention module: all heads, queries and keys."""

    name: str
    weights: Floats  # (H, Tq, Tk)
    rows: Sequence[str] | None = None  # tokens of the queries; None: those of the view
    columns: Sequence[str] | None = None  # tokens of the keys; None: those of the view
    part: str = ""  # encoder, decoder or cross, in a model that has several kinds of attention
    number: int | None = None  # among the layers of its part, from 0, the lowest; None: it is the only one
    kept_heads: Sequence[int] | None = None  # the numbers of the heads in ``weights``; None: all heads
    visible: NDArray[np.bool_] | None = None  # (Tq, Tk) False where a query may not look; None: it is not known
    contexts: Floats | None = None  # (H, Tq, D) the weighted sum of the values of each head; None: not stored
    query: Query = "layer"
    norms: Floats | None = (
        None  # (H, Tk) the norm of each value after the output projection of its head; None: not known
    )

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float32)
        if weights.ndim != 3:
            raise ValueError(
                f'layer "{self.name}": weights must be (heads, rows, columns), not of shape {weights.shape}'
            )
        if self.kept_heads is not None and len(self.kept_heads) != len(weights):
            raise ValueError(f'layer "{self.name}": {len(self.kept_heads)} numbers for {len(weights)} heads')
        for name, array, shape in (
            ("visible", self.visible, weights.shape[1:]),
            ("contexts", None if self.contexts is None else self.contexts[..., 0], weights.shape[:2]),
            ("norms", self.norms, weights.shape[::2]),
        ):
            if array is not None and array.shape != shape:
                raise ValueError(f'layer "{self.name}": {name} of shape {array.shape} do not fit {weights.shape}')
        object.__setattr__(self, "weights", weights)

    @property
    def heads(self) -> int:
        return int(self.weights.shape[0])

    @property
    def head_numbers(self) -> list[int]:
        """The number of each head in ``weights``."""
        return list(range(self.heads) if self.kept_heads is None else self.kept_heads)

    @property
    def label(self) -> str:
        """The name in a picture: the part, and the number where the part has several layers."""
        if self.number is None:
            return self.part or self.name
        return f"{self.part} · layer {self.number}".removeprefix(" · ")

    def only(self, head: int) -> "Layer":
        """This layer with one of its heads."""
        if head not in self.head_numbers:
            numbers = ", ".join(map(str, self.head_numbers))
            every = f"0 to {self.heads - 1}" if self.kept_heads is None and self.heads > 1 else numbers
            raise UserError(f'head={head}: "{self.label}" has head{"s" * (self.heads > 1)} {every}.')
        at = [self.head_numbers.index(head)]
        contexts, norms = (None if each is None else each[at] for each in (self.contexts, self.norms))
        return replace(self, weights=self.weights[at], kept_heads=(head,), contexts=contexts, norms=norms)


@dataclass(frozen=True, eq=False)
class Frame:
    """One decoding step: the token, the most probable candidates and the decoder's states."""

    token: str
    top: Sequence[tuple[str, float, float]]  # the most probable tokens, best first: (token, logit, probability)
    state: Floats  # (W,)
    before: Floats | None = None  # (W,) the state before this step, in a decoder that has one
    text: str | None = None  # what the token adds to the output, with its spaces; None: the token as it is

    def __post_init__(self) -> None:
        for name in ("state", "before"):
            if (vector := getattr(self, name)) is None and name == "before":
                continue
            vector = np.asarray(vector, dtype=np.float32)
            if vector.ndim != 1:
                raise ValueError(f'frame "{self.token}": {name} must be one vector, not of shape {vector.shape}')
            object.__setattr__(self, name, vector)


@dataclass(frozen=True)
class Answer:
    """What a model predicts for the text of a picture, beside its attention or its filters."""

    sentence: str  # for people: with probabilities, and the answers that come next
    numbers: Mapping[str, Any]  # the same for programs


@dataclass(frozen=True, eq=False)
class Matrix:
    """The weights that one picture shows: rows are queries, columns are keys."""

    title: str
    label: str  # the layer and head, or what was averaged
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Floats  # (Tq, Tk)
    part: str = ""  # of the model
    vmax: float | None = None  # end of the colour scale, if pictures share one; None: from the weights
    visible: NDArray[np.bool_] | None = None  # (Tq, Tk) False where a query may not look; None: it is not known

    @property
    def scale_max(self) -> float:
        """The end of the colour scale."""
        return scale_max(self.weights) if self.vmax is None else self.vmax

    @property
    def intensities(self) -> Floats:
        """The weights divided by the end of the colour scale, in 0 … 1: how dark each cell is. (Tq, Tk)"""
        return np.nan_to_num(self.weights / np.float32(self.scale_max)).clip(0.0, 1.0)

    def masked(self, row: int, column: int) -> bool:
        """Whether the query of a row may not look at the key of a column."""
        return self.visible is not None and not self.visible[row, column]
