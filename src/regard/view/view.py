"""Attention, ready to be looked at: in the terminal, a notebook, a paper or a browser."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.text import Text

from regard.errors import UserError, nearest
from regard.view.files import write
from regard.view.page import page
from regard.view.parts import Frame, Layer, Matrix
from regard.view.svg import matrix_svg
from regard.view.terminal import MatrixText


@dataclass(frozen=True, eq=False)
class AttentionView:
    """Queries looking at keys, layer by layer and head by head; optionally the decoding steps that did the looking."""

    title: str
    rows: Sequence[str]  # queries: the target pieces
    columns: Sequence[str]  # keys: the source pieces
    layers: Sequence[Layer]
    frames: Sequence[Frame] | None = None  # one for each row

    def __post_init__(self) -> None:
        taken = {"rows", "columns"}  # names of their own in the .npz
        for layer in self.layers:
            if layer.weights.shape[1:] != (len(self.rows), len(self.columns)):
                raise ValueError(
                    f'layer "{layer.name}": weights of shape {layer.weights.shape} do not fit '
                    f"{len(self.rows)} rows and {len(self.columns)} columns"
                )
            if layer.heads == 0:
                raise ValueError(f'layer "{layer.name}": no heads in weights of shape {layer.weights.shape}')
            if layer.name in taken:
                raise ValueError(f'layer "{layer.name}": the name is taken')
            taken.add(layer.name)
        if self.frames is not None and len(self.frames) != len(self.rows):
            raise ValueError(f"frames: {len(self.frames)} of them do not fit {len(self.rows)} rows")

    def matrix(self, layer: str | int | None = None, head: int | None = None) -> Matrix:
        """One matrix to draw: the head asked for, or the mean of all heads (of the layer, or of every layer)."""
        if not self.layers:
            nothing = np.zeros((len(self.rows), len(self.columns)), dtype=np.float32)
            return Matrix(self.title, "no attention", self.rows, self.columns, nothing)
        if layer is None and len(self.layers) > 1:
            if head is not None:
                raise UserError(f"head={head}: say which layer too.{nearest('', self._names())}")
            weights = np.mean([one.weights.mean(axis=0) for one in self.layers], axis=0)
            return Matrix(self.title, f"mean of {len(self.layers)} layers, all heads", self.rows, self.columns, weights)
        chosen = self._layer(0 if layer is None else layer)
        if head is None:
            label = chosen.name if chosen.heads == 1 else f"{chosen.name} · mean of {chosen.heads} heads"
            return Matrix(self.title, label, self.rows, self.columns, chosen.weights.mean(axis=0))
        if not 0 <= head < chosen.heads:
            raise UserError(f'head={head}: layer "{chosen.name}" has heads 0 to {chosen.heads - 1}.')
        return Matrix(self.title, f"{chosen.name} · head {head}", self.rows, self.columns, chosen.weights[head])

    def text(self, layer: str | int | None = None, head: int | None = None) -> RenderableType:
        """For a terminal: print it with rich; it fits itself to the width it is given."""
        if not self.layers:
            return Text.assemble((self.title, "bold"), ("\nno attention in this model: there are no weights", "dim"))
        return MatrixText(self.matrix(layer, head))

    def svg(self, layer: str | int | None = None, head: int | None = None) -> str:
        """For a paper or a README: one picture, the exact numbers in its cells' titles."""
        return matrix_svg(self.matrix(layer, head))

    def html(self) -> str:
        """For a browser: one file with every layer and head, and the decoding steps where there are any."""
        matrices = [self.matrix()]
        for layer in self.layers:
            if len(self.layers) > 1:
                matrices.append(self.matrix(layer.name))
            if layer.heads > 1:
                matrices += [self.matrix(layer.name, head) for head in range(layer.heads)]
        return page(matrices, self.frames)

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

    def _names(self) -> list[str]:
        return [layer.name for layer in self.layers]

    def _layer(self, which: str | int) -> Layer:
        if isinstance(which, int):
            if not 0 <= which < len(self.layers):
                raise UserError(f"layer={which}: there are layers 0 to {len(self.layers) - 1}.")
            return self.layers[which]
        if which not in self._names():
            raise UserError(f'layer="{which}": no such layer.{nearest(which, self._names())}')
        return self.layers[self._names().index(which)]

    def _npz(self) -> bytes:
        """The weights by layer name, both axes as text. Zipped here: any name may occur, the bytes are stable."""
        arrays: dict[str, NDArray[np.generic]] = {layer.name: layer.weights for layer in self.layers}
        arrays |= {"rows": np.array(self.rows, dtype=np.str_), "columns": np.array(self.columns, dtype=np.str_)}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return buffer.getvalue()
