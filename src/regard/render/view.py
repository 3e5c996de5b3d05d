"""AttentionView: recorded attention weights that can be shown in a terminal, a notebook, a paper or a browser."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from regard.alignment import alignment_layer
from regard.errors import UserError, nearest
from regard.render.formatting import Markup
from regard.render.page import Live, in_notebook, page_html
from regard.render.svg import lines_svg, matrix_svg
from regard.render.terminal import MatrixText
from regard.render.view_data import EMPTY, Answer, Frame, Layer, Matrix, Origin, npz_bytes, save_picture


@dataclass(frozen=True, eq=False)
class AttentionView:
    """The attention weights of all layers and heads for one text, and optionally the decoding steps.

    An encoder-decoder model has several kinds of attention: its layers then belong to several parts (encoder, decoder,
    cross), each with its own rows and columns.
    """

    title: str
    rows: Sequence[str]  # tokens of the queries
    columns: Sequence[str]  # tokens of the keys
    layers: Sequence[Layer]
    frames: Sequence[Frame] | None = None  # the decoding steps, one for each row
    about: str = ""  # which model, task and run it is from
    answer: Answer | None = None  # what the model predicts for the text as a whole, or for each word
    origin: Origin | None = None  # how it was made
    # the model for a page that computes, or the reason why its page is a picture; None: it is not known
    live: Callable[[], Live | str] | None = None

    def __post_init__(self) -> None:
        layers = [
            replace(
                layer,
                rows=self.rows if layer.rows is None else layer.rows,
                columns=self.columns if layer.columns is None else layer.columns,
            )
            for layer in self.layers
        ]
        object.__setattr__(self, "layers", layers)
        taken = {"rows", "columns"}  # the .npz file uses these names for the axes
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in layers:
            rows, columns = _axes(layer)
            if layer.weights.shape[1:] != (len(rows), len(columns)):
                raise ValueError(
                    f'layer "{layer.name}": weights of shape {layer.weights.shape} do not fit '
                    f"{len(rows)} rows and {len(columns)} columns"
                )
            if layer.heads == 0:
                raise ValueError(f'layer "{layer.name}": no heads in weights of shape {layer.weights.shape}')
            if layer.name in taken:
                raise ValueError(f'layer "{layer.name}": the name is taken')
            if shapes.setdefault(layer.part, layer.weights.shape[1:]) != layer.weights.shape[1:]:
                raise ValueError(f'layer "{layer.name}": shape differs from the other layers of part "{layer.part}"')
            taken.add(layer.name)
        if self.frames is not None and len(self.frames) != len(self.rows):
            raise ValueError(f"frames: {len(self.frames)} of them do not fit {len(self.rows)} rows")

    @property
    def parts(self) -> dict[str, list[Layer]]:
        """The layers of each part. Cross-attention comes first, since it is shown first."""
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            found.setdefault(layer.part, []).append(layer)
        return dict(sorted(found.items(), key=lambda item: item[0] != "cross"))

    def only(self, part: str | None = None, layer: str | int | None = None, head: int | None = None) -> "AttentionView":
        """The view of one part, of one layer (by its number in the part, or its name) or of one head."""
        if part is None and layer is None and head is None:
            return self
        named = part is None and isinstance(layer, str)
        chosen = list(self.layers) if named else self._part(part)
        if layer is not None:
            chosen = [_layer(layer, chosen)]
        if head is not None:
            if len(chosen) > 1:
                raise UserError(f"head={head}: choose a layer too, 0 to {len(chosen) - 1}.")
            chosen = [chosen[0].only(head)]
        rows, columns = _axes(chosen[0])
        has_steps = chosen[0].part != "encoder" and len(rows) == len(self.rows)  # an encoder has no decoding steps
        frames = self.frames if has_steps else None
        live = None if self.live is None else _in_part
        return replace(self, rows=rows, columns=columns, layers=chosen, frames=frames, live=live)

    def opening(self, part: str | None, layer: int | None, head: int | None) -> "AttentionView":
        """The whole view, whose page shows this part, layer or head first, and can still compute."""
        self.only(part, layer, head)  # refuses what is not there
        named: dict[str, str | int | None] = {"part": part, "layer": layer, "head": head}
        opens = {name: value for name, value in named.items() if value is not None}
        return self if self.origin is None else replace(self, origin=replace(self.origin, opens=opens))

    def matrix(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> Matrix:
        """One matrix to draw: one head, the mean over the heads of a layer, or the mean over all layers of a part.

        For cross-attention without a layer, it is the layer that aligns best (`alignment_layer`).
        """
        if not self.layers:
            zeros = np.zeros((len(self.rows), len(self.columns)), dtype=np.float32)
            return Matrix(self.title, "no attention", self.rows, self.columns, zeros, EMPTY)
        part, chosen = next(iter(self.only(part, layer, head).parts.items()))
        chosen = [chosen[alignment_layer(len(chosen))]] if part == "cross" else chosen
        rows, columns = _axes(chosen[0])
        masks = [one.visible for one in chosen if one.visible is not None]
        visible = np.any(masks, axis=0) if len(masks) == len(chosen) else None
        if len(chosen) > 1:
            kept = chosen[0].kept_heads
            heads_label = "all heads" if kept is None else f"heads {', '.join(map(str, kept))}"
            label = f"{part} · mean of {len(chosen)} layers, {heads_label}".removeprefix(" · ")
            weights = np.mean([one.weights.mean(axis=0) for one in chosen], axis=0)
            return Matrix(self.title, label, rows, columns, weights, part, visible=visible)
        label, heads = chosen[0].label, chosen[0].head_numbers
        if len(heads) > 1:
            label = f"{label} · mean of {len(heads)} heads"
        elif chosen[0].kept_heads is not None:
            label = f"{label} · head {heads[0]}"
        return Matrix(self.title, label, rows, columns, chosen[0].weights.mean(axis=0), part, visible=visible)

    def text(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> RenderableType:
        """A rich renderable for the terminal, which adapts to its width."""
        answer = [Text(self.answer.sentence)] if self.answer else []
        if not self.layers:
            return Group(Text.assemble((self.title, "bold"), ("\nthis model has no attention weights", "dim")), *answer)
        return Group(MatrixText(self.matrix(layer, head, part)), *answer)

    def svg(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> Markup:
        """One matrix as an SVG picture, with the exact numbers in the cells' tooltips."""
        return matrix_svg(self.matrix(layer, head, part))

    def lines(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> Markup:
        """The same as lines in SVG: queries on the left, keys on the right, one colour per head.

        For several layers, the mean over layers and heads is drawn.
        """
        matrix = self.matrix(layer, head, part)
        part, layers = next(iter(self.only(part, layer, head).parts.items()), ("", []))
        layers = [layers[alignment_layer(len(layers))]] if part == "cross" else layers
        single = len(layers) == 1 and layers[0].heads > 1
        heads = dict(zip(layers[0].head_numbers, layers[0].weights)) if single else {}
        return lines_svg(matrix, heads)

    def html(self) -> str:
        """An interactive page: one HTML file with all layers and heads, and the decoding steps if there are any."""
        about = f"{self.answer.sentence} {self.about}".strip() if self.answer else self.about
        found = self.live() if self.live else ""
        live, still = (found, "") if isinstance(found, Live) else (None, found)
        return page_html(self.matrix(), self.parts, self.frames, about, self.origin, live, still)

    def __repr__(self) -> str:
        parts = [
            f"{part or 'attention'}: {len(layers)} × {layers[0].heads} heads" for part, layers in self.parts.items()
        ]
        size = f"{len(self.rows)} rows, {len(self.columns)} columns"
        return f"<AttentionView {self.title!r}: {size}; {', '.join(parts) or 'no attention'}>"

    def save(self, path: str | Path) -> Path:
        """Writes an .html, .svg or .npz file, chosen by the suffix. The file is written atomically."""
        return save_picture(path, self.html, self.svg, self._npz)

    def _repr_html_(self) -> str:
        """The picture, and the page in a frame, whose script hides the picture: it stays where scripts are removed."""
        return in_notebook(self.svg(), self.html)

    def _part(self, which: str | None) -> list[Layer]:
        parts = self.parts
        if which is None:
            return next(iter(parts.values()), [])
        if which not in parts:
            raise UserError(f"part={which}: no such part.{nearest(which, list(parts))}")
        return parts[which]

    def _npz(self) -> bytes:
        """The weights by layer name, and the tokens of all axes."""
        arrays: dict[str, NDArray[np.generic]] = {layer.name: layer.weights for layer in self.layers}
        axes = {"rows": self.rows, "columns": self.columns}
        for part, (layer, *_) in self.parts.items():
            rows, columns = _axes(layer)
            if (list(rows), list(columns)) != (list(self.rows), list(self.columns)):
                axes |= {f"{part}.rows": rows, f"{part}.columns": columns}
        return npz_bytes({**arrays, **{name: np.array(pieces, dtype=np.str_) for name, pieces in axes.items()}})


def _in_part() -> str:
    """Why the page of a part of a view does not compute."""
    return "it shows a part of the attention; leave out part, layer and head to get a page that computes"


def _axes(layer: Layer) -> tuple[Sequence[str], Sequence[str]]:
    return layer.rows or (), layer.columns or ()


def _layer(which: str | int, layers: Sequence[Layer]) -> Layer:
    """The layer with that name, or with that number in its part."""
    if isinstance(which, str):
        named = {layer.name: layer for layer in layers}
        if which not in named:
            raise UserError(f'layer="{which}": no such layer.{nearest(which, list(named))}')
        return named[which]
    numbered = {at if layer.number is None else layer.number: layer for at, layer in enumerate(layers)}
    if which not in numbered:
        first, last = min(numbered), max(numbered)
        every = f"{first} to {last}" if len(numbered) == last - first + 1 else ", ".join(map(str, sorted(numbered)))
        there = f"there are layers {every}" if last > first else f"there is one layer, {first}"
        raise UserError(f"layer={which}: {there}.")
    return numbered[which]
