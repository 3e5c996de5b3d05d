"""What a page is given to show: every weight that fits, as exact as there is room for."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.errors import UserError
from regard.render.labels import visible
from regard.render.parts import Floats, Frame, Layer, reading

Parts = Mapping[str, Sequence[Layer]]

EXACT = 60_000  # weights that are written with six digits each
MOST = 3_000_000  # weights of a page: 8 MB, in two bytes each
CELLS = 120_000  # of one matrix: a browser draws some hundred thousand in a second


@dataclass(frozen=True, eq=False)
class Payload:
    """The parts that a page shows, and what had to be left out."""

    parts: Parts
    note: str = ""

    @staticmethod
    def fitted(parts: Parts) -> "Payload":
        """As much as a page can carry: every head, or of each layer the mean, or nothing but a cure."""
        largest = max((layer.weights[0].size for layers in parts.values() for layer in layers), default=0)
        means = {part: [_mean(layer) for layer in layers] for part, layers in parts.items()}
        if largest > CELLS or _count(means) > MOST:
            raise UserError(
                f"a page of {_count(means):,} weights, {largest:,} in one matrix, is too large for a browser (at most "
                f"{MOST:,} and {CELLS:,}); choose --part or --layer, give a shorter text, or save as .npz."
            )
        if _count(parts) <= MOST:
            return Payload(parts)
        heads = sum(layer.heads for layers in parts.values() for layer in layers)
        said = f"{heads:,} heads are too many for a page at this length: of each layer the mean is kept"
        return Payload(means, f"{said}; --layer N keeps the heads of one.")

    def json(self, frames: Sequence[Frame]) -> str:
        """Everything the page shows. "<" never occurs in it, so that no text can end the script element."""
        exact = _count(self.parts) <= EXACT
        digits = 6 if exact else 3  # of what is carried and read, hundreds of numbers a step
        data = {
            "parts": [_part(part, layers, exact, len(frames)) for part, layers in self.parts.items()],
            "frames": [
                {
                    "token": visible(frame.token),
                    "top": [[visible(piece), *rounded((logit, chance))] for piece, logit, chance in frame.top],
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
        "steps": name != "encoder" and len(first.rows or ()) == steps,  # whether its rows are the decoding steps
        "reading": [reading(name), reading(name, "the left", "the right")],
        "layers": [
            {
                "label": layer.label,
                "number": layer.number,
                "heads": layer.numbers,
                "weights": [[rounded(row) for row in head] for head in layer.weights] if exact else _coded(layer),
            }
            for layer in layers
        ],
    }


def _mean(layer: Layer) -> Layer:
    return replace(layer, weights=layer.weights.mean(axis=0, keepdims=True), kept=None)


def _count(parts: Parts) -> int:
    return sum(layer.weights.size for layers in parts.values() for layer in layers)


def _coded(layer: Layer) -> str:
    """The weights as parts of 65,535, two bytes each, low byte first, in base 64."""
    shares: Floats = np.nan_to_num(layer.weights, posinf=0.0, neginf=0.0).clip(0.0, 1.0)
    return base64.b64encode((shares * 65535).round().astype("<u2").tobytes()).decode("ascii")


def rounded(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """So many significant digits; JSON has no NaN, so what is not finite is null."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
