"""The interactive page of a view: one HTML file with all layers and heads, and every decoding step."""

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.errors import UserError
from regard.render.formatting import Markup, asset, lines, tag, visible
from regard.render.svg import matrix_svg
from regard.render.view_data import Floats, Frame, Layer, Matrix, caption
from regard.report.words import PART_WORDS, WORDS

Parts = Mapping[str, Sequence[Layer]]

MAX_EXACT = 60_000  # up to this many weights are written with six digits each
MAX_WEIGHTS = 3_000_000  # of a page: 8 MB in base 64, two bytes per weight
MAX_CELLS = 120_000  # of one matrix: a browser draws about a hundred thousand cells per second
# The page may use its own inline style and script, and may not load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def document(title: str, body: Markup, *scripts: Markup) -> str:
    """A complete HTML file around a body, with the style and the content security policy of all pages."""
    head = [
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": Markup(POLICY)}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("title", {}, title),
        tag("style", {}, Markup(f"\n{asset('page.css')}")),
    ]
    parts = [tag("head", {}, "\n", lines(head)), tag("body", {}, "\n", lines([body, *scripts]))]
    return Markup(f"<!doctype html>\n{tag('html', {'lang': 'en'}, lines(parts))}\n")


def page_html(first: Matrix, parts: Parts, frames: Sequence[Frame] | None, about: str = "") -> str:
    """The page of all parts, layers and heads, with decoding steps if there are any.

    ``first`` is drawn as a static picture for browsers without JavaScript.
    """
    parts = parts or {"": [Layer(first.label, first.weights[None], first.rows, first.columns)]}
    page_data = PageData.fit(parts)
    keys = ["<kbd>v</kbd> matrix or lines"]
    keys += ["<kbd>p</kbd> next part"] * (len(parts) > 1)
    keys += ["<kbd>l</kbd> <kbd>L</kbd> next or previous layer"] * any(len(layers) > 1 for layers in parts.values())
    keys += ["<kbd>h</kbd> <kbd>H</kbd> next or previous head"] * any(
        layer.heads > 1 for layers in page_data.parts.values() for layer in layers
    )
    keys += ["<kbd>Tab</kbd> enters the matrix, arrow keys move between cells"]
    if frames:
        keys = ["<kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> jump", *keys]
        keys[-1] += ", <kbd>Esc</kbd> leaves it"
    heading = tag("span", {"id": "label"}, first.label), " ", tag("small", {"id": "caption"}, caption(first.part))
    look = [tag("h2", {}, *heading), _fragment("stage"), tag("noscript", {}, matrix_svg(first))]
    body = [
        tag("header", {}, tag("h1", {"dir": "auto"}, first.title)),
        *([tag("p", {"class": "quiet"}, about)] if about else []),
        _fragment("controls"),
        *([tag("p", {"class": "quiet"}, page_data.note)] if page_data.note else []),
        *([_fragment("stepper")] if frames else []),
        tag(
            "div",
            {"class": "columns"},
            tag("div", {"class": "card look"}, lines(look)),
            *([_fragment("steps")] if frames else []),
        ),
        tag("footer", {}, tag("p", {}, Markup(" · ".join(keys))), _words(parts, bool(frames))),
        Markup('<div id="tip" role="tooltip" hidden></div>'),
    ]
    data = tag("script", {"type": "application/json", "id": "data"}, Markup(page_data.json(frames or ())))
    script = tag("script", {}, Markup(f"\n{asset('page.js')}"))
    return document(first.title, tag("main", {"class": "wide" if frames else "lone"}, lines(body)), data, script)


def _words(parts: Parts, steps: bool) -> Markup:
    """The meanings of the words of the page, closed until a reader opens them."""
    words = ["attention", "weights", "query", "key", "head", "piece", *["state", "context", "logits"] * steps]
    words += [word for word, part in PART_WORDS.items() if part in parts]
    meanings = [part for word in words for part in (tag("dt", {}, word), tag("dd", {}, WORDS[word]))]
    return tag("details", {}, tag("summary", {}, "Words"), tag("dl", {}, *meanings))


def _fragment(name: str) -> Markup:
    """A part of the page without data, which is a file of this package."""
    return Markup(asset(f"{name}.html"))


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
