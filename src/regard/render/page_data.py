"""The data of a page as JSON: the only place that makes it. `web/src/data.ts` declares the same for the script."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from regard.errors import UserError
from regard.render.formatting import Markup, escape_directions, graphemes, labels, tag, visible
from regard.render.view_data import (
    CHAINS,
    FAINTEST_LINE,
    MAX_LINES,
    NO_ATTENTION,
    Floats,
    Frame,
    Layer,
    Special,
    Unknown,
    caption,
    places_of,
)

Parts = Mapping[str, Sequence[Layer]]

VERSION = 1  # of the data; a script of another version says so and draws nothing
MAX_EXACT = 60_000  # up to this many weights are written with six digits each
MAX_WEIGHTS = 3_000_000  # of a page: 8 MB in base 64, two bytes per weight
MAX_CONTEXTS = 300_000  # numbers of all context vectors of a page
MAX_CELLS = 120_000  # of one matrix: a browser draws about a hundred thousand cells per second


def data_script(data: Mapping[str, Any]) -> Markup:
    """The element that holds the data of a figure. "<" is escaped, so that no text can end the element."""
    text = json.dumps({"version": VERSION, **data}, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return tag("script", {"type": "application/json"}, Markup(text))


@dataclass(frozen=True, eq=False)
class PageData:
    """The layers that a page shows, by part, its decoding steps, and a note on what was left out to save space."""

    parts: Parts
    frames: Sequence[Frame] = ()
    attention: bool = True
    note: str = ""

    @staticmethod
    def fit(parts: Parts, frames: Sequence[Frame], attention: bool) -> "PageData":
        """All heads if they fit, otherwise the mean over the heads of each layer; an error if that is too large too."""
        largest = max((layer.weights[0].size for layers in parts.values() for layer in layers), default=0)
        means = {part: [_mean(layer) for layer in layers] for part, layers in parts.items()}
        if largest > MAX_CELLS or _count(means) > MAX_WEIGHTS:
            raise UserError(
                f"a page of {_count(means):,} weights, {largest:,} in one matrix, is too large for a browser (at most "
                f"{MAX_WEIGHTS:,} and {MAX_CELLS:,}); choose --part or --layer, give a shorter text, or save as .npz."
            )
        if _count(parts) > MAX_WEIGHTS:
            heads = sum(layer.heads for layers in parts.values() for layer in layers)
            note = f"{heads:,} heads are too many for a page at this length, so it shows the mean over each layer's"
            return PageData(means, frames, attention, f"{note} heads; use --layer N to see the heads of one layer.")
        stored = [layer for name, layers in parts.items() for layer in layers if _has_steps(name, layer, len(frames))]
        contexts = sum(layer.contexts.size for layer in stored if layer.contexts is not None)
        if contexts <= MAX_CONTEXTS:
            return PageData(parts, frames, attention)
        without = {part: [replace(layer, contexts=None) for layer in layers] for part, layers in parts.items()}
        note = f"{contexts:,} numbers of context vectors are too many for a page, so it leaves them out"
        return PageData(without, frames, attention, f"{note}; use --layer N to see those of one layer.")

    def to_json(self) -> dict[str, Any]:
        """The data as JSON holds it."""
        exact = _count(self.parts) <= MAX_EXACT
        digits = 6 if exact else 3  # of states and contexts, which are hundreds of numbers per step
        before = any(layer.query == "before" for layers in self.parts.values() for layer in layers)
        return {
            "parts": [self._part(part, layers, exact) for part, layers in self.parts.items()],
            "faintest": FAINTEST_LINE,
            "most": MAX_LINES,
            "frames": [
                {
                    "token": visible(frame.token),
                    "text": escape_directions(frame.token if frame.text is None else frame.text),
                    "top": [
                        [visible(piece), *rounded((logit, probability))] for piece, logit, probability in frame.top
                    ],
                    "state": rounded(frame.state, digits),
                    "before": rounded(frame.before, digits) if before and frame.before is not None else None,
                }
                for frame in self.frames
            ],
        }

    def _part(self, name: str, layers: Sequence[Layer], exact: bool) -> dict[str, Any]:
        first = layers[0]
        steps = _has_steps(name, first, len(self.frames))  # True if the rows are the decoding steps
        chain = CHAINS[first.query] if self.attention else NO_ATTENTION
        axes = {"rows": first.rows or (), "columns": first.columns or ()}
        names = {axis: labels(pieces) for axis, pieces in axes.items()}
        return {
            "name": name,
            **{axis: [visible(piece) for piece in pieces] for axis, pieces in axes.items()},
            "labels": names,
            "widest": {axis: max(map(cell_len, each), default=0) for axis, each in names.items()},  # in letters
            "tall": any(len(graphemes(name)) > 2 for name in names["columns"]),  # headings stand upright
            "unknown": {axis: places_of(Unknown, pieces) for axis, pieces in axes.items()},
            "special": {axis: places_of(Special, pieces) for axis, pieces in axes.items()},
            "steps": steps,
            "chain": [[stage.shows, stage.title, stage.note] for stage in chain] if steps else [],
            "captions": [caption(name), caption(name, "the left", "the right")],
            "layers": [
                {
                    "label": layer.label,
                    "number": layer.number,
                    "heads": layer.head_numbers,
                    "weights": [[rounded(row) for row in head] for head in layer.weights]
                    if exact
                    else _encode_base64(layer),
                    "masked": None if layer.visible is None else [masked_ranges(row) for row in layer.visible],
                    "contexts": [[rounded(vector, 6 if exact else 3) for vector in head] for head in layer.contexts]
                    if steps and layer.contexts is not None
                    else None,
                    **({} if layer.norms is None else {"norms": [rounded(head) for head in layer.norms]}),
                }
                for layer in layers
            ],
        }


def _has_steps(part: str, layer: Layer, steps: int) -> bool:
    """Whether the rows of a part are the decoding steps."""
    return part != "encoder" and len(layer.rows or ()) == steps > 0


def masked_ranges(visible: NDArray[np.bool_]) -> list[list[int]]:
    """The columns that a row may not look at, as ranges: [first, end after the last]."""
    edges = np.flatnonzero(np.diff(~visible, prepend=False, append=False))
    return [[int(first), int(end)] for first, end in zip(edges[::2], edges[1::2])]


def _mean(layer: Layer) -> Layer:
    return replace(layer, weights=layer.weights.mean(axis=0, keepdims=True), kept_heads=None, contexts=None, norms=None)


def _count(parts: Parts) -> int:
    return sum(layer.weights.size for layers in parts.values() for layer in layers)


def _encode_base64(layer: Layer) -> str:
    """The weights as 16-bit integers (0 to 65,535 for 0 to 1), low byte first, in base 64."""
    weights: Floats = np.nan_to_num(layer.weights, posinf=0.0, neginf=0.0).clip(0.0, 1.0)
    return base64.b64encode((weights * 65535).round().astype("<u2").tobytes()).decode("ascii")


def rounded(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Rounds to significant digits. NaN and infinity become None, since JSON cannot hold them."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
