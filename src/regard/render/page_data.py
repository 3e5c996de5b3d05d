"""The JSON data of a page: all weights if they fit, with as many digits as the size allows."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.errors import UserError
from regard.render.formatting import visible
from regard.render.view_data import Floats, Frame, Layer, caption

Parts = Mapping[str, Sequence[Layer]]

MAX_EXACT = 60_000  # up to this many weights are written with six digits each
MAX_WEIGHTS = 3_000_000  # of a page: 8 MB in base 64, two bytes per weight
MAX_CELLS = 120_000  # of one matrix: a browser draws about a hundred thousand cells per second


@dataclass(frozen=True, eq=False)
class PageData:
    """The layers that a page shows, by part, and a note if heads were averaged to save space."""

    parts: Parts
    note: str = ""

    @staticmethod
    def fit(parts: Parts) -> "PageData":
        """All heads if they fit, otherwise the mean over the heads of each layer; an error if that is too large too."""
        largest = max((layer.weights[0].size for layers in parts.values() for layer in layers), default=0)
        means = {part: [_mean(layer) for layer in layers] for part, layers in parts.items()}
        if largest > MAX_CELLS or _count(means) > MAX_WEIGHTS:
            raise UserError(
                f"a page of {_count(means):,} weights, {largest:,} in one matrix, is too large for a browser (at most "
                f"{MAX_WEIGHTS:,} and {MAX_CELLS:,}); choose --part or --layer, give a shorter text, or save as .npz."
            )
        if _count(parts) <= MAX_WEIGHTS:
            return PageData(parts)
        heads = sum(layer.heads for layers in parts.values() for layer in layers)
        note = f"{heads:,} heads are too many for a page at this length, so it shows the mean over each layer's heads"
        return PageData(means, f"{note}; use --layer N to see the heads of one layer.")

    def json(self, frames: Sequence[Frame]) -> str:
        """The data as JSON. "<" is escaped, so that no text can end the script element."""
        exact = _count(self.parts) <= MAX_EXACT
        digits = 6 if exact else 3  # of states and contexts, which are hundreds of numbers per step
        data = {
            "parts": [_part(part, layers, exact, len(frames)) for part, layers in self.parts.items()],
            "frames": [
                {
                    "token": visible(frame.token),
                    "top": [
                        [visible(piece), *rounded((logit, probability))] for piece, logit, probability in frame.top
                    ],
                    "state": rounded(frame.state, digits),
                    "context": None if frame.context is None else rounded(frame.context, digits),
                }
                for frame in frames
            ],
        }
        return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _part(name: str, layers: Sequence[Layer], exact: bool, steps: int) -> dict[str, Any]:
    first = layers[0]
    return {
        "name": name,
        "rows": [visible(piece) for piece in first.rows or ()],
        "columns": [visible(piece) for piece in first.columns or ()],
        "steps": name != "encoder" and len(first.rows or ()) == steps,  # True if the rows are the decoding steps
        "captions": [caption(name), caption(name, "the left", "the right")],
        "layers": [
            {
                "label": layer.label,
                "number": layer.number,
                "heads": layer.head_numbers,
                "weights": [[rounded(row) for row in head] for head in layer.weights]
                if exact
                else _encode_base64(layer),
            }
            for layer in layers
        ],
    }


def _mean(layer: Layer) -> Layer:
    return replace(layer, weights=layer.weights.mean(axis=0, keepdims=True), kept_heads=None)


def _count(parts: Parts) -> int:
    return sum(layer.weights.size for layers in parts.values() for layer in layers)


def _encode_base64(layer: Layer) -> str:
    """The weights as 16-bit integers (0 to 65,535 for 0 to 1), low byte first, in base 64."""
    weights: Floats = np.nan_to_num(layer.weights, posinf=0.0, neginf=0.0).clip(0.0, 1.0)
    return base64.b64encode((weights * 65535).round().astype("<u2").tobytes()).decode("ascii")


def rounded(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Rounds to significant digits. NaN and infinity become None, since JSON cannot hold them."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
