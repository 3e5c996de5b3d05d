"""Attention, ready to be looked at: in the terminal, a notebook, a paper or a browser."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.text import Text

from regard.errors import UserError, nearest
from regard.render.files import write
from regard.render.lines import lines_svg
from regard.render.page import page
from regard.render.parts import Frame, Layer, Matrix, aligning_layer
from regard.render.svg import matrix_svg
from regard.render.terminal import MatrixText


@dataclass(frozen=True, eq=False)
class AttentionView:
    """Queries looking at keys, layer by layer and head by head; optionally the decoding steps that did the looking.

    A model may look in several ways: its layers are then of several parts (encoder, decoder, cross), each with rows and
    columns of its own.
    """

    title: str
    rows: Sequence[str]  # queries: who looks (`parts.reading`)
    columns: Sequence[str]  # keys: what at
    layers: Sequence[Layer]
    frames: Sequence[Frame] | None = None  # one for each row

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
        taken = {"rows", "columns"}  # names of their own in the .npz
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
                raise ValueError(f'layer "{layer.name}": is of another shape than the rest of part "{layer.part}"')
            taken.add(layer.name)
        if self.frames is not None and len(self.frames) != len(self.rows):
            raise ValueError(f"frames: {len(self.frames)} of them do not fit {len(self.rows)} rows")

    @property
    def parts(self) -> dict[str, list[Layer]]:
        """The layers of each part, the one to be shown first in front: where a target looks at its source."""
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
                raise UserError(f"head={head}: of which layer? Say layer=0 to {len(chosen) - 1} too.")
            chosen = [chosen[0].only(head)]
        rows, columns = _axes(chosen[0])
        steps = chosen[0].part != "encoder" and len(rows) == len(self.rows)  # a source is read, and takes no steps
        frames = self.frames if steps else None
        return AttentionView(self.title, rows, columns, chosen, frames)

    def matrix(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> Matrix:
        """One matrix to draw: the head asked for, or the mean of all heads, of the layer or of every layer of its part.

        Where a target looks at its source and no layer is asked for, it is the one that aligns best.
        """
        if not self.layers:
            nothing = np.zeros((len(self.rows), len(self.columns)), dtype=np.float32)
            return Matrix(self.title, "no attention", self.rows, self.columns, nothing)
        part, chosen = next(iter(self.only(part, layer, head).parts.items()))
        chosen = [chosen[aligning_layer(len(chosen))]] if part == "cross" else chosen
        rows, columns = _axes(chosen[0])
        if len(chosen) > 1:
            label = f"{part} · mean of {len(chosen)} layers, all heads".removeprefix(" · ")
            weights = np.mean([one.weights.mean(axis=0) for one in chosen], axis=0)
            return Matrix(self.title, label, rows, columns, weights, part)
        label, heads = chosen[0].label, chosen[0].numbers
        if len(heads) > 1:
            label = f"{label} · mean of {len(heads)} heads"
        elif chosen[0].kept is not None:
            label = f"{label} · head {heads[0]}"
        return Matrix(self.title, label, rows, columns, chosen[0].weights.mean(axis=0), part)

    def text(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> RenderableType:
        """For a terminal: print it with rich; it fits itself to the width it is given."""
        if not self.layers:
            return Text.assemble((self.title, "bold"), ("\nno attention in this model: there are no weights", "dim"))
        return MatrixText(self.matrix(layer, head, part))

    def svg(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> str:
        """For a paper or a README: one picture, the exact numbers in its cells' titles."""
        return matrix_svg(self.matrix(layer, head, part))

    def lines(self, layer: str | int | None = None, head: int | None = None, part: str | None = None) -> str:
        """The same as SVG in lines: who looks stands on the left, what at on the right; each head has its colour.

        Of several layers the mean of their heads is drawn.
        """
        matrix = self.matrix(layer, head, part)
        part, layers = next(iter(self.only(part, layer, head).parts.items()), ("", []))
        layers = [layers[aligning_layer(len(layers))]] if part == "cross" else layers
        single = len(layers) == 1 and layers[0].heads > 1
        heads = dict(zip(layers[0].numbers, layers[0].weights)) if single else {}
        return lines_svg(matrix, heads)

    def html(self) -> str:
        """For a browser: one file with every layer and head, and the decoding steps where there are any."""
        return page(self.matrix(), self.parts, self.frames)

    def __repr__(self) -> str:
        parts = [
            f"{part or 'attention'}: {len(layers)} × {layers[0].heads} heads" for part, layers in self.parts.items()
        ]
        told = f"{len(self.rows)} rows, {len(self.columns)} columns; {', '.join(parts) or 'no attention'}"
        return f"<AttentionView {self.title!r}: {told}>"

    def save(self, path: str | Path) -> Path:
        """Writes .html, .svg or .npz, as the suffix says; the file is whole or absent."""
        suffix = Path(path).suffix.lower()
        if suffix == ".html":
            return write(path, self.html())
        if suffix == ".svg":
            return write(path, self.svg())
        if suffix == ".npz":
            return write(path, self._npz())
        raise UserError(f'Cannot save a view as "{path}": end the name in .html, .svg or .npz.')

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg()}</div>'

    def _part(self, which: str | None) -> list[Layer]:
        parts = self.parts
        if which is None:
            return next(iter(parts.values()), [])
        if which not in parts:
            raise UserError(f"part={which}: no such part.{nearest(which, list(parts))}")
        return parts[which]

    def _npz(self) -> bytes:
        """The weights by layer name, all axes as text. Zipped here: any name may occur, the bytes are stable."""
        arrays: dict[str, NDArray[np.generic]] = {layer.name: layer.weights for layer in self.layers}
        axes = {"rows": self.rows, "columns": self.columns}
        for part, (layer, *_) in self.parts.items():
            rows, columns = _axes(layer)
            if (list(rows), list(columns)) != (list(self.rows), list(self.columns)):
                axes |= {f"{part}.rows": rows, f"{part}.columns": columns}
        arrays |= {name: np.array(pieces, dtype=np.str_) for name, pieces in axes.items()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return buffer.getvalue()


def _axes(layer: Layer) -> tuple[Sequence[str], Sequence[str]]:
    return layer.rows or (), layer.columns or ()


def _layer(which: str | int, layers: Sequence[Layer]) -> Layer:
    """The one of that name, or of that number among the layers of its part."""
    if isinstance(which, str):
        named = {layer.name: layer for layer in layers}
        if which not in named:
            raise UserError(f'layer="{which}": no such layer.{nearest(which, list(named))}')
        return named[which]
    numbered = {at if layer.number is None else layer.number: layer for at, layer in enumerate(layers)}
    if which not in numbered:
        there = f"layers {min(numbered)} to {max(numbered)}" if len(numbered) > 1 else "one layer, 0"
        raise UserError(f"layer={which}: there are {there}.".replace("are one", "is one"))
    return numbered[which]
