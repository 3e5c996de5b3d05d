"""One table of names for both ways: what a public checkpoint calls each tensor, and what it is called here.

A line of the table says that some tensors of theirs, stacked, are one of ours; ``{}`` stands for the number of a layer.
Reading joins and writing splits, so a table that reads every tensor writes every tensor too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import UserError


@dataclass(frozen=True)
class Line:
    """Their tensors, stacked along the first dimension, are ours.

    ``turned``: theirs are transposed. ``row``: theirs are a matrix of one row where ours is a vector.
    """

    theirs: tuple[str, ...]
    ours: str
    turned: bool = False
    row: bool = False

    def at(self, theirs: int, ours: int) -> Line:
        """The line of one layer, by its number in either model."""
        names = tuple(name.format(theirs) for name in self.theirs)
        return replace(self, theirs=names, ours=self.ours.format(ours))

    def under(self, theirs: str, ours: str) -> Line:
        """The same line for a part of a model."""
        return replace(self, theirs=tuple(theirs + name for name in self.theirs), ours=ours + self.ours)

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        parts = [tensors[name].t() if self.turned else tensors[name] for name in self.theirs]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return whole.squeeze(0) if self.row else whole

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        parts = (tensor[None] if self.row else tensor).chunk(len(self.theirs))
        return {name: (part.t() if self.turned else part).contiguous() for name, part in zip(self.theirs, parts)}


def line(theirs: str, ours: str, turned: bool = False) -> Line:
    """A line from text: ``"q k v"`` are three tensors of theirs."""
    return Line(tuple(theirs.split()), ours, turned)


def both(theirs: str, ours: str, turned: bool = False) -> list[Line]:
    """The lines of a weight and of its bias."""
    weight = line(" ".join(f"{name}.weight" for name in theirs.split()), f"{ours}.weight", turned)
    return [weight, line(" ".join(f"{name}.bias" for name in theirs.split()), f"{ours}.bias")]


def layered(lines: Iterable[Line], layers: int) -> list[Line]:
    """The lines of every layer."""
    return [one.at(number, number) for number in range(layers) for one in lines]


def to_ours(lines: Sequence[Line], tensors: Mapping[str, Tensor], path: object) -> dict[str, Tensor]:
    """Their tensors under our names. Every one of theirs must have a line, and every line its tensors."""
    known = {name for one in lines for name in one.theirs}
    if left := sorted(set(tensors) - known):
        more = f" and {len(left) - 1} more" * (len(left) > 1)
        raise UserError(
            f"{path}: {left[0]}{more}: is of no part that is read here: of another model than its config.json, or a "
            "head for another task; save it without: transformers.AutoModel.from_pretrained(THIS).save_pretrained(NEW)."
        )
    for one in lines:
        for name in one.theirs:
            if name not in tensors:
                raise UserError(f"{path}: the tensor {name} is missing; download or export the checkpoint again.")
    for one in lines:
        _check_alike(one, tensors, path)
    return {one.ours: one.join(tensors) for one in lines}


def _check_alike(one: Line, tensors: Mapping[str, Tensor], path: object) -> None:
    """Refuse tensors that do not stack: queries, keys and values are of one shape, vectors or matrices."""
    first = one.theirs[0]
    for name in one.theirs:
        shape = tensors[name].shape
        if shape != tensors[first].shape or len(shape) not in (1, 2):
            other = f"{first} is {told(tensors[first].shape)}" if name != first else "it should be a vector or a matrix"
            raise UserError(f"{path}: {name} is {told(shape)}, but {other}; download or export the checkpoint again.")


def told(shape: Sequence[int]) -> str:
    """A shape as one says it: 3×4."""
    return "×".join(map(str, shape)) or "a single number"


def to_theirs(lines: Sequence[Line], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names."""
    found: dict[str, Tensor] = {}
    for one in lines:
        found |= one.split(tensors[one.ours])
    return found
